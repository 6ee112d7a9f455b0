"""Short loops are unrolled where that lets the loop around them compute functions once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.interpreter import run
from octants.ir import ops
from octants.ir.cloning import copy_module
from octants.ir.core import Module
from octants.ir.verifier import verify
from octants.passes.loops.expose_invariants import expose_invariants
from tests.ir.parser import parse

BODY = """\
kernel @k
array @x: f32, 1, ndarray, () [primal]
array @w: f32, 1, field, () [primal (20,) ((0, 1, 0, 4),) ()]
array @n: i32, 0, argument, () [primal]
serial @k_0 {
  %0: i32 = constant<0>()
  %1: i32 = constant<TRIPS>()
  %2: i32 = load<@n, primal>()
  %3: f32 = constant<0.5>()
  %4: f32 = load<@x, primal>(%0)
  for(%0, %2) { (%5: i32):
    %6: f32 = load<@x, primal>(%5)
    %7: f32 = for(%0, %1, %6) { (%8: i32, %9: f32):
      %10: f32 = cast(%8)
      %11: f32 = load<@w, primal>(%8)
      REST
      %14: f32 = binary<mul>(%9, %13)
      yield(%14)
    }
    MORE
    store<@x, primal>(%7, %5)
    yield()
  }
  yield()
}
"""
OF_COUNTER = "%12: f32 = binary<mul>(%10, %4)\n      %13: f32 = unary<sin>(%12)"
OF_LOAD = "%12: f32 = binary<mul>(%11, %4)\n      %13: f32 = unary<sin>(%12)"


def result(module: Module, count: int) -> np.ndarray[Any, Any]:
    x = np.linspace(0.2, 1.7, 5).astype(np.float32)
    w = np.linspace(-1, 2, 20).astype(np.float32)
    run(module, {"x": x, "w": w, "n": np.array(count, np.int32)})
    return x


def loops(rest: str, trips: int = 3, more: str = "") -> tuple[int, int]:
    """The loops that remain, and the sines in the outer one; results must stay the same."""
    text = BODY.replace("TRIPS", str(trips)).replace("REST", rest).replace("MORE", more)
    module = parse(text)
    before = copy_module(module)
    expose_invariants(module)
    verify(module)
    for count in (0, 1, 5):
        found = [result(each, count) for each in (before, module)]
        assert found[0].tobytes() == found[1].tobytes()
    left = [op for op in module.walk() if isinstance(op, ops.For)]
    inside = [op for loop in left for op in loop.body.walk()]
    return len(left), sum(isinstance(op, ops.Unary) for op in inside)


@pytest.mark.parametrize("rest", [OF_COUNTER, OF_LOAD])
def test_functions_of_the_counter(rest: str) -> None:
    assert loops(rest) == (1, 0)


def test_what_stays_a_loop() -> None:
    assert loops(OF_COUNTER, trips=16)[0] == 1
    assert loops(OF_COUNTER, trips=17)[0] == 2
    for kept in ("%13: f32 = binary<mul>(%10, %4)", OF_COUNTER.replace("%4", "%6")):
        assert loops(kept)[0] == 2
    write = "store<@w, primal>(%7, %0)"
    assert loops(OF_LOAD, more=write)[0] == 2
    assert loops(OF_COUNTER, more=write)[0] == 1


@pytest.fixture
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, default_fp=qd.f64, log_level="error")
    yield
    qd.reset()


@pytest.mark.usefixtures("runtime")
def test_features_and_their_gradients() -> None:
    count, units, features = 50, 6, 4
    x, y = (qd.field(qd.f64, shape=count, needs_grad=True) for _ in "xy")
    weights = qd.field(qd.f64, shape=(units, features), needs_grad=True)

    @qd.kernel
    def network():
        for i in x:
            total = 0.0
            for h in range(units):
                s = 0.0
                for k in range(features):
                    s += weights[h, k] * qd.sin((k + 1) * x[i])
                total += qd.tanh(s)
            y[i] = total

    rng = np.random.default_rng(4)
    points, matrix = rng.uniform(-2, 2, count), rng.uniform(-1, 1, (units, features))
    x.from_numpy(points)
    weights.from_numpy(matrix)
    y.grad.fill(1.0)
    network()
    network.grad()
    k = np.arange(1, features + 1)
    waves = np.sin(k * points[:, None])
    active = np.tanh(waves @ matrix.T)
    slopes = 1 - active**2
    np.testing.assert_allclose(y.to_numpy(), active.sum(1), rtol=1e-12)
    np.testing.assert_allclose(weights.grad.to_numpy(), slopes.T @ waves, rtol=1e-10, atol=1e-12)
    steep = k * np.cos(k * points[:, None])
    np.testing.assert_allclose(x.grad.to_numpy(), (slopes @ matrix * steep).sum(1), rtol=1e-10)
