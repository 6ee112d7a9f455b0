"""Derivatives that have a divisor in common are divided by its reciprocal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import driver, options
from octants.ir.printer import to_text
from octants.passes.arithmetic.share_reciprocals import share_reciprocals
from tests.ir.parser import parse


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    yield
    qd.reset()


class Bodies:
    def __init__(self) -> None:
        self.x = qd.field(qd.f64, 30, needs_grad=True, needs_dual=True)
        self.y = qd.field(qd.f64, 10, needs_grad=True, needs_dual=True)
        self.x.from_numpy(np.random.default_rng(0).uniform(0.5, 2, 30))

    @qd.kernel
    def normalise(self):
        for i in self.y:
            v = qd.Vector([self.x[3 * i], self.x[3 * i + 1], self.x[3 * i + 2]])
            for _ in range(3):
                v = v / v.norm() + 0.25 / (1.0 + v[0])
            self.y[i] = v[0] * v[1] / v[2]


def start(fast_math: bool) -> Bodies:
    qd.init(arch=qd.cpu, default_fp=qd.f64, fast_math=fast_math, log_level="error")
    return Bodies()


def divisions(bodies: Any) -> int:
    text: str = bodies.normalise.inspect(mode="reverse").stages["finish"]
    return text.count("binary<div>")


def test_a_vector_is_divided_once() -> None:
    exact = divisions(start(fast_math=False))
    bodies = start(fast_math=True)
    if not driver.capabilities(options.current()).contracts:
        pytest.skip("fast_math changes nothing on this machine")
    assert divisions(bodies) <= exact - 4


@pytest.mark.parametrize("fast_math", [False, True])
def test_gradients_and_tangents_are_slopes(fast_math: bool) -> None:
    bodies = start(fast_math)
    values, direction = bodies.x.to_numpy(), np.random.default_rng(1).uniform(-1, 1, 30)
    ends = []
    for sign in (1, -1):
        bodies.x.from_numpy(values + sign * 1e-6 * direction)
        bodies.normalise()
        ends.append(bodies.y.to_numpy())
    slope = (ends[0] - ends[1]) / 2e-6
    bodies.x.from_numpy(values)
    bodies.normalise()
    bodies.y.grad.fill(1.0)
    bodies.normalise.grad()
    found = bodies.x.grad.to_numpy() @ direction
    np.testing.assert_allclose(found, slope.sum(), rtol=1e-6)
    with qd.ad.FwdMode(loss=bodies.y, param=bodies.x, seed=direction.tolist()):
        bodies.normalise()
    np.testing.assert_allclose(bodies.y.dual.to_numpy(), slope, rtol=1e-6, atol=1e-9)


PRIMAL = """\
kernel @k
array @x: f32, 1, ndarray, () [primal, adjoint]
serial @k_0 {
  %0: i32 = constant<0>()
  %1: f32 = load<@x, primal>(%0)
  %2: f32 = load<@x, adjoint>(%0)
  %3: f32 = binary<div>(%1, %1)
  %4: f32 = binary<div>(%3, %1)
  store<@x, primal>(%4, %0)
  %5: f32 = binary<div>(%2, %1)
  %6: f32 = binary<div>(%1, %2)
  %7: f32 = binary<div>(%2, %2)
  %8: f32 = binary<add>(%5, %6)
  %9: f32 = binary<add>(%8, %7)
  store<@x, adjoint>(%9, %0)
  yield()
}
"""


def test_values_of_the_program_are_divided_as_ever() -> None:
    module = parse(PRIMAL)
    share_reciprocals(module)
    assert to_text(module) == PRIMAL
