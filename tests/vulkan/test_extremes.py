"""Minima and maxima of f32, for which devices have instructions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.codegen.spirv.compile import compile_module
from octants.codegen.spirv.opcodes import Ext
from tests.ir.parser import parse
from tests.vulkan import compiled, disassembly

NUMBERS = (0.0, -0.0, 1.0, -1.5, 1e-30, 3e38, np.inf, -np.inf, np.nan)


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    yield
    qd.reset()


def extremes(kind: Any, x: Any, y: Any) -> tuple[Any, Any, Any]:
    """The minima and the maxima of pairs, and the minima with a constant."""

    @qd.kernel
    def choose(
        x: qd.types.ndarray(kind, ndim=1),
        y: qd.types.ndarray(kind, ndim=1),
        low: qd.types.ndarray(kind, ndim=1),
        high: qd.types.ndarray(kind, ndim=1),
        capped: qd.types.ndarray(kind, ndim=1),
    ):
        for i in x:
            low[i] = qd.min(x[i], y[i])
            high[i] = qd.max(x[i], y[i])
            capped[i] = qd.min(x[i], qd.cast(0.5, kind))

    low, high, capped = (np.empty_like(x) for _ in range(3))
    choose(x, y, low, high, capped)
    return low, high, capped


@pytest.mark.parametrize("fast_math", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_win_over_nans(dtype: Any, fast_math: bool) -> None:
    qd.init(arch=qd.vulkan, fast_math=fast_math, log_level="error")
    x, y = np.array(list(itertools.product(NUMBERS, NUMBERS)), dtype).T.copy()
    kind = qd.f32 if dtype is np.float32 else qd.f64
    low, high, capped = extremes(kind, x, y)
    np.testing.assert_array_equal(low, np.fmin(x, y))
    np.testing.assert_array_equal(high, np.fmax(x, y))
    np.testing.assert_array_equal(capped, np.fmin(x, 0.5))
    if not fast_math:  # the first of two zeros
        both = (x == 0) & (y == 0)
        for found in (low, high):
            np.testing.assert_array_equal(np.signbit(found[both]), np.signbit(x[both]))


TEXT = """\
kernel @k
array @x: f32, 0, field, () [primal]
serial @k_0 {
  %0: f32 = load<@x, primal>()
  %1: f32 = constant<0.5>()
  %2: f32 = binary<min>(%0, %1)
  %3: f32 = binary<max>(%2, %0)
  store<@x, primal>(%3)
  yield()
}
"""


@pytest.mark.parametrize("fast_math", [True, False])
def test_one_instruction_with_fast_math(fast_math: bool) -> None:
    target = compiled.device().hardware.target
    code = compile_module(parse(TEXT), target, fast_math=fast_math).code
    text = disassembly.to_text(code)
    used = [line.split()[5] for line in text.splitlines() if " = ext_inst " in line]
    assert used == ([str(int(Ext.N_MIN)), str(int(Ext.N_MAX))] if fast_math else [])
    assert (" = select " in text) != fast_math


def test_gradients_are_slopes() -> None:
    qd.init(arch=qd.vulkan, log_level="error")
    x = qd.field(qd.f32, 4, needs_grad=True)
    loss = qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def add_up():
        for i in x:
            loss[None] += qd.max(x[i], 0.0) + qd.min(x[i], 0.25)

    x.from_numpy(np.array([-1.0, 0.1, 0.5, 2.0], np.float32))
    with qd.ad.Tape(loss=loss):
        add_up()
    np.testing.assert_array_equal(x.grad.to_numpy(), [1.0, 2.0, 1.0, 1.0])
