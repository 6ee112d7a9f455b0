"""Loops that run long are cut into strips, with a poll for Ctrl-C between them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octants.codegen.llvm import control_flow
from octants.ir.core import Module
from octants.types.scalars import DType, i8, i32, i64, u32, u64
from tests.codegen.compiled import Compiled, argument, for_, ndarray, parallel, serial

RANGES = [(0, 0), (0, 1), (0, 50), (0, 51), (3, 152), (7, 5), (0, 1000)]


def loop_over_a_range(dtype: DType, kind: str) -> Module:
    """``out[0]`` is a recurrence over the range, ``out[1]`` the number of iterations."""
    lower, upper, out = argument("lower", dtype), argument("upper", dtype), ndarray("out", i64)

    def body(build: Any, *_: Any) -> None:
        def iteration(build: Any, i: Any, carried: Any) -> Any:
            scaled = build.binary("mul", carried[0], build.constant(3, i64))
            count = build.binary("add", carried[1], build.constant(1, i64))
            return [build.binary("xor", scaled, build.cast(i, i64)), count]

        ends = build.load(lower, []), build.load(upper, [])
        found = for_(build, *ends, [build.constant(k, i64) for k in (5, 0)], iteration)
        for position, value in enumerate(found):
            build.store(out, [build.index(position)], value)

    if kind == "serial":
        return Module("strips", [lower, upper, out], tasks=[serial("t", body)])
    domain = {"one": 1, "many": 100}[kind]
    task = parallel("t", lambda build: (build.index(0), build.index(domain)), body)
    return Module("strips", [lower, upper, out], tasks=[task])


@pytest.mark.parametrize("dtype", [i32, i64, u32, u64])
@pytest.mark.parametrize("kind", ["serial", "one"])
def test_strips_run_the_iterations_of_the_loop(
    dtype: DType, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_flow, "UNINTERRUPTED", 250)  # about 50 iterations
    compiled = Compiled(loop_over_a_range(dtype, kind))
    highest = np.iinfo(dtype.numpy).max
    negative = [(-120, 130)] if dtype.is_signed else []
    for lower, upper in [*RANGES, *negative, (highest - 120, highest)]:
        work = {
            "lower": np.array(lower, dtype.numpy),
            "upper": np.array(upper, dtype.numpy),
            "out": np.zeros(2, np.int64),
        }
        compiled.run(work)
        expected, count = 5, 0
        for i in range(lower, upper):
            expected, count = (expected * 3) ^ i, count + 1
        wrapped = (expected + 2**63) % 2**64 - 2**63
        assert work["out"].tolist() == [wrapped, count], (lower, upper)


@pytest.mark.parametrize(
    ("dtype", "kind", "cut"),
    [(i64, "serial", True), (i32, "one", True), (i32, "many", False), (i8, "serial", False)],
)
def test_only_loops_that_may_run_long_are_cut(
    dtype: DType, kind: str, cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_loops, write = [], control_flow._in_strips

    def count(*args: Any, **options: Any) -> list[str]:
        cut_loops.append(args)
        return write(*args, **options)

    monkeypatch.setattr(control_flow, "_in_strips", count)
    Compiled(loop_over_a_range(dtype, kind), simd="never")
    assert bool(cut_loops) is cut
