"""Sparse matrices that kernels fill, and direct solvers: against dense numpy."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.linalg import symmetric_factors
from tests.golden_files import check_golden

pytest.importorskip("scipy")


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level="error")
    yield
    qd.reset()


@qd.kernel
def fill_bands(A: qd.types.sparse_matrix_builder(), diagonal: qd.types.ndarray(), side: float):
    for i in diagonal:
        A[i, i] += diagonal[i]
        if i > 0:
            A[i, i - 1] -= side
            A[i - 1, i] -= side
            A[i, i] += 0.0


def bands(diagonal: Any, side: float) -> np.ndarray:
    n = len(diagonal)
    return np.diag(diagonal) - side * (np.eye(n, k=1) + np.eye(n, k=-1))


def built(n: int, dtype: Any = qd.f64, **options: Any) -> tuple[Any, np.ndarray]:
    """A matrix with bands, and the same one dense."""
    diagonal = np.linspace(2.0, 3.0, n).astype(dtype.numpy)
    builder = qd.linalg.SparseMatrixBuilder(n, n, 4 * n, dtype=dtype, **options)
    fill_bands(builder, diagonal, 0.75)
    return builder.build(), bands(diagonal, 0.75)


# -- building -------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage_format", ["col_major", "row_major"])
@pytest.mark.parametrize("dtype", [qd.f32, qd.f64])
def test_entries_of_one_place_are_summed_up(dtype: Any, storage_format: str) -> None:
    found, wanted = built(7, dtype, storage_format=storage_format)
    assert found.shape == (7, 7)
    np.testing.assert_allclose(found.scipy.toarray(), wanted, rtol=1e-6)
    assert found[3, 2] == -0.75
    assert found.scipy.dtype == dtype.numpy


def test_a_builder_is_empty_after_build() -> None:
    builder = qd.linalg.SparseMatrixBuilder(3, max_num_triplets=20)
    fill_bands(builder, np.ones(3, np.float32), 1.0)
    builder.build()
    assert builder.build().scipy.nnz == 0
    fill_bands(builder, np.full(3, 5, np.float32), 1.0)
    assert builder.build()[1, 1] == 5.0


def test_integers_and_augmented_expressions() -> None:
    @qd.kernel
    def fill(A: qd.types.sparse_matrix_builder(), scale: qd.i32):
        for i, j in qd.ndrange(2, 3):
            A[i, 2 - j] += scale * i + j
            A[i, 2 - j] -= 1

    builder = qd.linalg.SparseMatrixBuilder(2, 3, 12, dtype=qd.f64)
    fill(builder, 10)
    assert builder.build().scipy.toarray().tolist() == [[1, 0, -1], [11, 10, 9]]


def test_print_triplets(capsys: pytest.CaptureFixture[str]) -> None:
    @qd.kernel
    def fill(A: qd.types.sparse_matrix_builder()):
        A[0, 1] += 2.5
        A[1, 0] -= 1

    builder = qd.linalg.SparseMatrixBuilder(2, 2, 8)
    fill(builder)
    builder.print_triplets()
    assert capsys.readouterr().out == (
        "n=2, m=2, num_triplets=2 (max=8)\n[0, 1] = 2.5\n[1, 0] = -1\n"
    )


def test_what_is_wrong_with_entries() -> None:
    builder = qd.linalg.SparseMatrixBuilder(3, 3, max_num_triplets=4)
    fill_bands(builder, np.ones(3, np.float32), 1.0)
    with pytest.raises(qd.OctantsRuntimeError, match="OCT602: 9 entries were added"):
        builder.build()
    small = qd.linalg.SparseMatrixBuilder(2, 2, max_num_triplets=20)
    fill_bands(small, np.ones(3, np.float32), 1.0)
    with pytest.raises(IndexError, match=r"OCT603: there is no entry \(\d, 2\)|\(2, \d\)"):
        small.build()


@pytest.mark.parametrize("body", ["A[i, i] *= 2.0", "A[i] += 2.0", "x = A[i, i]", "A[i, i] = 1.0"])
def test_only_additions_are_entries(body: str) -> None:
    with pytest.raises(qd.OctantsTypeError, match="OCT609"):
        kernel_with(body)(qd.linalg.SparseMatrixBuilder(3, 3, 9))


def kernel_with(body: str) -> Any:
    """A kernel that does something with a builder in a loop, from a file of its own."""
    head = "def wrong(A: qd.types.sparse_matrix_builder()):\n    for i in range(3):\n"
    source = f"{head}        {body}\n"
    linecache.cache["wrong.py"] = (len(source), None, source.splitlines(True), "wrong.py")
    scope: dict[str, Any] = {"qd": qd}
    exec(compile(source, "wrong.py", "exec"), scope)
    return qd.kernel(scope["wrong"])


def test_another_argument_is_refused() -> None:
    with pytest.raises(qd.OctantsRuntimeTypeError, match="no member `rows`"):
        fill_bands(np.zeros(3, np.float32), np.zeros(3, np.float32), 1.0)


# -- arithmetic -----------------------------------------------------------------------------------


def test_arithmetic() -> None:
    a, dense = built(5)
    b, other = built(5)
    b[0, 4] = 2.0
    other[0, 4] = 2.0
    for found, wanted in (
        (a + b, dense + other),
        (a - b, dense - other),
        (a * 2.5, 2.5 * dense),
        (3 * a, 3 * dense),
        (a * b, dense * other),
        (a @ b, dense @ other),
        (b.transpose(), other.T),
    ):
        np.testing.assert_allclose(found.scipy.toarray(), wanted, rtol=1e-12)
        assert found.dtype is qd.f64
    a += b
    np.testing.assert_allclose(a.scipy.toarray(), dense + other)
    a -= b
    np.testing.assert_allclose(a.scipy.toarray(), dense)


def test_products_with_vectors() -> None:
    a, dense = built(4, qd.f32)
    values = np.arange(4, dtype=np.float32)
    array = qd.ndarray(qd.f32, 4)
    array.from_numpy(values)
    field = qd.field(qd.f32, shape=4)
    field.from_numpy(values)
    for given, kind in ((values, np.ndarray), (field, np.ndarray), (array, qd.Ndarray)):
        found = a @ given
        assert isinstance(found, kind)
        np.testing.assert_allclose(np.asarray(found), dense @ values, rtol=1e-6)


def test_entries_from_an_array_of_vectors() -> None:
    entries = qd.Vector.ndarray(3, qd.f32, 3)
    entries.from_numpy(np.array([[0, 0, 1.5], [1, 0, 2], [1, 0, 0.5]], np.float32))
    found = qd.linalg.SparseMatrix(2, 2)
    found.build_from_ndarray(entries)
    assert found.scipy.toarray().tolist() == [[1.5, 0], [2.5, 0]]
    with pytest.raises(ValueError, match="OCT605"):
        found.build_from_ndarray(qd.Vector.ndarray(2, qd.f32, 3))


def test_text(tmp_path: Any) -> None:
    found, _ = built(3, qd.f32)
    assert str(found) == "[    2, -0.75,     0]\n[-0.75,   2.5, -0.75]\n[    0, -0.75,     3]"
    assert "1000 x 1000, 0 entries of f32" in repr(qd.linalg.SparseMatrix(1000, 1000))
    found.mmwrite(str(tmp_path / "a.mtx"))
    import scipy.io

    np.testing.assert_allclose(scipy.io.mmread(tmp_path / "a.mtx").toarray(), found.scipy.toarray())


# -- solving --------------------------------------------------------------------------------------


@pytest.fixture(params=["qdldl", "superlu"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What computes symmetric factors: QDLDL, or SuperLU where that is missing."""
    if request.param == "qdldl":
        pytest.importorskip("qdldl")
    else:
        monkeypatch.setattr(symmetric_factors, "find_optional", lambda _: None)
    return str(request.param)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("ordering", ["AMD", "COLAMD"])
