"""Solvers of sparse linear systems on the host: direct ones, and conjugate gradients."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from octants.data.ndarray import Ndarray
from octants.diagnostics.linalg_errors import NotFactorized, WrongMatrixOption, WrongOperandShape
from octants.diagnostics.optional_dependencies import import_optional
from octants.linalg import symmetric_factors
from octants.linalg.numpy_vectors import recorded, refuse_tangents, vector_of
from octants.linalg.sparse_matrix import SparseMatrix, check_dtype, sparse
from octants.types.scalars import f32

_KINDS = ("LLT", "LDLT", "LU")
_ORDERINGS = {"AMD": "MMD_AT_PLUS_A", "COLAMD": "COLAMD"}


class SparseSolver:
    """Solves A x = b by factors of a square matrix, which serve any number of right-hand sides.

    Symmetric factors are computed by QDLDL, where it is installed, else by SuperLU of scipy.

    Args:
        dtype: f32 or f64, the type of the solution; factors are computed in f64.
        solver_type: "LLT" for symmetric positive definite matrices, "LDLT" for symmetric ones, "LU"
            for all. The first two read the lower triangle.
        ordering: "AMD" or "COLAMD": how rows and columns are exchanged to keep the factors sparse.

    Raises:
        OctantsValueError: for an unknown dtype, solver or ordering.

    Example::

        solver = qd.linalg.SparseSolver(solver_type="LLT")
        solver.compute(A)
        x = solver.solve(b)
    """

    def __init__(self, dtype: Any = f32, solver_type: str = "LLT", ordering: str = "AMD") -> None:
        self.dtype = check_dtype("SparseSolver", dtype)
        for name, given, choices in (
            ("solver_type", solver_type, _KINDS),
            ("ordering", ordering, tuple(_ORDERINGS)),
        ):
            if given not in choices:
                texts = ", ".join(f'"{each}"' for each in choices)
                raise WrongMatrixOption("SparseSolver", name, repr(given), texts).at()
        self.solver_type = solver_type
        self.ordering = ordering
        self._matrix: SparseMatrix | None = None
        self._factors: Any = None

    def compute(self, sparse_matrix: SparseMatrix) -> SparseSolver:
        """Compute the factors of a matrix; see `info`."""
        self.factorize(sparse_matrix)
        return self

    def analyze_pattern(self, sparse_matrix: SparseMatrix) -> None:
        """Check a matrix. `factorize` looks at the pattern of its entries itself.

        Raises `OctantsValueError` for a matrix that is not square.
        """
        if sparse_matrix.n != sparse_matrix.m:
            shape = f"{sparse_matrix.shape}"
            raise WrongOperandShape("SparseSolver", "a square matrix", f"shape {shape}").at()

    def factorize(self, sparse_matrix: SparseMatrix) -> None:
        """Compute the factors of a matrix; see `info`."""
        self.analyze_pattern(sparse_matrix)
        self._matrix, self._factors = sparse_matrix, None
        is_symmetric = self.solver_type != "LU"
        if is_symmetric and self.ordering == "AMD":
            factors = symmetric_factors.factorise(sparse_matrix.scipy)
            if factors is not None:
                is_wanted = self.solver_type == "LDLT" or factors.is_positive()
                self._factors = factors if is_wanted else None
                return
        self._factors = self._by_superlu(sparse_matrix, is_symmetric=is_symmetric)

    def _by_superlu(self, sparse_matrix: SparseMatrix, *, is_symmetric: bool) -> Any:
        """The factors as SuperLU computes them; None if there are none."""
        solvers = import_optional("scipy.sparse.linalg", "linalg")
        values = sparse_matrix.scipy.astype(np.float64).tocsc()
        if is_symmetric:
            values = _from_lower_triangle(values)
        options: dict[str, Any] = {"permc_spec": _ORDERINGS[self.ordering]}
        if is_symmetric:  # pivots on the diagonal, as symmetric factors have them
            options |= {"diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
        try:
            factors = solvers.splu(values, **options)
        except RuntimeError:  # it is singular
            return None
        is_wanted = self.solver_type != "LLT" or _is_positive(factors)
        return factors if is_wanted else None

    def info(self) -> bool:
        """Whether the last matrix has such factors: if not, it is singular, or not definite."""
        return self._factors is not None

    def solve(self, b: Any) -> Any:
        """The solution for a right-hand side: an ndarray for an ndarray, else a numpy array.

        With an ndarray it is recorded by a Tape, which solves once with the transposed factors
        for the derivatives by ``b`` and by the entries of the matrix, if its builder
        ``needs_grad``. Those by numpy arrays and fields are not recorded.

        Raises:
            OctantsRuntimeError: there are no factors.
            OctantsValueError: ``b`` has another length.
        """
        matrix, factors = self._matrix, self._factors
        if matrix is None:
            raise NotFactorized("no matrix was given").at()
        if factors is None:
            raise NotFactorized(f"the matrix has no {self.solver_type} factors").at()
        product = _of_entries if self.solver_type == "LU" else _of_lower_entries
        values = vector_of("SparseSolver.solve", b, matrix.dtype, matrix.n).astype(np.float64)
        found = factors.solve(values)
        if not isinstance(b, Ndarray):
            return found.astype(self.dtype.numpy)

        def back(adjoint: Any) -> Any:
            of_b = factors.solve(adjoint.astype(np.float64), "T")
            return of_b, lambda rows, columns: -product(of_b, found, rows, columns)

        return recorded("SparseSolver.solve", matrix.dtype, matrix.source, b, found, back)


def _of_entries(u: Any, v: Any, rows: Any, columns: Any) -> Any:
    return u[rows] * v[columns]


def _of_lower_entries(u: Any, v: Any, rows: Any, columns: Any) -> Any:
    """The derivatives by the entries of the lower triangle, which stand for both triangles."""
    both = u[rows] * v[columns] + u[columns] * v[rows]
    return np.select([rows > columns, rows == columns], [both, u[rows] * v[rows]], 0.0)


def _from_lower_triangle(values: Any) -> Any:
    """The symmetric matrix whose lower triangle a matrix has."""
    strict = sparse().tril(values, -1)
    return (strict + strict.T + sparse().diags(values.diagonal())).tocsc()


def _is_positive(factors: Any) -> bool:
    """Whether factors with pivots on the diagonal are those of a positive definite matrix."""
    return bool((factors.perm_r == factors.perm_c).all() and (factors.U.diagonal() > 0).all())


class SparseCG:
    """Solves A x = b by conjugate gradients on the host, for symmetric positive definite matrices.

    Example::

        x, converged = qd.linalg.SparseCG(A, b, max_iter=200).solve()

    Args:
        A: a `SparseMatrix`.
        b: the right-hand side: a field, an ndarray or a numpy array of one axis.
        x0: where to begin; zero if left out.
        max_iter: the most steps.
        atol: the length of the residual b - A x that is small enough.
    """

    def __init__(
        self, A: SparseMatrix, b: Any, x0: Any = None, max_iter: int = 50, atol: float = 1e-6
    ) -> None:
        self._matrix = A
        self._b = vector_of("SparseCG", b, A.dtype, A.n)
        self._x0 = None if x0 is None else vector_of("SparseCG", x0, A.dtype, A.n)
        self._max_iter = max_iter
        self._atol = atol

    def solve(self) -> tuple[Any, bool]:
        """The solution, a numpy array, and whether it is good enough. A Tape sees nothing of it."""
        refuse_tangents("SparseCG")
        solve = import_optional("scipy.sparse.linalg", "linalg").cg
        relative = "rtol" if "rtol" in inspect.signature(solve).parameters else "tol"
        limits = {relative: 0.0, "atol": self._atol, "maxiter": self._max_iter}
        found, failure = solve(self._matrix.scipy, self._b, self._x0, **limits)
        return found.astype(self._matrix.dtype.numpy), failure == 0
