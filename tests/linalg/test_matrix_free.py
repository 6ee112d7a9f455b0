"""Solvers whose matrix is a kernel: against dense numpy, and their derivatives by differences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level="error")
    yield
    qd.reset()


def array(kind: str, dtype: Any, shape: Any, n: int = 0, **options: Any) -> Any:
    if n:
        owner = qd.Vector.field if kind == "field" else qd.Vector.ndarray
        return owner(n, dtype, shape=shape, **options)
    make = qd.field if kind == "field" else qd.ndarray
    return make(dtype, shape=shape, **options)


@qd.kernel
def laplace(x: qd.template(), Ax: qd.template()):
    for i in x:
        Ax[i] = 2.5 * x[i]
        if i > 0:
            Ax[i] -= x[i - 1]
        if i < x.shape[0] - 1:
            Ax[i] -= x[i + 1]


@qd.kernel
def drift(x: qd.template(), Ax: qd.template()):
    for i in x:
        Ax[i] = 3.0 * x[i]
        if i > 0:
            Ax[i] -= 1.5 * x[i - 1]


@qd.kernel
def drift_transposed(x: qd.template(), Ax: qd.template()):
    for i in x:
        Ax[i] = 3.0 * x[i]
        if i < x.shape[0] - 1:
            Ax[i] -= 1.5 * x[i + 1]


def dense(operator: Any, n: int) -> np.ndarray:
    x, image = qd.field(qd.f64, shape=n), qd.field(qd.f64, shape=n)
    columns = []
    for column in np.eye(n):
        x.from_numpy(column)
        operator(x, image)
        columns.append(image.to_numpy())
    return np.stack(columns, 1)


@pytest.mark.parametrize("n", [0, 3], ids=["numbers", "vectors"])
@pytest.mark.parametrize("kind", ["field", "ndarray"])
@pytest.mark.parametrize("dtype", [qd.f32, qd.f64])
@pytest.mark.parametrize("method", ["MatrixFreeCG", "MatrixFreeBICGSTAB"])
def test_solutions(method: str, dtype: Any, kind: str, n: int) -> None:
    size = 12
    operator = qd.linalg.LinearOperator(laplace)
    tolerance = 1e-5 if dtype is qd.f32 else 1e-12
    b, x = (array(kind, dtype, size, n) for _ in range(2))
    values = np.random.default_rng(0).normal(size=(size, n) if n else size)
    b.from_numpy(values.astype(dtype.numpy))
    assert getattr(qd.linalg, method)(operator, b, x, tol=tolerance)
    wanted = np.linalg.solve(dense(laplace, size), values)
    np.testing.assert_allclose(
        x.to_numpy(), wanted, rtol=0, atol=1e-4 if dtype is qd.f32 else 1e-10
    )


def test_an_operator_that_is_not_symmetric() -> None:
    b, x = (array("field", qd.f64, 9) for _ in range(2))
    b.from_numpy(np.arange(9.0))
    assert qd.linalg.MatrixFreeBICGSTAB(qd.linalg.LinearOperator(drift), b, x, tol=1e-12)
    np.testing.assert_allclose(x.to_numpy(), np.linalg.solve(dense(drift, 9), np.arange(9.0)))


@pytest.mark.parametrize("method", ["MatrixFreeCG", "MatrixFreeBICGSTAB"])
def test_what_is_told(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    b, x = (array("field", qd.f64, 9) for _ in range(2))
    b.fill(1.0)
    operator = qd.linalg.LinearOperator(laplace)
    assert not getattr(qd.linalg, method)(operator, b, x, tol=1e-14, maxiter=2, quiet=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == ">>> Initial residual = 3.000000e+00"
    assert lines[-1] == ">>> Not converged after 2 iterations."
    assert len(lines) == 4
    assert getattr(qd.linalg, method)(operator, b, x, tol=1e-10)
    b.fill(0.0)
    x.fill(0.0)
    assert getattr(qd.linalg, method)(operator, b, x)


def test_wrong_operands() -> None:
    operator = qd.linalg.LinearOperator(laplace)
    x = qd.field(qd.f32, shape=4)
    for b in (np.zeros(4), qd.field(qd.i32, shape=4), qd.field(qd.f64, shape=4)):
        with pytest.raises(TypeError, match="OCT604"):
            qd.linalg.MatrixFreeCG(operator, b, x)
    for call in (
        lambda: qd.linalg.MatrixFreeCG(operator, qd.field(qd.f32, shape=5), x),
        lambda: operator.matvec(qd.field(qd.f32, shape=5), x),
    ):
        with pytest.raises(ValueError, match="OCT605"):
            call()
    with pytest.raises(TypeError, match="OCT604"):
        qd.linalg.LinearOperator(3)


# -- derivatives ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["field", "ndarray"])
@pytest.mark.parametrize("method", ["MatrixFreeCG", "MatrixFreeBICGSTAB"])
def test_a_tape_goes_through_a_solve(method: str, kind: str) -> None:
    """By the right-hand side, and by numbers that the operator reads."""
    n = 5
    k = qd.field(qd.f64, shape=n, needs_grad=True)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)
    b, x = (array(kind, qd.f64, n, needs_grad=True) for _ in range(2))

    @qd.kernel
    def operator(x: qd.template(), Ax: qd.template()):
        for i in x:
            Ax[i] = (3.0 + k[i] * k[i]) * x[i]
            if i > 0:
                Ax[i] -= k[0] * x[i - 1]
            if i < n - 1:
                Ax[i] -= k[0] * x[i + 1]

    @qd.kernel
    def source(b: qd.template()):
        for i in b:
            b[i] = qd.sin(k[i] + i)

    @qd.kernel
    def measure(x: qd.template()):
        for i in x:
            loss[None] += x[i] * x[i] * (i + 1)

    A = qd.linalg.LinearOperator(operator, transpose=operator)

    def forward() -> None:
        source(b)
        x.fill(0.0)
        assert getattr(qd.linalg, method)(A, b, x, tol=1e-13)
        measure(x)

    start = np.linspace(0.3, 0.8, n)
    k.from_numpy(start)
    with qd.ad.Tape(loss):
        forward()
    gradient = k.grad.to_numpy()

    def value_at(values: np.ndarray) -> float:
        k.from_numpy(values)
        loss[None] = 0
        forward()
        return loss[None]

    step = 1e-6
    slopes = [
        (value_at(start + step * e) - value_at(start - step * e)) / (2 * step) for e in np.eye(n)
    ]
    np.testing.assert_allclose(gradient, slopes, rtol=1e-6)


def test_what_a_tape_cannot_go_through() -> None:
    loss = qd.field(qd.f64, shape=(), needs_grad=True)
    b, x = (array("field", qd.f64, 4, needs_grad=True) for _ in range(2))
    several = qd.linalg.LinearOperator(lambda x, Ax: laplace(x, Ax))
    with qd.ad.Tape(loss):
        with pytest.raises(qd.OctantsRuntimeError, match="OCT607"):
            qd.linalg.MatrixFreeBICGSTAB(qd.linalg.LinearOperator(drift), b, x)
        with pytest.raises(TypeError, match="OCT604"):
            qd.linalg.MatrixFreeCG(several, b, x)
    dual = qd.field(qd.f64, shape=4, needs_dual=True)
    total = qd.field(qd.f64, shape=(), needs_dual=True)
    with qd.ad.FwdMode(loss=total, param=dual, seed=[1.0, 0, 0, 0]):
        with pytest.raises(qd.OctantsRuntimeError, match="OCT608"):
            qd.linalg.MatrixFreeCG(several, b, x)


def test_an_operator_with_a_transpose() -> None:
    """The adjoint of b is A^-T of that of x."""
    loss = qd.field(qd.f64, shape=(), needs_grad=True)
    b, x = (array("field", qd.f64, 4, needs_grad=True) for _ in range(2))
    weights = np.array([1.0, -2.0, 0.5, 3.0])
    w = qd.field(qd.f64, shape=4)
    w.from_numpy(weights)

    @qd.kernel
    def measure():
        for i in x:
            loss[None] += w[i] * x[i]

    b.fill(1.0)
    A = qd.linalg.LinearOperator(drift, transpose=drift_transposed)
    with qd.ad.Tape(loss):
        qd.linalg.MatrixFreeBICGSTAB(A, b, x, tol=1e-13)
        measure()
    wanted = np.linalg.solve(dense(drift, 4).T, weights)
    np.testing.assert_allclose(b.grad.to_numpy(), wanted, rtol=1e-10)
