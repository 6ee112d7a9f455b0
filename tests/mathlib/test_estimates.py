"""Functions by instructions that estimate others, as for NVIDIA's GPUs through Vulkan.

Of exp, exp2 and tanh, estimates of powers are not subnormal, and neither are fused sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.cloning import emit
from octants.ir.core import Module, Value
from octants.mathlib.argument_reduction import USUAL
from octants.mathlib.fast_by_estimates import FAR
from octants.mathlib.function_registry import function
from octants.types.scalars import f32
from tests.codegen.compiled import Compiled, ndarray, parallel
from tests.codegen.threads import Threads
from tests.mathlib.bounds import ESTIMATED, ESTIMATED_TANH, PLAIN
from tests.mathlib.compiled_functions import bits, units
from tests.mathlib.samples import numbers
from tests.mathlib.test_special_values import UNARY_CASES

LEAST = -126.0


def computed(x: Any, of: Callable[[Builder, Value], Value], compiled: Any = Compiled) -> Any:
    """A function of each of some numbers."""
    arrays = [ndarray("x", f32), ndarray("y", f32)]

    def body(build: Builder, i: Value) -> None:
        build.store(arrays[1], [i], of(build, build.load(arrays[0], [i])))

    task = parallel("all", lambda build: (build.index(0), build.shape(arrays[0], 0)), body)
    data = {"x": x, "y": np.zeros_like(x)}
    compiled(Module("each", arrays, tasks=[task])).run(data)
    return data["y"]


def values(fn: str, x: Any) -> Any:
    """The function of numbers on such a machine; the estimate itself is exact."""

    def of(build: Builder, number: Value) -> Value:
        block = function(fn, f32, True, "estimating").block
        made = {block.args[0]: number}
        for op in block.ops[:-1]:
            if isinstance(op, ops.Unary) and op.fn == "exp2_estimate":
                power = made[op.x]
                is_small = build.compare("lt", power, build.constant(LEAST, f32))
                exact = build.unary("exp2", power)
                made[op.result] = build.select(is_small, build.constant(0.0, f32), exact)
            else:
                emit(build, op, made)
                if isinstance(op, ops.Fma):
                    size = build.unary("abs", made[op.result])
                    is_small = build.compare("lt", size, build.constant(2.0**LEAST, f32))
                    zero = build.constant(0.0, f32)
                    made[op.result] = build.select(is_small, zero, made[op.result])
        return made[block.yielded[0]]

    return computed(x, of)


@pytest.mark.parametrize("fn", ["exp", "exp2"])
def test_errors(fn: str) -> None:
    x = numbers(fn, f32, 40_000)
    ends = np.linspace(-150.0, -80.0, 20_001).astype(np.float32)
    near = np.float32(LEAST * (math.log(2) if fn == "exp" else 1)) * np.ones(2000, np.float32)
    near = (near.view(np.int32) + np.arange(-1000, 1000, dtype=np.int32)).view(np.float32)
    x = np.concatenate([x, ends, -ends, near])
    with np.errstate(all="ignore"):
        exact = getattr(np, fn)(x.astype(np.longdouble))
    assert units(values(fn, x), exact).max() <= ESTIMATED - 1.0


def test_errors_of_tanh() -> None:
    """An estimate that is two ulp off, and such a quotient, add two ulp."""
    x = np.linspace(0.0, 10.0, 40_001).astype(np.float32)
    x = np.concatenate([numbers("tanh", f32, 40_000), x])
    x = x[~np.isnan(x)]
    found = values("tanh", x)
    assert units(found, np.tanh(x.astype(np.longdouble))).max() <= ESTIMATED_TANH - 2.0
    assert (bits(values("tanh", -x)) == bits(-found)).all()


def test_errors_of_tanh_with_cuda() -> None:
    """The emulated instructions are exact, or nearly so."""
    x = np.concatenate([np.linspace(-10.0, 10.0, 40_001), np.geomspace(1e-44, 1.0, 5000)])
    x = np.concatenate([x, [0.0, -0.0, np.inf, -np.inf, np.nan, 3e38]]).astype(np.float32)
    y = computed(
        x,
        lambda build, number: build.unary("tanh", number),
        lambda module: Threads(module, fast_math=True),
    )
    exact = np.tanh(x.astype(np.longdouble))
    assert units(y[:-2], exact[:-2]).max() <= ESTIMATED_TANH - 2.0
    assert np.isnan(y[-2]) and y[-1] == 1.0
    assert (np.signbit(y) == np.signbit(x))[:-2].all()


def beyond(fn: str, x: Any) -> Any:
    """A function of angles that are too large for the instruction that estimates it."""

    def of(build: Builder, number: Value) -> Value:
        block = function(fn, f32, True, "estimating").block
        at = next(k for k, op in enumerate(block.ops) if isinstance(op, ops.If))
        branch = block.ops[at]
        assert isinstance(branch, ops.If)
        made = {block.args[0]: number}
        for op in [*block.ops[:at], *branch.then.ops[:-1]]:
            emit(build, op, made)
        return made[branch.then.yielded[0]]

    return computed(x, of)


@pytest.mark.parametrize("fn", ["sin", "cos"])
def test_errors_of_large_angles(fn: str) -> None:
    quarters = np.arange(41, 20_000) * (np.pi / 2)
    near = USUAL[24] + np.arange(-100, 100) / 2048
    x = np.concatenate([quarters, np.geomspace(FAR, 3.4e38, 40_000), near]).astype(np.float32)
    found = beyond(fn, x)
    assert units(found, getattr(np, fn)(x.astype(np.longdouble))).max() <= PLAIN[fn]
    assert np.abs(found).max() <= 1.0
    assert (bits(beyond(fn, -x)) == bits(-found if fn == "sin" else found)).all()
    assert np.isnan(beyond(fn, np.array([np.inf, -np.inf, np.nan], np.float32))).all()


@pytest.mark.parametrize("fn", ["exp", "exp2", "tanh"])
def test_limits(fn: str) -> None:
    ends = (-1.0, 1.0) if fn == "tanh" else (0.0, math.inf)
    large = zip((-3e38, 3e38), ends, strict=True)
    cases = [*UNARY_CASES[fn], (math.nan, math.nan), *large]
    x, wanted = (np.array(column, np.float32) for column in zip(*cases, strict=True))
    assert bits(values(fn, x)).tolist() == bits(wanted).tolist()