@pytest.mark.parametrize("kind", ["LLT", "LDLT", "LU"])
def test_direct_solvers(kind: str, ordering: str) -> None:
    a, dense = built(30)
    b = np.sin(np.arange(30.0))
    solver = qd.linalg.SparseSolver(qd.f64, kind, ordering)
    solver.compute(a)
    assert solver.info()
    np.testing.assert_allclose(solver.solve(b), np.linalg.solve(dense, b), rtol=1e-12)
    solver = qd.linalg.SparseSolver(qd.f64, kind, ordering)
    solver.analyze_pattern(a)
    solver.factorize(a)
    field = qd.field(qd.f64, shape=30)
    field.from_numpy(b)
    np.testing.assert_allclose(solver.solve(field), np.linalg.solve(dense, b), rtol=1e-12)


def matrix_of(values: Any) -> Any:
    found = qd.linalg.SparseMatrix(*np.shape(values), dtype=qd.f64)
    rows, columns = np.nonzero(values)
    found.set_entries(rows, columns, np.asarray(values, float)[rows, columns])
    return found


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        ([[2.0, 1.0], [1.0, 3.0]], ["LLT", "LDLT", "LU"]),
        ([[2.0, 3.0], [3.0, 1.0]], ["LDLT", "LU"]),
        ([[1.0, 1.0], [1.0, 1.0]], []),
        ([[0.0, 1.0], [1.0, 3.0]], ["LDLT", "LU"]),
        ([[-2.0, 1.0], [1.0, -3.0]], ["LDLT", "LU"]),
        ([[1.0, 0.0], [0.0, 0.0]], []),
        ([[0.0, 0.0], [0.0, 0.0]], []),
        ([[0.0, 1.0], [0.0, 0.0]], []),
        ([[1.0, 2.0, 0.0], [0.0, 1.0, 4.0], [3.0, 0.0, 1.0]], ["LU"]),
    ],
)
def test_which_matrices_have_which_factors(values: Any, kinds: list[str]) -> None:
    """The symmetric solvers read the lower triangle, so the last one is another matrix to them."""
    matrix, b = matrix_of(values), np.arange(1.0, len(values) + 1)
    for kind in ("LLT", "LDLT", "LU"):
        solver = qd.linalg.SparseSolver(qd.f64, kind)
        solver.compute(matrix)
        if kind in kinds:
            np.testing.assert_allclose(solver.solve(b), np.linalg.solve(values, b), rtol=1e-12)
        elif not solver.info():
            with pytest.raises(qd.OctantsRuntimeError, match="OCT606"):
                solver.solve(b)
        else:
            lower = np.tril(values)
            symmetric = lower + np.tril(values, -1).T
            np.testing.assert_allclose(solver.solve(b), np.linalg.solve(symmetric, b), atol=1e-14)


