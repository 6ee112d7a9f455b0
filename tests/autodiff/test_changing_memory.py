"""Memory that changes while a gradient runs: no record is written or read at a wrong position."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from octants import interpreter
from octants.abi import MAXIMUM_RECORD_BUFFER
from octants.autodiff.facts.deeply_nested_ifs import MAX_DEPTH
from octants.autodiff.plan.recording_plan import RecordingPlan
from octants.interpreter import Interpreter, run
from octants.ir import ops
from octants.ir.core import Array, Block, Companion, Module, Space, Value
from octants.simplify import simplify
from octants.types.scalars import f64, i32
from tests.autodiff.random_ir import COLUMNS, ROWS, inputs
from tests.autodiff.reversing import differentiate
from tests.autodiff.strict_records import strict_records
from tests.autodiff.test_nests import Nests
from tests.seeds import counts, pairwise

ADJOINT = Companion.ADJOINT
TRIPS = 6


class Bounds(Nests):
    """Nests of loops whose bounds, and ifs whose conditions, are read from memory."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.n = Array("n", i32, 2, Space.NDARRAY, layouts={Companion.PRIMAL: None})

    def module(self) -> Module:
        module = super().module()
        module.arrays.append(self.n)
        simplify(module)
        return module

    def statements(self, floats: list[Value], ints: list[Value], depth: int, count: int) -> None:
        if depth < 3:
            super().statements(floats, ints, depth, count)
            return
        b = self.builder
        body = Block([Value(i32), Value(f64)])
        with b.into(body):
            inside, numbers = [*floats, body.args[1]], [*ints, body.args[0]]
            for _ in range(self.random.randrange(1, 3)):
                super().statements(inside, numbers, 2, 1)
                self.for_(inside, numbers, 2)
                if self.random.random() < 0.5:
                    self.if_(inside, numbers, 2)
            b.yield_([b.unary("sin", b.binary("mul", inside[-1], body.args[1]))])
        start = b.load(self.x, [self.row, b.index(1)])
        floats.append(b.for_(b.index(0), b.index(TRIPS), [start], body).result)

    def _bound(self, ints: list[Value]) -> Value:
        b = self.builder
        if self.random.random() < 0.4:
            return super()._bound(ints)
        index = b.binary("mod", self.random.choice(ints), b.index(COLUMNS))
        return b.binary("mod", b.load(self.n, [self.row, index]), b.index(TRIPS))

    def store(self, floats: list[Value], ints: list[Value], depth: int) -> None:
        if self.random.random() < 0.7:
            super().store(floats, ints, depth)
            return
        index = self.builder.binary("mod", self.random.choice(ints), self.builder.index(COLUMNS))
        self.builder.store(self.n, [self.row, index], self.random.choice(ints))

    def _loop(self, v: Value, trips: Value) -> Value:
        b = self.builder
        body = Block([Value(i32), Value(f64)])
        with b.into(body):
            b.yield_([b.binary("add", b.unary("sin", body.args[1]), b.constant(0.7, f64))])
        return b.unary("sin", b.for_(b.index(0), trips, [v], body).result)


class Conditions(Bounds):
    """Loops in branches that memory decides; what they give is used there."""

    def if_(self, floats: list[Value], ints: list[Value], depth: int) -> None:
        b, v = self.builder, floats[-1]
        row = b.binary("mod", self.random.choice(ints), b.index(COLUMNS))
        condition = b.compare("lt", b.load(self.p, [row]), b.constant(0.3, f64))
        then, orelse = Block(), Block([], [ops.Yield([v])])
        with b.into(then):
            b.yield_([self._loop(v, b.index(self.random.randrange(1, TRIPS)))])
        floats.append(b.if_(condition, then, orelse).result)


class DeepConditions(Bounds):
    """Loops in a nest of ifs that is so deep that the backward sweep computes conditions again."""

    def statements(self, floats: list[Value], ints: list[Value], depth: int, count: int) -> None:
        b = self.builder
        body = Block([Value(i32), Value(f64)])
        with b.into(body):
            result = self._nest(b.unary("sin", body.args[1]), MAX_DEPTH + 2)
            b.yield_([b.binary("mul", b.unary("sin", result), body.args[1])])
        start = b.load(self.x, [self.row, b.index(1)])
        floats.append(b.for_(b.index(0), b.index(TRIPS), [start], body).result)

    def _nest(self, v: Value, depth: int) -> Value:
        b = self.builder
        if depth == 0:
            return self._loop(v, b.index(3))
        array = self.z if depth < 8 else self.y if depth < 12 else self.x
        read = b.load(array, [self.row, b.index(depth % (8 if depth < 8 else COLUMNS))])
        then, orelse = Block(), Block()
        with b.into(then):
            b.yield_([self._nest(v, depth - 1)])
        with b.into(orelse):
            trips = b.load(self.n, [self.row, b.index(depth % COLUMNS)])
            b.yield_([self._loop(v, b.binary("mod", trips, b.index(TRIPS)))])
        return b.if_(b.compare("lt", read, b.constant(0.8, f64)), then, orelse).result


@contextmanager
def changing(seed: int) -> Iterator[None]:
    """Let each load of the interpreter read something else."""
    load, rng = interpreter.HANDLERS[ops.Load], random.Random(seed)

    def changed(launch: Interpreter, op: ops.Load, env: dict[Value, Any]) -> None:
        load(launch, op, env)
        if op.array.space is Space.NDARRAY and op.companion is Companion.PRIMAL:
            value = rng.randrange(TRIPS) if op.array.dtype is i32 else rng.uniform(-1, 1)
            env[op.result] = op.array.dtype.numpy.type(value)

    interpreter.HANDLERS[ops.Load] = changed
    try:
        yield
    finally:
        interpreter.HANDLERS[ops.Load] = load


def check(module: Module, seed: int, budget: int, nests: str) -> set[str]:
    """Reverse a kernel while its memory changes; gives what there is in it."""
    reversed_ = differentiate(module, whole_record_bytes=budget, nests=nests)
    if reversed_.hazards:
        return set()
    data: dict[Any, Any] = {**inputs(seed), "n": np.full((ROWS, COLUMNS), 3, np.int32)}
    data |= {(name, ADJOINT): value for name, value in inputs(seed + 1).items()}
    with strict_records() as records, changing(seed):
        run(reversed_.module, data, share=budget or MAXIMUM_RECORD_BUFFER)
    return set(records.pushes)


@pytest.mark.parametrize("count", counts(6, 60))
@pytest.mark.parametrize(
    ("generator", "budget", "nests"),
    pairwise([Bounds, Conditions, DeepConditions], [0, 60, 400], ["replay", "store", "auto"]),
)
def test_random_kernels(
    generator: type[Bounds], budget: int, nests: str, count: int, plans: list[RecordingPlan]
) -> None:
    found: Counter[str] = Counter()
    for seed in range(count):
        plans.clear()
        found.update(check(generator(seed).module(), seed, budget, nests))
        found["stored"] += any(plan.nests.varying for plan in plans)
    assert found["r"] >= count // 3
    assert found["log"] or generator is DeepConditions
    assert found["stored"] >= count // 4 or nests == "replay"
