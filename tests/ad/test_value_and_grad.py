"""Losses and gradients by numpy arrays, for optimisers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.ad.array_function_kernels import (
    WELL_GRADIENT,
    X,
    dense,
    lengths,
    powers,
    returned_well,
    well,
)


@pytest.mark.parametrize("kernel", [well, returned_well])
def test_the_loss_is_an_output_or_what_the_kernel_returns(kernel: Any) -> None:
    out = {"loss": ()} if kernel is well else None
    loss, gradients = qd.ad.value_and_grad(kernel, out=out)(X, 3.0)
    assert isinstance(loss, float)
    assert loss == pytest.approx(3 * np.sum((X**2 - 1) ** 2))
    np.testing.assert_allclose(gradients["x"], 3 * WELL_GRADIENT, rtol=1e-12)
    assert gradients["depth"] == pytest.approx(np.sum((X**2 - 1) ** 2))


def test_only_what_is_wanted_is_differentiated() -> None:
    _, gradients = qd.ad.value_and_grad(well, out={"loss": ()}, by="x")(X, depth=3.0)
    assert set(gradients) == {"x"}


def test_gradients_belong_to_the_caller() -> None:
    function = qd.ad.value_and_grad(well, out={"loss": ()}, by="x")
    found = [function(X, depth)[1]["x"] for depth in (3.0, 1.0)]
    qd.ad.clear_all_gradients()
    function(X, 2.0)
    for gradient, depth in zip(found, (3.0, 1.0), strict=True):
        np.testing.assert_allclose(gradient, depth * WELL_GRADIENT, rtol=1e-12)
        gradient += 1.0  # it can be written


def test_a_function_that_updates_its_argument_leaves_the_callers_alone() -> None:
    def loss_of_powers(x, times, loss):
        powers(x, times)
        well(x, 1.0, loss)

    start = np.array([1.1, 0.9])
    function = qd.ad.value_and_grad(loss_of_powers, out={"loss": ()}, inout="x")
    loss, gradients = function(start, 3)
    y = start**8
    assert loss == pytest.approx(np.sum((y**2 - 1) ** 2))
    np.testing.assert_allclose(gradients["x"], 4 * y * (y**2 - 1) * 8 * start**7, rtol=1e-12)
    assert start.tolist() == [1.1, 0.9]


def test_calls_do_not_add_up_and_leave_other_gradients_alone() -> None:
    other = qd.ndarray(qd.f64, 2, needs_grad=True)
    other.grad.fill(5.0)
    function = qd.ad.value_and_grad(well, out={"loss": ()})
    first, second = function(X, 1.0)[1]["x"], function(X, 1.0)[1]["x"]
    np.testing.assert_array_equal(first, second)
    assert other.grad.to_numpy().tolist() == [5, 5]


def test_values_pass_through_fields() -> None:
    between = qd.field(qd.f64, shape=3, needs_grad=True, needs_dual=True)

    @qd.kernel
    def forth(x: qd.types.ndarray()):
        for i in x:
            between[i] = 0.0
            between[i] += x[i] ** 2

    @qd.kernel
    def back(y: qd.types.ndarray(), loss: qd.types.ndarray()):
        for i in y:
            loss[None] += between[i] * y[i]

    def loss_of(x, y, loss):
        forth(x)
        back(y, loss)

    function = qd.ad.value_and_grad(loss_of, out={"loss": ()})
    for _ in range(3):
        between.grad.fill(7.0)
        gradients = function(X, X + 1)[1]
        np.testing.assert_allclose(gradients["x"], 2 * X * (X + 1), rtol=1e-15)
        np.testing.assert_allclose(gradients["y"], X**2, rtol=1e-15)


def test_arrays_that_are_not_row_major_or_cannot_be_written() -> None:
    x, w = np.arange(6.0).reshape(3, 2).T, np.arange(6.0).reshape(3, 2)
    x.setflags(write=False)

    def summed(x, w, y, loss):
        dense(x, w, y)
        total(y, loss)

    out = {"y": lambda x, w: (x.shape[0], w.shape[1]), "loss": ()}
    with pytest.raises(qd.OctantsTypeError, match="one float, not"):
        qd.ad.value_and_grad(summed, out=out)(x, w)

    def loss_of(x, w, loss):
        y = qd.ndarray(qd.f64, (2, 2), needs_grad=True)
        dense(x, w, y)
        total(y, loss)

    loss, gradients = qd.ad.value_and_grad(loss_of, out={"loss": ()})(x, w)
    assert loss == pytest.approx((x @ w).sum())
    np.testing.assert_allclose(gradients["x"], np.tile(w.sum(1), (2, 1)))
    np.testing.assert_allclose(gradients["w"], np.tile(x.sum(0)[:, None], (1, 2)))


@qd.kernel
def total(y: qd.types.ndarray(ndim=2), loss: qd.types.ndarray(ndim=0)):
    for i, j in y:
        loss[None] += y[i, j]


def test_one_vector_for_an_optimiser() -> None:
    function = qd.ad.value_and_grad(well, out={"loss": ()})
    objective, start = function.flat(x=X.astype(np.float32), depth=3.0)
    assert start.tolist() == [*X, 3.0]
    loss, gradient = objective(start)
    assert gradient.dtype == np.float64
    assert loss == pytest.approx(3 * np.sum((X**2 - 1) ** 2), rel=1e-6)
    np.testing.assert_allclose(gradient[:3], 3 * WELL_GRADIENT, rtol=1e-6)
    taken = function.unflatten(start + 1, x=X.astype(np.float32), depth=3.0)
    assert taken["x"].dtype == np.float32
    assert taken["x"].tolist() == (X + 1).tolist()
    assert taken["depth"] == 4.0


def test_scipy_finds_the_minimum() -> None:
    optimize = pytest.importorskip("scipy.optimize")
    function = qd.ad.value_and_grad(well, out={"loss": ()}, by="x")
    objective, start = function.flat(X, 2.0)
    found = optimize.minimize(objective, start, jac=True)
    np.testing.assert_allclose(np.abs(found.x), 1.0, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: qd.ad.value_and_grad(well, out={"los": ()}), qd.OctantsTypeError, "`los` is no"),
        (lambda: qd.ad.value_and_grad(well, by="y"), qd.OctantsTypeError, "`y` is in `by`"),
        (
            lambda: qd.ad.value_and_grad(well, out={"loss": ()}, inout="loss"),
            qd.OctantsTypeError,
            "is in `out` and in `inout`",
        ),
        (
            lambda: qd.ad.value_and_grad(well, out={"loss": ()})(X),
            qd.OctantsCallError,
            "missing argument `depth`",
        ),
        (
            lambda: qd.ad.value_and_grad(well, out={"loss": ()})(X, 1.0, loss=X),
            qd.OctantsCallError,
            "is made by the call",
        ),
        (
            lambda: qd.ad.value_and_grad(well, out={"loss": "z"})(X, 1.0),
            qd.OctantsTypeError,
            "which is no array argument",
        ),
        (
            lambda: qd.ad.value_and_grad(well, out={"loss": (-1,)})(X, 1.0),
            qd.OctantsTypeError,
            "cannot have the shape",
        ),
        (
            lambda: qd.ad.value_and_grad(well, out={"loss": 3})(X, 1.0),
            qd.OctantsTypeError,
            "is one float, not",
        ),
        (
            lambda: qd.ad.value_and_grad(powers, inout="x")(X, 1),
            qd.OctantsTypeError,
            "is one float, not nothing",
        ),
    ],
)
def test_mistakes(make: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        make()


def test_elements_can_be_vectors() -> None:
    def loss_of(v, loss):
        n, far = qd.ndarray(qd.f64, 2, needs_grad=True), qd.ndarray(qd.i32, 2)
        lengths(v, n, far)
        well(n, 1.0, loss)

    v = np.array([[3.0, 4.0, 0.0], [0.0, 0.0, 2.0]])
    # This parameter of a Python function has no annotation: its arrays are of numbers.
    with pytest.raises(qd.OctantsError):
        qd.ad.value_and_grad(loss_of, out={"loss": ()})(v)

    @qd.kernel
    def loss_of_lengths(
        v: qd.types.ndarray(qd.types.vector(3, qd.f64), 1), loss: qd.types.ndarray(qd.f64, 0)
    ):
        for i in v:
            loss[None] += v[i].norm()

    loss, gradients = qd.ad.value_and_grad(loss_of_lengths, out={"loss": ()})(v)
    assert loss == 7.0
    np.testing.assert_allclose(gradients["v"], v / [[5.0], [2.0]])


def test_a_python_function_states_that_elements_are_vectors() -> None:
    def loss_of(v: qd.types.ndarray(qd.types.vector(3, qd.f64), 1), loss: qd.types.ndarray()):
        n, far = qd.ndarray(qd.f64, 2, needs_grad=True), qd.ndarray(qd.i32, 2)
        lengths(v, n, far)
        well(n, 1.0, loss)

    v = np.array([[3.0, 4.0, 0.0], [0.0, 0.0, 2.0]])
    n = np.array([[5.0], [2.0]])
    loss, gradients = qd.ad.value_and_grad(loss_of, out={"loss": ()})(v)
    assert loss == np.sum((n**2 - 1) ** 2)
    np.testing.assert_allclose(gradients["v"], 4 * v * (n**2 - 1), rtol=1e-12)
    _, tangent = qd.ad.jvp(loss_of, out={"loss": ()})(v, tangents={"v": v})
    np.testing.assert_allclose(tangent, np.sum(gradients["v"] * v), rtol=1e-12)


def test_several_threads() -> None:
    """JAX and PyTorch evaluate the functions of several devices in several threads."""
    x = qd.types.ndarray(qd.f64, 1)

    @qd.kernel
    def cubes(x: x, loss: qd.types.ndarray(qd.f64, 0)):
        for i in x:
            loss[None] += x[i] ** 3

    function = qd.ad.value_and_grad(cubes, out={"loss": ()})
    points = [np.full(3, 1.0 + k) for k in range(8)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            for point, (loss, found) in zip(points, pool.map(function, points), strict=True):
                assert loss == (point**3).sum()
                np.testing.assert_allclose(found["x"], 3.0 * point**2)