def test_factors_of_one_pattern_take_over_what_nothing_uses() -> None:
    """In any order of factorisation, release and solution, with each its own numbers."""
    pytest.importorskip("qdldl")
    rng = np.random.default_rng(3)
    lower = np.tril(rng.random((12, 12)) < 0.3, -1)
    other = np.tril(rng.random((12, 12)) < 0.3, -1)
    solvers: list[tuple[Any, np.ndarray]] = []
    b = rng.random(12)
    for step in range(40):
        pattern = other if step % 5 == 4 else lower
        half = np.where(pattern, rng.random((12, 12)), 0.0)
        dense = half + half.T + np.diag(rng.random(12) + 8.0)
        builder = qd.linalg.SparseMatrix(
            12, dtype=qd.f64, storage_format="row_major" if step % 3 else "col_major"
        )
        rows, columns = np.nonzero(np.tril(dense))
        builder.set_entries(rows, columns, dense[rows, columns])
        if step % 2 and solvers:
            solver = solvers.pop(step % len(solvers))[0]
        else:
            solver = qd.linalg.SparseSolver(qd.f64, "LLT")
        solver.compute(builder)
        builder.scipy.indices[:] = 0  # the factors do not read it again
        solvers.append((solver, dense))
        if len(solvers) > 3:
            del solvers[0]
        for each, matrix in solvers:
            np.testing.assert_allclose(each.solve(b), np.linalg.solve(matrix, b), rtol=1e-12)


def test_conjugate_gradients_on_the_host() -> None:
    a, dense = built(40)
    b = np.cos(np.arange(40.0))
    found, is_good = qd.linalg.SparseCG(a, b, max_iter=100, atol=1e-10).solve()
    assert is_good
    np.testing.assert_allclose(found, np.linalg.solve(dense, b), rtol=1e-8, atol=1e-9)
    _, is_good = qd.linalg.SparseCG(a, b, x0=np.zeros(40), max_iter=2, atol=1e-10).solve()
    assert not is_good


def test_wrong_options_and_operands() -> None:
    a, _ = built(4)
    for make in (
        lambda: qd.linalg.SparseSolver(solver_type="QR"),
        lambda: qd.linalg.SparseSolver(ordering="RCM"),
        lambda: qd.linalg.SparseSolver(qd.i32),
        lambda: qd.linalg.SparseMatrixBuilder(0, 3, 3),
        lambda: qd.linalg.SparseMatrixBuilder(3, 3, 3, storage_format="dense"),
        lambda: qd.linalg.SparseSolver().compute(qd.linalg.SparseMatrix(2, 3)),
        lambda: a + qd.linalg.SparseMatrix(2, 3),
        lambda: a @ np.zeros(3),
    ):
        with pytest.raises(qd.OctantsValueError, match="OCT60[15]"):
            make()
    for make in (lambda: a + 1, lambda: a @ 1, lambda: a @ "text"):
        with pytest.raises(TypeError, match="OCT604"):
            make()
    with pytest.raises(qd.OctantsRuntimeError, match="OCT606"):
        qd.linalg.SparseSolver().solve(np.zeros(3))
    with pytest.raises(IndexError, match="OCT603"):
        a[4, 0]


