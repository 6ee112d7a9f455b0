"""Derivatives of what has derivatives of its own, of derivatives, and tapes in tapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import octants as qd

vec = qd.types.ndarray(qd.f64, 1)
one = qd.types.ndarray(qd.f64, 0)
X = np.array([1.0, 2.0])
OUT = {"loss": ()}


@qd.kernel
def cubes(x: vec, loss: one):
    for i in x:
        loss[None] += x[i] ** 3


@qd.kernel
def stopped(x: vec, y: vec, loss: one):
    for i in x:
        y[i] = x[i] ** 2
    for i in x:
        qd.stop_grad(y)
        loss[None] += y[i] * x[i] ** 2


@qd.kernel
def balance(x: vec, load: vec, r: vec):
    for i in x:
        r[i] = x[i] + x[i] ** 3 - load[i]


def solve(x: Any, load: Any) -> None:
    x.from_numpy(np.array([np.roots([1.0, 0.0, 1.0, -f])[-1].real for f in load.to_numpy()]))


settle = qd.ad.implicit(solve, balance)


@qd.ad.grad_replaced
def replaced(x: Any, loss: Any) -> None:
    cubes(x, loss)


@qd.ad.grad_for(replaced)
def replaced_grad(x: Any, loss: Any) -> None:
    cubes.grad(x, loss)


def with_stop(x: Any, loss: Any) -> None:
    stopped(x, qd.ndarray(qd.f64, 2, needs_grad=True), loss)


def with_implicit(load: Any, loss: Any) -> None:
    x = qd.ndarray(qd.f64, 2, needs_grad=True)
    settle(x, load)
    cubes(x, loss)


def with_replaced(x: Any, loss: Any) -> None:
    replaced(x, loss)


def with_no_grad(x: Any, loss: Any) -> None:
    qd.ad.no_grad(cubes)(x, loss)
    cubes(x, loss)


def with_product(x: Any, loss: Any) -> None:
    """The sum of a product of a Hessian: its derivative would be a third one."""
    _, _, found = qd.ad.hvp(cubes, out=OUT)(np.array(X), direction={"x": np.ones(2)})
    loss.from_numpy(np.array(found["x"].sum()))


def test_products_stop_where_gradients_do() -> None:
    """The stopped values are constants of the gradient, too: y x ** 2 has the Hessian 2 y."""
    _, gradients, products = qd.ad.hvp(with_stop, out=OUT)(X, direction={"x": np.ones(2)})
    np.testing.assert_allclose(gradients["x"], 2.0 * X**3)
    np.testing.assert_allclose(products["x"], 2.0 * X**2)


def test_products_leave_out_what_has_no_gradient() -> None:
    loss, _, products = qd.ad.hvp(with_no_grad, out=OUT)(X, direction={"x": np.ones(2)})
    assert loss == 18.0
    np.testing.assert_allclose(products["x"], 6.0 * X)


def test_gradients_of_their_own() -> None:
    _, found = qd.ad.value_and_grad(with_replaced, out=OUT)(X)
    np.testing.assert_allclose(found["x"], 3.0 * X**2)
    _, found = qd.ad.value_and_grad(with_implicit, out=OUT)(np.array([2.0, 10.0]))
    np.testing.assert_allclose(found["load"], [0.75, 12.0 / 13.0])


MISTAKES: dict[str, tuple[str, Callable[..., Any]]] = {
    "a product of a gradient of its own": ("OCT354", with_replaced),
    "a product of the solution of an equation": ("OCT354", with_implicit),
    "a product of a product": ("OCT310", with_product),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_second_derivatives_that_there_are_not(name: str) -> None:
    code, function = MISTAKES[name]
    with pytest.raises(qd.OctantsRuntimeError, match=code):
        qd.ad.hvp(function, out=OUT)(X, direction={"load" if "sol" in name else "x": X})


@pytest.mark.parametrize(
    ("code", "function"),
    [("OCT364", with_replaced), ("OCT608", with_implicit), ("OCT310", with_product)],
)
def test_tangents_that_there_are_not(code: str, function: Any) -> None:
    name = "load" if function is with_implicit else "x"
    with pytest.raises(qd.OctantsRuntimeError, match=code):
        qd.ad.jvp(function, out=OUT)(X, tangents={name: X})


def test_tapes_and_forward_mode_are_not_nested() -> None:
    x = qd.field(qd.f64, shape=2, needs_grad=True, needs_dual=True)
    loss = qd.field(qd.f64, shape=(), needs_grad=True, needs_dual=True)

    @qd.kernel
    def total():
        for i in x:
            loss[None] += x[i] ** 3

    def tape() -> Any:
        return qd.ad.Tape(loss=loss)

    def forward() -> Any:
        return qd.ad.FwdMode(loss=loss, param=x, seed=[1.0, 0.0])

    x.from_numpy(X)
    for outer in (tape, forward):
        for inner in (tape, forward):
            with outer(), pytest.raises(qd.OctantsRuntimeError, match="OCT310"), inner():
                total()
    with tape():
        total()
    np.testing.assert_allclose(x.grad.to_numpy(), 3.0 * X**2)
