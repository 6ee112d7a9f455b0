"""Errors report what drivers get wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octants.codegen.spirv.control_flow import EntryPoint
from octants.codegen.spirv.instruction_writer import SpirvCode
from octants.codegen.spirv.module_builder import Assembly
from octants.codegen.spirv.nesting_depth import MOST
from octants.codegen.structured.features import Features
from octants.diagnostics.exceptions import OctantsRuntimeError
from octants.ir.core import Module
from octants.target import Target
from octants.types.scalars import DType, i32, i64, integer_range, u1, u32, u64
from tests.codegen.compiled import for_, if_, ndarray, parallel, while_
from tests.vulkan import compiled

INNER = 40  # too many for a driver to write them out


def counting(by_while: bool) -> Module:
    """Each work item adds up the iterations of a loop within a loop."""
    n, out = ndarray("n", i32), ndarray("out", i64)

    def body(build: Any, i: Any) -> None:
        count = build.load(n, [i])

        def inner(build: Any, k: Any, carried: Any) -> Any:
            return [build.binary("add", carried[0], build.offset(1))]

        def outer(build: Any, k: Any, carried: Any) -> Any:
            return for_(build, build.index(0), build.index(INNER), carried, inner)

        def turn(build: Any, carried: Any) -> Any:
            (total,) = outer(build, carried[0], carried[1:])
            return [build.binary("add", carried[0], build.index(1)), total]

        if by_while:
            start = [build.index(0), build.offset(0)]
            _, total = while_(build, start, lambda b, c: b.compare("lt", c[0], count), turn)
        else:
            (total,) = for_(build, build.index(0), count, [build.offset(0)], outer)
        build.store(out, [i], total)

    task = parallel("t", lambda build: (build.index(0), build.shape(n, 0)), body)
    return Module("counting", [n, out], tasks=[task])


@pytest.mark.parametrize("by_while", [False, True])
def test_a_loop_is_counted_to_its_end_or_that_it_was_cut_is_told(by_while: bool) -> None:
    compiled.device()
    kernel = compiled.OnVulkan(counting(by_while))
    for most in (5, 100, 1000, 1450, 1500, 5000, 70_000):
        n = np.arange(100, dtype=np.int32) * most // 99
        data = {"n": n, "out": np.zeros(100, np.int64)}
        try:
            kernel.run(data)
        except OctantsRuntimeError as error:
            assert "OCT457" in str(error)
            assert most > 1450
            continue
        assert data["out"].tolist() == (INNER * n).tolist()


@pytest.mark.parametrize("dtype", [i32, i64, u32, u64], ids=str)
def test_no_loop_is_said_to_be_cut_whose_turns_are_few(dtype: DType) -> None:
    compiled.device()
    least, most = integer_range(dtype)
    numbers = [*range(least, least + 6), *range(most - 5, most + 1), *range(max(least, -3), 4)]
    pairs = [(a, b) for a in numbers for b in numbers if b <= a + 6]
    lower, upper, out = ndarray("lower", dtype), ndarray("upper", dtype), ndarray("out", i32)

    def body(build: Any, i: Any) -> None:
        def turn(build: Any, k: Any, carried: Any) -> Any:
            return [build.binary("add", carried[0], build.index(1))]

        bounds = build.load(lower, [i]), build.load(upper, [i])
        build.store(out, [i], *for_(build, *bounds, [build.index(0)], turn))

    task = parallel("t", lambda build: (build.index(0), build.shape(out, 0)), body)
    kernel = compiled.OnVulkan(Module("few", [lower, upper, out], tasks=[task]))
    data = {
        "lower": np.array([a for a, _ in pairs], dtype.numpy),
        "upper": np.array([b for _, b in pairs], dtype.numpy),
        "out": np.zeros(len(pairs), np.int32),
    }
    kernel.run(data)
    assert data["out"].tolist() == [max(0, b - a) for a, b in pairs]


def chain(count: int) -> Module:
    """Alternatives in each other: work item k takes the k-th."""
    out = ndarray("out", i32)

    def store(build: Any, i: Any, value: int) -> Any:
        build.store(out, [i], build.constant(value, i32))
        return []

    def alternative(build: Any, i: Any, k: int) -> Any:
        if k == count:
            return store(build, i, -1)
        chosen = build.compare("eq", i, build.index(k))
        then = lambda b: store(b, i, k + 1)  # noqa: E731
        return if_(build, chosen, then, lambda b: alternative(b, i, k + 1))

    def body(build: Any, i: Any) -> None:
        alternative(build, i, 0)

    task = parallel("t", lambda build: (build.index(0), build.shape(out, 0)), body)
    return Module("chain", [out], tasks=[task])


@pytest.mark.parametrize("count", [8, 40, MOST - 2, MOST + 1, 100])
def test_deep_branches_are_right_or_refused(count: int) -> None:
    compiled.device()
    try:
        kernel = compiled.OnVulkan(chain(count))
    except OctantsRuntimeError as error:
        assert "OCT449" in str(error)
        assert count > MOST - 3
        return
    data = {"out": np.zeros(count + 2, np.int32)}
    kernel.run(data)
    assert data["out"].tolist() == [*range(1, count + 1), -1, -1]


def test_functions_count_where_they_are_called() -> None:
    """No device is needed."""
    target = Target("vulkan", "spirv", "a device", "int64,cuts")
    code = SpirvCode(Assembly(Features(target)), EntryPoint())
    truth = code.constant(True, u1)

    def nest(inner: Any, depth: int, bottom: Any = lambda: None) -> None:
        if depth:
            inner.branch(truth, lambda: nest(inner, depth - 1, bottom))
        else:
            bottom()

    def call() -> None:
        code.call("f", [], None, lambda inner, _: nest(inner, 30), [])

    nest(code, MOST - 30, call)
    nest(code, MOST)
    with pytest.raises(OctantsRuntimeError, match="OCT449"):
        nest(code, MOST - 29, call)


def test_code_behind_a_return_is_one_branch_deeper() -> None:
    """Mesa removes returns so. No device is needed."""
    target = Target("vulkan", "spirv", "a device", "int64,cuts")
    code = SpirvCode(Assembly(Features(target)), EntryPoint())
    truth = code.constant(True, u1)

    def returns(count: int) -> None:
        for _ in range(count):
            code.branch(truth, code.leave)

    code.branch(truth, lambda: returns(MOST - 2))  # counts once behind this branch
    code.branch(truth, lambda: returns(MOST - 3))
    returns(MOST - 2)
    assert code.nesting.deepest == MOST
    with pytest.raises(OctantsRuntimeError, match="OCT449"):
        returns(1)
