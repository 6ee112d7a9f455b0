"""A square has one derivative, not two that are added up."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import octants as qd


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    yield
    qd.reset()


@pytest.mark.parametrize("fast_math", [False, True])
def test_a_norm(fast_math: bool) -> None:
    """Three components: their adjoints are a product each, of twice the one of the square."""
    qd.init(arch=qd.cpu, default_fp=qd.f64, fast_math=fast_math, log_level="error")
    x = qd.field(qd.f64, (5, 3), needs_grad=True, needs_dual=True)
    y = qd.field(qd.f64, 5, needs_grad=True, needs_dual=True)
    values = np.random.default_rng(0).normal(size=(5, 3))
    x.from_numpy(values)

    @qd.kernel
    def squares():
        for i in range(5):
            y[i] = x[i, 0] ** 2 + x[i, 1] * x[i, 1] + (x[i, 2] ** 2) ** 2

    squares()
    y.grad.from_numpy(np.arange(1.0, 6.0))
    squares.grad()
    slopes = 2 * values
    slopes[:, 2] = 4 * values[:, 2] ** 3
    np.testing.assert_allclose(x.grad.to_numpy(), slopes * np.arange(1.0, 6.0)[:, None], rtol=1e-14)
    text = squares.inspect(mode="reverse").stages["reverse"]
    backward = text[text.index("load<@y, adjoint>") :]
    assert backward.count("binary<mul>") == 4
    assert "fma" not in backward
    direction = np.random.default_rng(1).normal(size=(5, 3))
    with qd.ad.FwdMode(loss=y, param=x, seed=direction.ravel().tolist()):
        squares()
    np.testing.assert_allclose(y.dual.to_numpy(), (slopes * direction).sum(axis=1), rtol=1e-13)
