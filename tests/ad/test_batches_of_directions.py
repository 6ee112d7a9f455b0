"""Batches of directions of PyTorch and JAX: `vmap` of derivatives, at one point."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd

vec = qd.types.ndarray(qd.f64, 1)
POINT = np.linspace(0.2, 1.5, 7)
OUT = {"y": "x", "steps": ((), np.int32)}


@qd.kernel
def rotate(x: vec, speed: qd.f64, y: vec, steps: qd.types.ndarray(qd.i32, 0)) -> qd.f64:
    total = 0.0
    for i in x:
        v = x[i]
        for _ in range(i + 3):
            v = qd.sin(v) * speed + 0.1 * v
        y[i] += v
        y[0] += v * x[i]
        steps[None] += 1
    for i in x:
        total += x[i] ** 2 * speed
    return total


class Counted:
    """How often a function is called."""

    def __init__(self) -> None:
        self.count = 0

    def first(self, x: Any, y: Any) -> None:
        self.count += 1
        rotate(x, 1.3, y, qd.ndarray(qd.i32, ()))


class Library:
    """What the tests need of a library."""

    def __init__(self, name: str) -> None:
        self.module: Any = pytest.importorskip(name)
        self.function: Any = getattr(qd, name).function
        is_torch = name == "torch"
        self.of: Callable[[Any], Any] = self.module.tensor if is_torch else self.module.numpy.array
        self.func: Any = self.module.func if is_torch else self.module
        self.numpy: Callable[[Any], Any] = (lambda x: x.numpy()) if is_torch else np.asarray
        self.vmap: Any = self.module.vmap
        self.point = self.of(POINT)

    def result(self, position: int) -> Callable[[Any, Any], Any]:
        """A result of the kernel, of both arguments."""
        whole = self.function(rotate, out=OUT)
        return lambda x, speed: whole(x, speed)[position]

    def of_points(self, x: Any) -> Any:
        return self.result(0)(x, 1.3)

    def pull(self, adjoint: Any) -> Any:
        """The gradient at the point for an adjoint."""
        return self.func.vjp(self.of_points, self.point)[1](adjoint)[0]


@pytest.fixture(params=["torch", "jax"])
def library(request: pytest.FixtureRequest) -> Iterator[Library]:
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    yield Library(request.param)
    jax.config.update("jax_enable_x64", False)


def expected() -> Any:
    return qd.ad.jacobian(rotate, out=OUT)(POINT, 1.3)


@pytest.mark.parametrize("transform", ["jacfwd", "jacrev"])
def test_jacobians_by_arrays_and_numbers(library: Library, transform: str) -> None:
    wanted = expected()
    differentiate = getattr(library.func, transform)
    speed = library.of(np.array(1.3))
    for position, result in ((0, "y"), (2, "return")):
        function = differentiate(library.result(position), argnums=(0, 1))
        found = function(library.point, speed)
        for name, one in zip(("x", "speed"), found, strict=True):
            np.testing.assert_allclose(library.numpy(one), wanted[result][name], rtol=1e-12)


@pytest.mark.parametrize("transform", ["jacfwd", "jacrev"])
def test_a_jacobian_takes_as_many_runs_as_launches_with_eight(
    library: Library, transform: str
) -> None:
    counted = Counted()
    function = library.function(counted.first, out={"y": "x"})
    found = getattr(library.func, transform)(function)(library.of(np.linspace(0.1, 1.0, 9)))
    assert found.shape == (9, 9)
    assert counted.count == 1 + 2  # the value, and directions in two parts


def test_derivatives_of_jacobians(library: Library) -> None:
    jacrev, jacfwd = library.func.jacrev, library.func.jacfwd
    ways = [jacfwd(jacrev(library.of_points)), jacrev(jacrev(library.of_points))]
    ahead, back = (
        qd.ad.jacobian(rotate, out=OUT)(POINT + step, 1.3)["y"]["x"]
        for step in (1e-6 * np.eye(7)[3], -1e-6 * np.eye(7)[3])
    )
    for way in ways:
        found = library.numpy(way(library.point))
        np.testing.assert_allclose(found[..., 3], (ahead - back) / 2e-6, rtol=1e-6, atol=1e-7)


def test_batches_of_batches(library: Library) -> None:
    adjoints = np.random.default_rng(0).normal(size=(2, 3, 7))
    found = library.vmap(library.vmap(library.pull))(library.of(adjoints))
    np.testing.assert_allclose(library.numpy(found), adjoints @ expected()["y"]["x"], rtol=1e-11)


def test_a_batch_along_another_axis(library: Library) -> None:
    adjoints = np.random.default_rng(0).normal(size=(7, 3))
    found = library.vmap(library.pull, 1)(library.of(adjoints))
    np.testing.assert_allclose(library.numpy(found), adjoints.T @ expected()["y"]["x"], rtol=1e-11)


def test_batches_of_points_go_one_by_one(library: Library) -> None:
    points = np.stack([POINT, 0.5 * POINT, POINT**2])
    found = library.vmap(library.func.jacrev(library.of_points))(library.of(points))
    for one, point in zip(library.numpy(found), points, strict=True):
        wanted = qd.ad.jacobian(rotate, out=OUT)(point, 1.3)["y"]["x"]
        np.testing.assert_allclose(one, wanted, rtol=1e-11)


def test_transposed_and_compiled_batches_of_jax() -> None:
    jax = pytest.importorskip("jax")
    if jax.__version_info__ < (0, 10):
        pytest.skip("JAX 0.6, the last one for Python 3.10, transposes no such loop")
    jax.config.update("jax_enable_x64", True)
    library, matrix = Library("jax"), expected()["y"]["x"]

    def along(tangents: Any) -> Any:
        return jax.vmap(lambda t: jax.jvp(library.of_points, (library.point,), (t,))[1])(tangents)

    given = np.random.default_rng(0).normal(size=(3, 7))
    kind = jax.ShapeDtypeStruct((3, 7), np.float64)
    (transposed,) = jax.linear_transpose(along, kind)(library.of(given))
    compiled = jax.jit(jax.jacrev(library.of_points))(library.point)
    jax.config.update("jax_enable_x64", False)
    np.testing.assert_allclose(transposed, given @ matrix, rtol=1e-11)
    np.testing.assert_allclose(compiled, matrix, rtol=1e-11)
