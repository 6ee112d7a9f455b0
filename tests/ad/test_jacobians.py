"""Whole Jacobians and Hessians, dense and by colouring."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.ad.array_function_kernels import X, returned_well, well

sparse: Any = pytest.importorskip("scipy.sparse")
vec = qd.types.ndarray(qd.f64, 1)


@qd.kernel
def neighbours(x: vec, factor: qd.f64, y: vec, count: qd.types.ndarray(qd.i32, 0)):
    for i in range(x.shape[0]):
        y[i] = factor * x[i] ** 2
        if i > 0:
            y[i] += qd.sin(x[i - 1] * x[i])
        if i + 1 < x.shape[0] and x[0] > 0.0:
            y[i] += 3.0 * x[i + 1]
        count[None] += 1


@qd.kernel
def chain_energy(x: vec, loss: qd.types.ndarray(qd.f64, 0)):
    for i in range(x.shape[0] - 1):
        loss[None] += (x[i + 1] - x[i]) ** 4 + x[i] ** 3


OUT = {"y": "x", "count": ((), np.int32)}
POINT = np.linspace(0.3, 1.7, 12)


def expected_of_neighbours(x: Any, factor: float) -> Any:
    matrix = np.diag(2 * factor * x)
    for i in range(1, len(x)):
        slope = np.cos(x[i - 1] * x[i])
        matrix[i, i - 1] += slope * x[i]
        matrix[i, i] += slope * x[i - 1]
    for i in range(len(x) - 1 if x[0] > 0 else 0):
        matrix[i, i + 1] += 3.0
    return matrix


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse"])
def test_dense_jacobians(mode: str) -> None:
    found = qd.ad.jacobian(neighbours, out=OUT, mode=mode)(POINT, 0.5)
    np.testing.assert_allclose(found["x"], expected_of_neighbours(POINT, 0.5), rtol=1e-12)
    np.testing.assert_allclose(found["factor"], POINT**2, rtol=1e-12)


def test_shapes_of_several_results_and_arguments() -> None:
    @qd.kernel
    def both(a: qd.types.ndarray(qd.f64, 2), b: vec, sums: vec, total: qd.types.ndarray(qd.f64, 0)):
        for i, j in a:
            sums[i] += a[i, j] * b[j]
            total[None] += b[j] ** 2

    a, b = np.arange(6.0).reshape(2, 3), np.array([1.0, -1.0, 2.0])
    found = qd.ad.jacobian(both, out={"sums": 2, "total": ()})(a, b)
    np.testing.assert_allclose(found["sums"]["b"], a)
    np.testing.assert_allclose(found["sums"]["a"], np.einsum("ik,j->ikj", np.eye(2), b))
    np.testing.assert_allclose(found["total"]["b"], 4 * b)
    assert found["total"]["a"].shape == (2, 3)
    assert not found["total"]["a"].any()


class Counted:
    """How often a kernel is launched."""

    def __init__(self, kernel: Any) -> None:
        self.kernel, self.count = kernel, 0

    def function(self, x: Any, y: Any) -> None:
        self.count += 1
        self.kernel(x, 0.5, y, qd.ndarray(qd.i32, ()))


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse"])
def test_a_band_takes_as_many_runs_as_it_is_wide(mode: str) -> None:
    band = sparse.diags_array([1, 1, 1], offsets=[-1, 0, 1], shape=(12, 12), dtype=int)
    counted = Counted(neighbours)
    whole = qd.ad.jacobian(counted.function, out={"y": "x"}, sparsity=band, mode=mode)
    found = whole(POINT)["x"]
    assert counted.count == 3 + 1  # and the check
    np.testing.assert_allclose(found.toarray(), expected_of_neighbours(POINT, 0.5), rtol=1e-12)


def test_a_pattern_is_found_by_probing_and_grows() -> None:
    counted = Counted(neighbours)
    whole = qd.ad.jacobian(counted.function, out={"y": "x"}, sparsity="probe")
    for point, runs in ((-POINT, 12), (-2 * POINT, 3), (POINT, 15), (2 * POINT, 4)):
        counted.count = 0
        found = whole(point)["x"].toarray()
        np.testing.assert_allclose(found, expected_of_neighbours(point, 0.5), rtol=1e-12)
        assert counted.count == runs


def test_a_pattern_that_misses_an_element_is_an_error() -> None:
    band = sparse.diags_array([1, 1], offsets=[-1, 0], shape=(12, 12), dtype=int)
    whole = qd.ad.jacobian(neighbours, out=OUT, by="x", sparsity=band)
    np.testing.assert_allclose(
        whole(-POINT, 0.5)["x"].toarray(), expected_of_neighbours(-POINT, 0.5), rtol=1e-12
    )
    with pytest.raises(qd.OctantsValueError, match="OCT356: .* misses"):
        whole(POINT, 0.5)


def test_hessians() -> None:
    found = qd.ad.hessian(returned_well)(X, 3.0)
    np.testing.assert_allclose(found["x"]["x"], np.diag(3 * (12 * X**2 - 4)), rtol=1e-12)
    np.testing.assert_allclose(found["x"]["depth"], 4 * X * (X**2 - 1), rtol=1e-12)
    np.testing.assert_allclose(found["depth"]["x"], 4 * X * (X**2 - 1), rtol=1e-12)
    assert found["depth"]["depth"] == 0.0


def test_sparse_hessians() -> None:
    dense = qd.ad.hessian(chain_energy, out={"loss": ()})(POINT)["x"]["x"]
    for sparsity in ("probe", np.abs(np.subtract.outer(range(12), range(12))) < 2):
        whole = qd.ad.hessian(chain_energy, out={"loss": ()}, sparsity=sparsity)
        for _ in range(2):
            found = whole(POINT)["x"]["x"]
            assert found.nnz <= 3 * 12
            np.testing.assert_allclose(found.toarray(), dense, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: qd.ad.jacobian(well, out={"loss": ()}, mode="both"), "OCT358"),
        (lambda: qd.ad.jacobian(well, out={"loss": ()}, sparsity="guess"), "OCT356"),
        (
            lambda: qd.ad.jacobian(well, out={"loss": ()}, sparsity=np.eye(3), by="x")(X, 1.0),
            r"has the shape \(3, 3\), not \(1, 3\)",
        ),
        (lambda: qd.ad.hessian(well, out={"loss": ()}, sparsity="probe")(X, 1.0), "OCT357"),
    ],
)
def test_mistakes(make: Any, text: str) -> None:
    with pytest.raises(qd.OctantsValueError, match=text):
        make()


def test_several_directions() -> None:
    expected = expected_of_neighbours(POINT, 0.5)
    units, zeros = np.eye(12), np.zeros(12)
    forward = qd.ad.jvp(neighbours, out=OUT)
    (y, count), (columns, none) = forward(POINT, 0.5, tangents={"x": units, "factor": zeros})
    np.testing.assert_allclose(columns.T, expected, rtol=1e-12)
    np.testing.assert_allclose(y, forward(POINT, 0.5, tangents={"x": zeros})[0][0])
    assert none is None
    assert count == 12
    backward = qd.ad.vjp(neighbours, out=OUT)
    _, rows = backward(POINT, 0.5, adjoints=(units, None))
    np.testing.assert_allclose(rows["x"], expected, rtol=1e-12)
    np.testing.assert_allclose(rows["factor"], POINT**2, rtol=1e-12)


def test_several_directions_of_a_hessian() -> None:
    given = np.stack([POINT, np.ones(12), np.zeros(12)])
    function = qd.ad.hvp(chain_energy, out={"loss": ()})
    _, _, products = function(POINT, direction={"x": given})
    whole = qd.ad.hessian(chain_energy, out={"loss": ()})(POINT)["x"]["x"]
    np.testing.assert_allclose(products["x"], given @ whole, rtol=1e-10, atol=1e-12)


def test_no_direction_at_all() -> None:
    _, (columns, _) = qd.ad.jvp(neighbours, out=OUT)(POINT, 0.5, tangents={"x": np.ones((0, 12))})
    assert columns.shape == (0, 12)
    _, rows = qd.ad.vjp(neighbours, out=OUT)(POINT, 0.5, adjoints=(np.ones((0, 12)), None))
    assert rows["x"].shape == (0, 12)
    assert rows["factor"].shape == (0,)


@pytest.mark.parametrize(
    "tangents", [{"x": np.ones((2, 12)), "factor": np.ones(3)}, {"x": np.ones((2, 11))}]
)
def test_directions_of_different_numbers(tangents: Any) -> None:
    with pytest.raises(qd.OctantsValueError, match="OCT355"):
        qd.ad.jvp(neighbours, out=OUT)(POINT, 0.5, tangents=tangents)
