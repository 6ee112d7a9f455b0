"""Gradients of products with infinities, where an adjoint is zero: as if there were no product."""

from __future__ import annotations

import numpy as np
import pytest

import octants as qd

ITEMS = 70  # two warps, and some more work items


@pytest.mark.parametrize("length", [16, 33, 64])
def test_infinities_that_nothing_depends_on(length: int) -> None:
    """Threads that add up products for all of them find those that are not numbers."""
    qd.init(arch=qd.cpu, offline_cache=False, log_level="error")
    w = qd.field(qd.f32, (2, length, length), needs_grad=True)
    x = qd.field(qd.f32, (ITEMS, length), needs_grad=True)
    y = qd.field(qd.f32, (ITEMS, length), needs_grad=True)

    @qd.kernel
    def multiply():
        for n in range(ITEMS):
            h = qd.Vector.zero(qd.f32, length)
            for j in range(length):
                h[j] = x[n, j]
            o = qd.Vector.zero(qd.f32, length)
            for i in range(length):
                s, t = 0.0, 0.0
                for j in range(length):
                    s += w[0, i, j] * h[j]
                    t += w[1, i, j] * h[j]
                o[i] = s + 2.0 * t
            for i in range(length):
                y[n, i] = o[i]

    random = np.random.default_rng(4)
    weights, inputs = random.normal(size=(2, length, length)), random.normal(size=(ITEMS, length))
    seeds = random.normal(size=(ITEMS, length))
    seeds[:, 5], seeds[33], seeds[:, 9] = 0.0, 0.0, np.where(np.arange(ITEMS) % 3, seeds[:, 9], 0.0)
    for is_finite in (True, False):
        if not is_finite:
            weights[1, 5, 2], weights[0, 5, 7] = np.inf, np.nan  # a row with zero adjoints
            inputs[33, 3], inputs[33, 8] = -np.inf, np.nan  # a work item with zero adjoints
        w.from_numpy(weights.astype(np.float32))
        x.from_numpy(inputs.astype(np.float32))
        w.grad.fill(0.0)
        x.grad.fill(0.0)
        multiply()
        y.grad.from_numpy(seeds.astype(np.float32))
        multiply.grad()
        rows = np.where(np.arange(length) == 5, 0.0, 1.0)[:, None]
        both = np.where(rows > 0.0, weights[0] + 2.0 * weights[1], 0.0)
        used = np.where(np.arange(ITEMS) == 33, 0.0, 1.0)[:, None]
        of_weights = seeds.T @ np.where(used > 0.0, inputs, 0.0)
        np.testing.assert_allclose(x.grad.to_numpy(), seeds @ both, rtol=1e-4, atol=1e-4)
        wanted = np.stack([of_weights, 2.0 * of_weights])
        np.testing.assert_allclose(w.grad.to_numpy(), wanted, rtol=1e-4, atol=1e-4)
