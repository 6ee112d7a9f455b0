"""Loops in blocks: bit by bit the gradients of loops that are recorded whole, in less memory."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from octants.abi import MAXIMUM_RECORD_BUFFER
from octants.autodiff.emit import checkpoints
from octants.interpreter import run
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Companion, Module, Value
from octants.runtime.cpu import CpuDevice
from octants.simplify import simplify
from octants.target import NEVER
from octants.types.scalars import i64
from tests.ad.record_buffers import exact_record_buffers
from tests.autodiff.random_ir import Generator, gradient, inputs
from tests.autodiff.reversing import differentiate
from tests.autodiff.strict_records import strict_records
from tests.codegen.compiled import Compiled
from tests.seeds import counts

ADJOINT = Companion.ADJOINT


class LongLoops(Generator):
    """More loops than usual, one or two deep, with more trips."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, random.Random(seed).choice((5, 9, 20)))

    def statements(self, floats: list[Value], ints: list[Value], depth: int, count: int) -> None:
        kinds = ["scalar", "scalar", "load", "store", "atomic", "step"]
        if depth > 1:
            kinds += ["for", "for", "while", "while", "if"]
        for _ in range(min(count, 4)):
            getattr(self, self.random.choice(kinds))(floats, ints, depth)

    def _bound(self, ints: list[Value]) -> Value:
        b = self.builder
        moved = b.binary("mul", self.random.choice(ints), b.index(self.random.randrange(1, 9)))
        moved = b.binary("add", moved, b.index(self.random.randrange(9)))
        return b.binary("mod", moved, b.index(self.trips))

    def simplified(self) -> Module:
        module = self.module()
        simplify(module)
        return module


def check_blocks(seed: int, budget: int, module: Module) -> Counter[str]:
    """Compare the gradient of a module within a budget with that of a plentiful record buffer."""
    data, weights = inputs(seed), inputs(seed + 1)
    whole, how = gradient(module, data, weights)
    with strict_records() as records:
        in_blocks, how_in_blocks = gradient(module, data, weights, budget)
    assert how == how_in_blocks
    for name, expected in whole.items():
        assert np.array_equal(expected, in_blocks[name], equal_nan=True), (seed, budget, name)
    return Counter({how: 1, "with checkpoints": "checkpoint" in records.pushes})


@pytest.mark.parametrize("count", counts(8, 20))
@pytest.mark.parametrize("budget", [1, 40, 120])
def test_random_modules(budget: int, count: int) -> None:
    found: Counter[str] = Counter()
    for seed in range(count):
        found += check_blocks(seed, budget, LongLoops(seed).simplified())
    assert found["with checkpoints"] >= count // 4
    assert {"after", "before", "split"} <= set(found)


def test_a_sum_of_what_changes_is_not_affine() -> None:
    check_blocks(2999, 300, LongLoops(2999).simplified())


@pytest.mark.parametrize("root", [1, 2, 3, 316, 4096, 4097, 65535, 65536, 1 << 20, (1 << 22) - 1])
def test_roots_are_rounded_up(root: int) -> None:
    builder = Builder()
    for number in {max(1, root * root + k) for k in (-root, -2, -1, 0, 1, 2, root)}:
        found = builder.constant_of(checkpoints._root(builder, builder.constant(number, i64)))
        assert found == math.isqrt(number - 1) + 1, number


def test_compiled_loops_take_the_bytes_of_the_interpreter() -> None:
    in_blocks = 0
    for seed in range(100, 112):
        module = LongLoops(seed).simplified()
        for budget in (0, 30, 150):
            device = CpuDevice(1, record_budget=budget)
            result = differentiate(module, whole_record_bytes=budget)
            if result.hazards:
                continue
            adjoints = {name: value.copy() for name, value in inputs(seed + 1).items()}
            state = {**inputs(seed), "t": np.zeros(())}
            if result.state == "after":
                run(module, state)
            both: dict[Any, Any] = {**state, ("t", ADJOINT): np.zeros(())}
            both |= {(name, ADJOINT): value for name, value in adjoints.items()}
            copies = {key: value.copy() for key, value in both.items()}
            interpreted = run(result.module, copies, share=budget or MAXIMUM_RECORD_BUFFER)
            with exact_record_buffers(device):
                Compiled(result.module, device, simd=NEVER).run(both)
                assert device.record_buffer_bytes == interpreted.record_buffer_bytes
            in_blocks += any("checkpoint" in name for name in records(result.module))
            for key, expected in copies.items():
                np.testing.assert_allclose(both[key], expected, rtol=1e-9, atol=1e-12)
    assert in_blocks >= 4


def records(module: Module) -> set[str]:
    return {op.record.name for op in module.walk() if isinstance(op, ops.RecordPush)}