def test_texts_of_errors() -> None:
    a, _ = built(3)
    b = qd.ndarray(qd.f64, 3)

    def too_many() -> None:
        builder = qd.linalg.SparseMatrixBuilder(3, 3, 4)
        fill_bands(builder, np.ones(3, np.float32), 1.0)
        builder.build()

    def reading() -> None:
        kernel_with("x = A[i, i]")(qd.linalg.SparseMatrixBuilder(3, 3, 4))

    def tangents() -> None:
        dual = qd.ndarray(qd.f64, 3, needs_dual=True)
        with qd.ad.FwdMode(loss=dual, param=dual, seed=[1.0, 0.0, 0.0]):
            _ = a @ dual

    def transpose() -> None:
        qd.linalg.LinearOperator(reading).transposed()

    for name, run in (
        ("OCT601_wrong_matrix_option", lambda: qd.linalg.SparseSolver(solver_type="QR")),
        ("OCT602_too_many_entries", too_many),
        ("OCT603_entry_out_of_range", lambda: a[4, 0]),
        ("OCT604_wrong_operand", lambda: a @ 1),
        ("OCT605_wrong_operand_shape", lambda: a @ np.zeros(4)),
        ("OCT606_not_factorized", lambda: qd.linalg.SparseSolver().solve(b)),
        ("OCT607_no_transpose", transpose),
        ("OCT608_no_tangents", tangents),
        ("OCT609_builder_access", reading),
    ):
        with pytest.raises(qd.OctantsError) as caught:
            run()
        check_golden(f"errors/{name}", str(caught.value))


# -- derivatives ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("kind", "above"), [("LLT", True), ("LLT", False), ("LU", True), ("LU", False)]
)
def test_a_tape_goes_through_assembly_and_solve(kind: str, above: bool) -> None:
    """Loss of x = A(k)^-1 b(k) and of y = A x, by the numbers that A and b are made of."""
    n = 6
    k = qd.field(qd.f64, shape=n, needs_grad=True)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)
    b = qd.ndarray(qd.f64, n, needs_grad=True)
    builder = qd.linalg.SparseMatrixBuilder(n, n, 8 * n, dtype=qd.f64, needs_grad=True)

    @qd.kernel
    def assemble(A: qd.types.sparse_matrix_builder(), b: qd.types.ndarray()):
        for i in range(n):
            A[i, i] += 2.0 + k[i] * k[i]
            if i > 0:
                A[i, i] += qd.sin(k[i])
                A[i, i - 1] -= 0.3 * k[i]
                if above:
                    A[i - 1, i] -= 0.3 * k[i]
            b[i] = qd.cos(k[i]) + i

    @qd.kernel
    def measure(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in range(n):
            loss[None] += x[i] * x[i] * (i + 1) + qd.sin(y[i])

    def forward() -> None:
        assemble(builder, b)
        A = builder.build()
        solver = qd.linalg.SparseSolver(qd.f64, kind)
        solver.compute(A)
        x = solver.solve(b)
        measure(x, A @ x)

    start = np.linspace(0.2, 0.9, n)
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
    for i in range(n):
        shift = step * np.eye(n)[i]
        slope = (value_at(start + shift) - value_at(start - shift)) / (2 * step)
        assert gradient[i] == pytest.approx(slope, rel=1e-6)


def test_two_steps_with_one_builder() -> None:
    """The second assembly overwrites the entries of the first."""
    n = 3
    k = qd.field(qd.f64, shape=(), needs_grad=True)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)
    builder = qd.linalg.SparseMatrixBuilder(n, n, n, dtype=qd.f64, needs_grad=True)
    first = qd.ndarray(qd.f64, n, needs_grad=True)
    first.fill(1.0)

    @qd.kernel
    def assemble(A: qd.types.sparse_matrix_builder(), step: qd.i32):
        for i in range(n):
            A[i, i] += k[None] + step

    @qd.kernel
    def measure(x: qd.types.ndarray()):
        for i in range(n):
            loss[None] += x[i]

    k[None] = 1.5
    with qd.ad.Tape(loss):
        x = first
        for step in range(2):
            assemble(builder, step)
            solver = qd.linalg.SparseSolver(qd.f64)
            solver.compute(builder.build())
            x = solver.solve(x)
        measure(x)
    # x = 1 / (k (k + 1)), three times
    assert loss[None] == pytest.approx(3 / (1.5 * 2.5))
    assert k.grad[None] == pytest.approx(-3 * (2 * 1.5 + 1) / (1.5 * 2.5) ** 2)
    np.testing.assert_allclose(first.grad.to_numpy(), 1 / (1.5 * 2.5))


def test_forward_mode_is_refused() -> None:
    a, _ = built(3)
    solver = qd.linalg.SparseSolver(qd.f64)
    solver.compute(a)
    b = qd.ndarray(qd.f64, 3, needs_dual=True)
    loss = qd.field(qd.f64, shape=(), needs_dual=True)
    with qd.ad.FwdMode(loss=loss, param=b, seed=[1.0, 0.0, 0.0]):
        with pytest.raises(qd.OctantsRuntimeError, match="OCT608"):
            solver.solve(b)
        with pytest.raises(qd.OctantsRuntimeError, match="OCT608"):
            a @ b
