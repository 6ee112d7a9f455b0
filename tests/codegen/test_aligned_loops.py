"""Loops in loops that lanes reverse together: the gradients of a CPU, however long lanes wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.codegen import aligned_loops
from tests.codegen.on_emulated_gpu import emulated_gpu

ITEMS = 41


def triangle(x: Any, y: Any, w: Any, n: Any) -> Any:
    @qd.kernel
    def run():
        for i in x:
            v = x[i]
            for j in range(n[i]):
                for k in range(j):
                    v = qd.sin(v + 0.01 * k) * w[0] + 0.05 * x[i]
            y[i] = v

    return run


def downward(x: Any, y: Any, w: Any, n: Any) -> Any:
    """Inner loops of all kinds, with an array that all work items add to."""

    @qd.kernel
    def run():
        for i in x:
            v, s = x[i], 0.0
            for j in range(-3, n[i]):
                k = 0
                while k < (j + i) % 5 and v < 4.0:
                    v = 0.9 * qd.tanh(v) + w[k] * x[i]
                    k += 1
                if j % 3 == 0:
                    for m in range(j % 7):
                        s += 0.1 * qd.exp(-v * w[m])
                    v += 0.1 * s
            y[i] = v + s

    return run


def gradients(make: Callable[..., Any], trips: int) -> list[np.ndarray[Any, Any]]:
    """The adjoints of x and w."""
    x, y = (qd.field(qd.f64, ITEMS, needs_grad=True) for _ in "xy")
    w, n = qd.field(qd.f64, 8, needs_grad=True), qd.field(qd.i32, ITEMS)
    x.from_numpy(np.linspace(-1, 1, ITEMS))
    w.from_numpy(np.linspace(0.5, 0.9, 8))
    n.from_numpy((np.arange(ITEMS) * 17 % trips - 1).astype(np.int32))
    run = make(x, y, w, n)
    run()
    y.grad.fill(1.0)
    run.grad()
    return [x.grad.to_numpy(), w.grad.to_numpy()]


def expected(make: Callable[..., Any], trips: int) -> list[np.ndarray[Any, Any]]:
    qd.init(arch=qd.cpu, fast_math=False)
    return gradients(make, trips)


@pytest.fixture
def aligned(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The trip counts of the loops that are aligned."""
    found: list[Any] = []
    start = aligned_loops.start

    def see(code: Any, lower: Any, upper: Any) -> Any:
        found.append(upper)
        return start(code, lower, upper)

    monkeypatch.setattr(aligned_loops, "start", see)
    return found


@pytest.mark.parametrize("trips", [3, 20, 90])
@pytest.mark.parametrize("make", [triangle, downward])
def test_lanes_that_wait_as_long_as_they_may(
    make: Callable[..., Any], trips: int, aligned: list[Any]
) -> None:
    wanted = expected(make, trips)
    with emulated_gpu(total=1 << 28):
        qd.init(arch=qd.cuda, log_level="error", fast_math=False)
        found = gradients(make, trips)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-13)
    assert aligned
