"""Sines and cosines in loops whose angles are large at times: exact, with exact gradients."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import octants as qd
from octants.mathlib.fast_by_estimates import FAR
from tests.mathlib import bounds
from tests.mathlib.compiled_functions import units
from tests.vulkan import compiled


@pytest.fixture(autouse=True)
def vulkan() -> Iterator[None]:
    compiled.device()
    yield
    qd.reset()


@pytest.mark.parametrize("fast_math", [False, True])
@pytest.mark.parametrize("fn", ["sin", "cos"])
def test_they_are_as_exact_as_ever(fn: str, fast_math: bool) -> None:
    qd.init(arch=qd.vulkan, offline_cache=False, fast_math=fast_math)
    x, y = (qd.field(qd.f32, shape=(4, 3000)) for _ in "xy")
    wave = getattr(qd, fn)

    @qd.kernel
    def each():
        for i in range(3000):
            last = 0.0
            for k in range(8):
                last = wave(x[k % 4, i])
                if k >= 4:
                    y[k - 4, i] = last

    @qd.kernel
    def last_of():
        for i in range(3000):
            for j in qd.static(range(4)):
                last, sign = 0.0, 1.0
                for _ in range(9):
                    last = wave(x[j, i] * sign)
                    sign = -sign
                y[j, i] = last

    rng = np.random.default_rng(0)
    angles = rng.uniform(-1, 1, (4, 3000)) * np.array([10.0, 6100.0, 1e6, 1e30])[:, None]
    angles = angles.astype(np.float32)
    x.from_numpy(angles)
    exact = getattr(np, fn)(angles[:3].astype(np.longdouble)).astype(np.float64)
    bound = bounds.PLAIN[fn] if fast_math else bounds.BOUNDS[fn][0]
    is_ours = np.full(exact.shape, True)
    if fast_math and "estimates" in compiled.device().hardware.features:
        is_ours = np.abs(angles[:3]) >= FAR  # others: see test_estimates
    for kernel in (each, last_of):
        y.fill(0)
        kernel()
        assert units(y.to_numpy()[:3][is_ours], exact[is_ours]).max() <= bound
        assert 0.9 < np.abs(y.to_numpy()[3]).max() <= 1.0


def test_gradients_through_huge_angles_are_slopes() -> None:
    qd.init(arch=qd.vulkan, offline_cache=False, default_fp=qd.f64)
    x = qd.field(qd.f64, shape=40, needs_grad=True)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)

    @qd.kernel
    def run():
        for i in x:
            v = x[i]
            for k in range(12):
                v = 1.2 * qd.sin(v + (3e6 if k % 9 == i % 9 else 0.0)) + 0.3 * v
            loss[None] += v * v

    def value(at: np.ndarray) -> float:
        x.from_numpy(at)
        loss[None] = 0.0
        run()
        return float(loss[None])

    start, step = np.linspace(-2, 2, 40), 1e-5
    value(start)
    loss.grad[None] = 1.0
    run.grad()
    found = x.grad.to_numpy()
    assert np.abs(found).max() > 0.01
    for k in range(0, 40, 3):
        aside = np.zeros(40)
        aside[k] = step
        slope = (value(start + aside) - value(start - aside)) / (2 * step)
        assert found[k] == pytest.approx(slope, rel=1e-4, abs=1e-5)
