"""Loops in loops that are stored: bit by bit the gradients of replays, checked byte by byte."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from octants.autodiff.emit.stored_loops import Cursor, IterationFrame, StoredLoops
from octants.autodiff.plan.recording_plan import RecordingPlan
from octants.interpreter import run
from octants.ir import ops
from octants.ir.core import Block, Companion, Value
from octants.runtime.cpu import CpuDevice
from octants.types.scalars import f64, i32, i64
from tests.ad.record_buffers import exact_record_buffers
from tests.autodiff.random_ir import inputs
from tests.autodiff.reversing import differentiate
from tests.autodiff.strict_records import check_records
from tests.autodiff.test_checkpoints import LongLoops
from tests.codegen.compiled import Compiled

ADJOINT = Companion.ADJOINT


class Nests(LongLoops):
    """Loops in loops, up to three deep, with branches and stores in between."""

    def statements(self, floats: list[Value], ints: list[Value], depth: int, count: int) -> None:
        kinds = ["scalar", "scalar", "load", "store", "atomic"]
        if depth:
            kinds += ["for", "while"] * depth + ["if"]
        for _ in range(min(count, 3)):
            getattr(self, self.random.choice(kinds))(floats, ints, depth)


class Branchy(LongLoops):
    """A loop in one side of a branch of another one; what it gives is used there."""

    def statements(self, floats: list[Value], ints: list[Value], depth: int, count: int) -> None:
        b = self.builder
        body = Block([Value(i32), Value(f64)])
        with b.into(body):
            number, v = body.args
            is_even = b.compare("eq", b.binary("mod", number, b.index(2)), b.index(0))
            then, orelse = Block(), Block([], [ops.Yield([v])])
            with b.into(then):
                b.yield_([b.unary("sin", self._inner(b.binary("add", number, b.index(2)), v))])
            v = b.if_(is_even, then, orelse).result
            b.yield_([b.unary("tanh", b.binary("mul", v, v))])
        start = b.load(self.x, [self.row, b.index(1)])
        floats.append(b.for_(b.index(0), b.index(8), [start], body).result)

    def _inner(self, trips: Value, v: Value) -> Value:
        b = self.builder
        body = Block([Value(i32), Value(f64)])
        with b.into(body):
            b.yield_([b.binary("add", b.unary("sin", body.args[1]), b.constant(0.7, f64))])
        return b.for_(b.index(0), trips, [v], body).result


def traits(plans: list[RecordingPlan]) -> set[str]:
    """What there is among the loops that are stored."""
    found = set()
    for plan in plans:
        around = plan.nests.around
        found |= {"stored"} if around else set()
        found |= {f"{type(op).NAME} in {type(outer).NAME}" for op, outer in around.items()}
        found |= {"deep" for outer in around.values() if outer in around}
        found |= {"in blocks" for outer in around.values() if outer in plan.in_blocks}
    return found


SEEDS = (*range(8), 12, 26, 32)


@pytest.mark.parametrize(
    ("budget", "seeds"),
    [
        *((budget, SEEDS[3:]) for budget in (0, 400)),
        *(pytest.param(budget, SEEDS, marks=pytest.mark.slow) for budget in (0, 100, 400, 3000)),
    ],
)
def test_random_modules(budget: int, seeds: tuple[int, ...], plans: list[RecordingPlan]) -> None:
    found: Counter[str] = Counter()
    for seed in seeds:
        plans.clear()
        how = check_records(seed, budget, Nests(seed).simplified(), "store")
        found.update([how, *traits(plans)])
    assert found["stored"] >= 4
    assert budget == 0 or found["in blocks"]
    assert {"after", "before", "for in while", "while in for"} <= set(found)


def test_nests_that_are_three_deep(plans: list[RecordingPlan]) -> None:
    deep = 0
    for seed in DEEP:
        plans.clear()
        for budget in (0, 200, 1000):
            check_records(seed, budget, Nests(seed).simplified(), "store")
        deep += "deep" in traits(plans)
    assert deep == len(DEEP)


DEEP = (24, 32, 63)


def test_a_loop_that_records_nothing_of_its_own() -> None:
    """Where its frames ended did not tell which of them had the records of the loops in it."""
    for budget in (1, 200, 300, 400, 700):
        check_records(5006, budget, Nests(5006).simplified(), "store")


def test_compiled_nests_take_the_bytes_of_the_interpreter(plans: list[RecordingPlan]) -> None:
    device, stored = CpuDevice(1, record_budget=600), 0
    for seed in range(16):
        module = Nests(seed).simplified()
        plans.clear()
        result = differentiate(module, whole_record_bytes=600, nests="store")
        if result.hazards or "stored" not in traits(plans):
            continue
        adjoints = {name: value.copy() for name, value in inputs(seed + 1).items()}
        state = {**inputs(seed), "t": np.zeros(())}
        if result.state == "after":
            run(module, state)
        both: dict[Any, Any] = {**state, ("t", ADJOINT): np.zeros(())}
        both |= {(name, ADJOINT): value for name, value in adjoints.items()}
        copies = {key: value.copy() for key, value in both.items()}
        interpreted = run(result.module, copies, share=600)
        with exact_record_buffers(device):
            Compiled(result.module, device, simd="never").run(both)
            assert device.record_buffer_bytes == interpreted.record_buffer_bytes
        stored += 1
        for key, expected in copies.items():
            np.testing.assert_allclose(both[key], expected, rtol=1e-9, atol=1e-12)
    assert stored >= 3


# -- mistakes that must be noticed ----------------------------------------------------------------


def _starts_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The records of an execution are looked for one record too late."""
    original = StoredLoops._pass_stored

    def moved(self: Any, op: Any, frame: IterationFrame) -> None:
        original(self, op, frame)
        values, records = self._emitter.values, self._emitter.records
        one = self._emitter.builder.constant(1, i64)
        values.note(op, offset=records.end(records.of(op), values[op, "offset"], one))

    monkeypatch.setattr(StoredLoops, "_pass_stored", moved)


