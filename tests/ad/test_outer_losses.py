"""Tapes whose loss another library computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import octants as qd

vec = qd.types.ndarray(qd.f64, 1)
X = np.array([0.5, 2.0, -1.5])


@qd.kernel
def squares(x: vec, y: vec):
    for i in x:
        y[i] = x[i] ** 2


def torch_loss(y: Any, weight: float) -> Any:
    torch = pytest.importorskip("torch")
    given = torch.tensor(weight, dtype=torch.float64, requires_grad=True)
    made = qd.torch.loss(lambda y: given * (y - 1.0).square().sum(), y)
    return made, lambda: given.grad.item()


def jax_loss(y: Any, weight: float) -> Any:
    pytest.importorskip("jax")
    return qd.jax.loss(lambda y: weight * ((y - 1.0) ** 2).sum(), y), None


@pytest.mark.parametrize("make", [torch_loss, jax_loss])
def test_a_loss_of_another_library(make: Any) -> None:
    x, y = (qd.ndarray(qd.f64, 3, needs_grad=True) for _ in range(2))
    x.from_numpy(X)
    loss, weight_gradient = make(y, 3.0)
    for factor in (1.0, 2.0):  # again, at another point
        x.from_numpy(factor * X)
        with qd.ad.Tape(loss=loss):
            squares(x, y)
        z = (factor * X) ** 2
        assert loss.number == pytest.approx(3 * np.sum((z - 1) ** 2), rel=1e-6)
        np.testing.assert_allclose(x.grad.to_numpy(), 3 * 2 * (z - 1) * 2 * factor * X, rtol=1e-6)
        if weight_gradient is not None and factor == 1.0:
            assert weight_gradient() == pytest.approx(np.sum((z - 1) ** 2))


def test_beside_other_losses_and_a_check() -> None:
    pytest.importorskip("torch")
    x, y = (qd.ndarray(qd.f64, 3, needs_grad=True) for _ in range(2))
    total = qd.field(qd.f64, (), needs_grad=True)
    x.from_numpy(X)

    @qd.kernel
    def add_up(y: vec):
        for i in y:
            total[None] += y[i]

    loss = qd.torch.loss(lambda y: y.sin().sum(), y)
    with qd.ad.Tape(loss=[loss, total], grad_check=[x]):
        squares(x, y)
        add_up(y)
    np.testing.assert_allclose(x.grad.to_numpy(), (np.cos(X**2) + 1) * 2 * X)


def test_mistakes() -> None:
    pytest.importorskip("torch")
    with pytest.raises(qd.OctantsRuntimeError, match="has no gradient"):
        qd.torch.loss(lambda y: y.sum(), qd.ndarray(qd.f64, 3))
    with pytest.raises(qd.OctantsRuntimeError, match="not of fields"):
        qd.torch.loss(lambda y: y.sum(), X)
    y = qd.ndarray(qd.f64, 3, needs_grad=True)
    with pytest.raises(qd.OctantsValueError, match="scale the loss"):
        qd.ad.Tape(loss=qd.torch.loss(lambda y: y.sum(), y), seed=2.0)
