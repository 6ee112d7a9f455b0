"""Second derivatives, against central differences of the gradient, and against JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.ad.array_function_kernels import X, returned_well, well

Array = Any
vec = qd.types.ndarray(qd.f64, 1)
one = qd.types.ndarray(qd.f64, 0)


@qd.kernel
def recorded_loop(x: vec, loss: one):
    for i in x:
        v, total = x[i], 0.0
        for k in range(12):
            v = qd.sin(v) + 0.1 * v * k
            total += v * v
        loss[None] += total


@qd.kernel
def nested_loops(x: vec, loss: one):
    for i in x:
        v = x[i]
        for k in range(4):
            w = v
            for j in range(k + 2):
                w = qd.tanh(w + 0.3 * v) * x[j % x.shape[0]]
            v += 0.5 * w
        loss[None] += qd.exp(0.1 * v)


@qd.kernel
def while_and_break(x: vec, loss: one):
    for i in x:
        v, k = x[i] * x[i] + 1.1, 0
        while v < 50.0:
            v = v * (1.0 + 0.2 * x[i]) + v * v * 0.1
            k += 1
            if k > 6:
                break
        for j in range(10):
            if j * 0.3 > x[i]:
                break
            v = v + qd.cos(v * 0.1)
        loss[None] += qd.log(v)


@qd.kernel
def branches(x: vec, loss: one):
    for i in x:
        if x[i] > 0.0:
            loss[None] += x[i] ** 3 + qd.sqrt(x[i])
        elif x[i] > -1.0:
            loss[None] += qd.exp(x[i]) * x[(i + 1) % 4]
        else:
            loss[None] -= qd.abs(x[i]) ** 2.5 + qd.atan2(x[i], x[(i + 1) % 4])


@qd.kernel
def vectors_and_matrices(x: vec, loss: one):
    for _ in range(1):
        a = qd.Vector([x[0], x[1], x[2]])
        m = qd.Matrix([[x[0], 1.0, x[3]], [0.5, x[1], 2.0], [x[2], 0.3, 1.5]])
        for _ in range(3):
            a = (m @ a).normalized() + 0.1 * a.cross(qd.Vector([1.0, x[3], 0.0]))
        loss[None] += a.norm() + m.determinant() * (m.inverse() @ a)[1] + m.trace()


@qd.kernel
def scatter(x: vec, loss: one):
    total = 0.0
    for i in x:
        qd.atomic_add(total, x[i] * x[(i + 1) % 4])
    for i in x:
        loss[None] += qd.sin(total * x[i])


@qd.kernel
def extremes(x: vec, loss: one):
    largest = -100.0
    for i in x:
        qd.atomic_max(largest, x[i] ** 2 * x[(i + 2) % 4])
    for _ in range(1):
        loss[None] += largest**2 + qd.min(x[0] * x[1], x[2] ** 3) + qd.max(x[3], 0.0) ** 2


@qd.kernel
def dynamic_components(x: vec, loss: one):
    for i in x:
        v = qd.Vector([x[i], x[i] ** 2, 1.0, 2.0])
        for k in range(6):
            v[(k + i) % 4] = v[k % 4] * v[(k + 1) % 4] * 0.5 + 0.1
        loss[None] += v.sum()


@qd.kernel
def functions(x: vec, loss: one):
    for i in x:
        u = 0.4 * qd.sin(x[i])
        loss[None] += qd.asin(u) * qd.acos(u) + qd.tan(u) + qd.rsqrt(2.0 + u) + u / (1.0 + u * u)
        loss[None] += (2.0 + u) ** (1.5 + u) + (x[i] % 0.77) ** 2 + qd.log(2.0 + u) * qd.exp(u)


@qd.kernel
def in_place(x: vec, loss: one):
    for i in x:
        x[i] = x[i] * x[i] + 0.1 * x[i]
    for i in x:
        x[i] = qd.sin(x[i])
    for i in x:
        loss[None] += x[i] * x[(i + 1) % 4]


POINT = np.array([0.7, -0.6, 1.3, -1.4])
QUICK = [while_and_break, scatter]
SLOW = [
    recorded_loop,
    nested_loops,
    branches,
    vectors_and_matrices,
    extremes,
    dynamic_components,
    functions,
    in_place,
]
PROGRAMS = [*QUICK, *(pytest.param(kernel, marks=pytest.mark.slow) for kernel in SLOW)]


def check_hessian(
    function: Callable[..., Any], point: Array, level: float = 1e-7, **how: Any
) -> None:
    """Compare products with unit vectors with central differences of the gradient."""
    gradient_of = qd.ad.value_and_grad(function, out={"loss": ()}, by="x", **how)
    product_of = qd.ad.hvp(function, out={"loss": ()}, by="x", **how)
    step = 1e-5
    value, gradients = gradient_of(point)
    for k in range(point.size):
        direction = np.zeros_like(point)
        direction.flat[k] = 1.0
        found, by_tangents, products = product_of(point, direction={"x": direction})
        ahead = gradient_of(point + step * direction)[1]["x"]
        behind = gradient_of(point - step * direction)[1]["x"]
        expected = (ahead - behind) / (2 * step)
        np.testing.assert_allclose(found, value, rtol=1e-14)
        np.testing.assert_allclose(by_tangents["x"], gradients["x"], rtol=1e-10, atol=1e-12)
        scale = 1.0 + np.abs(expected).max()
        np.testing.assert_allclose(products["x"], expected, rtol=level, atol=level * scale)


@pytest.mark.parametrize("kernel", PROGRAMS, ids=str)
def test_hessians_of_kernels(kernel: Any) -> None:
    how = {"inout": "x"} if kernel is in_place else {}
    check_hessian(kernel, POINT, **how)


@qd.kernel
def leap(x: vec, v: vec, force: vec):
    for i in x:
        v[i] += 0.1 * force[i]
        x[i] += 0.1 * v[i]


@qd.kernel
def pull(x: vec, force: vec):
    for i in x:
        force[i] -= qd.sin(x[i])
        qd.atomic_add(force[(i + 1) % 4], 0.2 * x[i] ** 2)


@qd.kernel
def measure(x: vec, v: vec, loss: one):
    for i in x:
        loss[None] += x[i] ** 2 + 0.5 * v[i] ** 2 * x[i]


def test_a_program_of_several_launches_that_overwrites_and_writes_by_host() -> None:
    force = qd.ndarray(qd.f64, 4, needs_grad=True)
    kept = qd.ndarray(qd.f64, 4, needs_grad=True)
    v = qd.field(qd.f64, 4, needs_grad=True)

    def flight(x, loss):
        speed = qd.ndarray(qd.f64, 4, needs_grad=True)
        speed.from_numpy(np.array([1.0, 0.0, -1.0, 0.5]))
        for step in range(5):
            force.fill(0.0)
            pull(x, force)
            if step == 2:
                kept.copy_from(force)
            leap(x, speed, force)
        copy(speed, kept)
        measure(x, speed, loss)

    @qd.kernel
    def copy(a: vec, b: vec):
        for i in a:
            v[i] = a[i] * a[i]
        for i in a:
            a[i] += v[3 - i] * b[i]

    check_hessian(flight, POINT, inout="x")


def test_numbers_and_what_a_kernel_returns() -> None:
    direction = {"x": np.array([1.0, 2.0, 3.0]), "depth": 2.0}
    hessian = np.diag(3.0 * (12 * X**2 - 4))
    gradient = 4 * X * (X**2 - 1)
    for kernel, out in ((well, {"loss": ()}), (returned_well, None)):
        loss, gradients, products = qd.ad.hvp(kernel, out=out)(X, 3.0, direction=direction)
        assert loss == pytest.approx(3 * np.sum((X**2 - 1) ** 2))
        np.testing.assert_allclose(gradients["x"], 3 * gradient)
        np.testing.assert_allclose(gradients["depth"], np.sum((X**2 - 1) ** 2))
        np.testing.assert_allclose(products["x"], hessian @ direction["x"] + 2 * gradient)
        np.testing.assert_allclose(products["depth"], gradient @ direction["x"])


def test_both_modes_are_transposes_with_numbers_and_vectors() -> None:
    rng = np.random.default_rng(3)
    forces = {"out": {"y": "x"}}
    x, t, a = rng.normal(size=(3, 4))
    results, tangents = qd.ad.jvp(scaled, **forces)(x, 1.5, tangents={"x": t, "factor": 0.7})
    again, gradients = qd.ad.vjp(scaled, **forces)(x, 1.5, adjoints=a)
    np.testing.assert_array_equal(results, again)
    np.testing.assert_allclose(tangents, 0.7 * np.sin(x) + 1.5 * np.cos(x) * t)
    assert a @ tangents == pytest.approx(gradients["x"] @ t + gradients["factor"] * 0.7)


@qd.kernel
def scaled(x: vec, factor: qd.f64, y: vec):
    for i in x:
        y[i] = factor * qd.sin(x[i])


def test_arguments_that_are_the_same_array_have_tangents_of_their_own() -> None:
    @qd.kernel
    def dot(x: vec, y: vec, loss: one):
        for i in x:
            loss[None] += x[i] * y[i] ** 2

    out = {"loss": ()}
    _, tangent = qd.ad.jvp(dot, out=out)(POINT, POINT, tangents={"x": np.ones(4)})
    assert tangent == pytest.approx(np.sum(POINT**2))
    product_of = qd.ad.hvp(dot, out=out)
    _, _, products = product_of(POINT, POINT, direction={"x": np.ones(4)})
    np.testing.assert_allclose(products["x"], np.zeros(4))
    np.testing.assert_allclose(products["y"], 2 * POINT)


def test_arrays_without_a_gradient_are_constants() -> None:
    between = qd.field(qd.f64, 4)

    @qd.kernel
    def through(x: vec, loss: one):
        for i in x:
            between[i] = x[i] ** 2
        for i in x:
            loss[None] += between[i] * x[i]

    with pytest.warns(qd.OctantsWarning):
        gradient = qd.ad.value_and_grad(through, out={"loss": ()})(POINT)[1]["x"]
    np.testing.assert_allclose(gradient, POINT**2)
    _, tangent = qd.ad.jvp(through, out={"loss": ()})(POINT, tangents={"x": np.ones(4)})
    assert tangent == pytest.approx(np.sum(POINT**2))


def test_a_gradient_of_ones_own_has_no_second_derivative() -> None:
    @qd.ad.grad_replaced
    def replaced(x, loss):
        well(x, 1.0, loss)

    @qd.ad.grad_for(replaced)
    def gradient(x, loss):
        well.grad(x, 1.0, loss)

    def loss_of(x, loss):
        replaced(x, loss)

    product_of = qd.ad.hvp(loss_of, out={"loss": ()})
    with pytest.raises(qd.OctantsRuntimeError, match="OCT354"):
        product_of(X, direction={"x": X})


@qd.kernel
def both(x: qd.types.ndarray(ndim=1), factor: qd.f64, y: qd.types.ndarray(ndim=1)) -> qd.f64:
    total = 0.0
    for i in x:
        y[i] = factor * x[i] ** 2
        total += x[i]
    return total


def test_adjoints_by_the_names_of_the_results() -> None:
    backward = qd.ad.vjp(both, out={"y": "x"}, by="x")
    for adjoints, expected in (
        ({"y": X, "return": 3.0}, 4.0 * X * X + 3.0),
        ({"return": 3.0}, np.full(3, 3.0)),
        ({"y": X}, 4.0 * X * X),
        ({}, np.zeros(3)),
    ):
        _, found = backward(X, 2.0, adjoints=adjoints)
        np.testing.assert_allclose(found["x"], expected)
    _, rows = backward(X, 2.0, adjoints={"y": np.eye(3), "return": np.ones(3)})
    np.testing.assert_allclose(rows["x"], np.diag(4.0 * X) + 1.0)
    (y, _), found = backward(X, 2.0, adjoints=[X, None])
    np.testing.assert_allclose(found["x"], 4.0 * X * X)
    _, alone = qd.ad.vjp(scaled, out={"y": "x"}, by="x")(X, 2.0, adjoints={"y": X})
    assert alone["x"].shape == y.shape


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (
            lambda: qd.ad.jvp(scaled, out={"y": "x"})(X, 1.0, tangents={"x": np.ones(2)}),
            qd.OctantsValueError,
            r"OCT355: .*`x` has the shape \(2,\), not \(3,\)",
        ),
        (
            lambda: qd.ad.vjp(scaled, out={"y": "x"})(X, 1.0, adjoints=np.ones((3, 1))),
            qd.OctantsValueError,
            "OCT355",
        ),
        (
            lambda: qd.ad.jvp(scaled, out={"y": "x"})(X, 1.0, tangents={"z": 1.0}),
            qd.OctantsTypeError,
            "OCT353",
        ),
        (
            lambda: qd.ad.jvp(scaled, out={"y": "x"})(X, 1.0, tangents={"x": [1.0, [2.0]]}),
            qd.OctantsCallError,
            "OCT352: .*direction of `x` is of type list, and no numbers",
        ),
        (
            lambda: qd.ad.vjp(scaled, out={"y": "x"})(X, 1.0, adjoints={"x": X}),
            qd.OctantsCallError,
            "OCT352: .*`adjoints` names `x`, and the results are y",
        ),
        (
            lambda: qd.ad.vjp(both, out={"y": "x"})(X, 1.0, adjoints=1.0),
            qd.OctantsCallError,
            "OCT352: .*one for each result: y, return",
        ),
        (
            lambda: qd.ad.vjp(both, out={"y": "x"})(X, 1.0, adjoints=[X, 1.0, None]),
            qd.OctantsValueError,
            "OCT355",
        ),
        (
            lambda: qd.ad.hvp(scaled, out={"y": "x"})(X, 1.0, direction={"x": X}),
            qd.OctantsTypeError,
            "one float, not",
        ),
    ],
)
def test_mistakes(make: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        make()


def test_scipy_takes_the_products() -> None:
    optimize = pytest.importorskip("scipy.optimize")
    given = {"x": X, "depth": 2.0}
    how = {"out": {"loss": ()}, "by": "x"}
    objective, start = qd.ad.value_and_grad(well, **how).flat(**given)
    product = qd.ad.hvp(well, **how).flat(X, 2.0)
    found = optimize.minimize(objective, start, jac=True, hessp=product, method="trust-ncg")
    np.testing.assert_allclose(np.abs(found.x), 1.0, atol=1e-6)
