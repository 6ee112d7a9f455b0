"""Quotients of f32 by an instruction, where the machine has one and nothing depends on the bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.ir.printer import to_text
from octants.passes.arithmetic.approximate_quotients import approximate_quotients
from tests.ir.parser import parse
from tests.runtime.cuda.whole import Gpu
from tests.runtime.cuda.whole import gpu as gpu


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    yield
    qd.reset()


BODY = """\
kernel @k
array @x: f32, 1, ndarray, () [primal]
array @y: f64, 1, ndarray, () [primal]
serial @k_0 {
  %0: i32 = constant<0>()
  %1: f32 = load<@x, primal>(%0)
  %2: f32 = unary<exp>(%1)
  %3: f32 = binary<div>(%1, %2)
  %4: f64 = load<@y, primal>(%0)
  %5: f64 = binary<div>(%4, %4)
  store<@y, primal>(%5, %0)
  REST
}
"""


def approximated(rest: str) -> str:
    module = parse(BODY.replace("REST", rest))
    approximate_quotients(module)
    return to_text(module)


def test_only_f32_that_decides_nothing() -> None:
    assert approximated("store<@x, primal>(%3, %0)\n  yield()").count("approximate_div") == 1
    for rest in (
        "%6: u1 = compare<lt>(%3, %1)",
        "%6: f32 = unary<floor>(%3)",
        "%6: i32 = cast(%3)",
        "%6: f32 = binary<add>(%3, %1)\n  %7: i32 = cast(%6)",
    ):
        assert "approximate_div" not in approximated(rest + "\n  yield()"), rest


def kernel_of(x: Any, y: Any) -> Any:
    @qd.kernel
    def quotients():
        for i in x:
            v = x[i]
            for _ in range(3):
                v = (v + 2.0) / (v * v + 3.0)
            cell = qd.floor(x[i] / (x[i] * 0.3 + 0.5))
            y[i] = v + cell

    return quotients


@pytest.mark.parametrize("fast_math", [True, False])
def test_instructions_on_cuda(gpu: Gpu, fast_math: bool) -> None:
    gpu.init(fast_math=fast_math)
    kernel = kernel_of(*(qd.field(qd.f32, 4, needs_grad=True) for _ in range(2)))
    for mode in ("primal", "reverse"):
        text = kernel.inspect(mode=mode).assembly
        assert ("div.full.f32" in text) == fast_math
        assert ("div.rn.f32" in text) == (mode == "primal" or not fast_math)


def test_values_and_slopes() -> None:
    """On any machine; NVIDIA's GPUs approximate quotients."""
    qd.init(arch=qd.cpu, log_level="error")
    x, y = (qd.field(qd.f32, 1000, needs_grad=True) for _ in range(2))
    values = np.random.default_rng(0).uniform(-3, 3, 1000).astype(np.float32)
    x.from_numpy(values)
    y.grad.fill(1.0)
    kernel = kernel_of(x, y)
    kernel()
    kernel.grad()
    wide = values.astype(np.float64)
    v, slope = wide, np.ones(1000)
    for _ in range(3):
        divisor = v * v + 3.0
        slope *= (divisor - (v + 2.0) * 2 * v) / divisor**2
        v = (v + 2.0) / divisor
    cell = np.floor(values / (values * np.float32(0.3) + np.float32(0.5)))
    is_sure = np.abs(wide / (wide * 0.3 + 0.5) - np.rint(wide / (wide * 0.3 + 0.5))) > 1e-4
    assert np.allclose(y.to_numpy()[is_sure], (v + cell)[is_sure], rtol=1e-5, atol=1e-5)
    assert np.allclose(x.grad.to_numpy(), slope, rtol=1e-4, atol=1e-5)