def _forgets_the_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """The frame before is taken to end where the records of this one do."""
    monkeypatch.setattr(StoredLoops, "start_of_frame", lambda self: self._frame.start)


def _never_lets_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """An execution that does not fit leaves its place to what comes next."""
    original = StoredLoops._store_for

    def kept(self: Any, op: Any, begin: Value, cursor: Cursor) -> Value:
        end = original(self, op, begin, cursor)
        result: Value = self._emitter.builder.binary("min", end, cursor.limit)
        return result

    monkeypatch.setattr(StoredLoops, "_store_for", kept)


def _takes_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a branch hands out of the loops stored in it is lost."""

    def zeros(self: Any, keys: Any, _: Any) -> list[Value]:
        return [self._emitter.builder.constant(0, dtype) for dtype in keys.values()]

    monkeypatch.setattr(StoredLoops, "_values_or_zeros", zeros)


def _replays_over_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replays record from where the stack was before the loop."""
    original = StoredLoops.note_frames

    def forgotten(self: Any, op: Any, ends: list[Value]) -> None:
        original(self, op, ends)
        if ends:
            self._emitter.values.note(op, end=self._emitter.values[op, "base"])

    monkeypatch.setattr(StoredLoops, "note_frames", forgotten)


MISTAKES = (
    _starts_elsewhere,
    _forgets_the_size,
    _never_lets_go,
    _takes_zeros,
    _replays_over_frames,
)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_mistakes_are_noticed(
    mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        for seed in range(2):
            for budget in (0, 300):
                check_records(seed, budget, Branchy(seed).simplified(), "store")


def test_branches_are_right_without_mistakes(plans: list[RecordingPlan]) -> None:
    for seed in range(2):
        for budget in (0, 300):
            check_records(seed, budget, Branchy(seed).simplified(), "store")
    assert "stored" in traits(plans)
