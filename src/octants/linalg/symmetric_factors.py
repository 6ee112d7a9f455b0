"""Factors L D L^T of symmetric matrices by QDLDL, where that is installed.

QDLDL works on half of the entries, so it takes half as long as SuperLU, which has no symmetric
factors. To find an ordering takes a third of the rest. A program that factorises a matrix in each
time step has the same pattern each time: factors that nothing uses any more are kept, one at a
time, and a matrix of the same pattern takes over their memory and ordering.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from octants.diagnostics.optional_dependencies import find_optional, import_optional

_MOST_KEPT = 1_000_000  # entries of a matrix whose factors are kept
_BACKWARD_ERROR = 1e-12
_unused: list[tuple[_Pattern, Any]] = []


class _Pattern:
    """The pattern of a matrix in scipy's format of compressed columns or rows.

    The lower triangle by rows is the upper one by columns, which QDLDL reads: `indices` and
    `starts`. It has the entries at `taken` of the matrix.
    """

    def __init__(self, matrix: Any) -> None:
        sparse = import_optional("scipy.sparse", "linalg")
        self._of = matrix.format, matrix.shape, matrix.indptr.copy(), matrix.indices.copy()
        numbers = np.arange(1.0, len(matrix.indices) + 1)
        numbered = type(matrix)((numbers, matrix.indices, matrix.indptr), matrix.shape)
        lower = sparse.tril(numbered, format="csr")
        lower.sort_indices()
        self.starts, self.indices = lower.indptr, lower.indices
        self.taken = lower.data.astype(np.int64) - 1

    def is_of(self, matrix: Any) -> bool:
        """Whether a matrix has this pattern."""
        kind, shape, starts, indices = self._of
        return (
            (matrix.format, matrix.shape) == (kind, shape)
            and np.array_equal(matrix.indptr, starts)
            and np.array_equal(matrix.indices, indices)
        )

    def upper(self, matrix: Any) -> Any:
        """The upper triangle of a matrix of this pattern, from its lower one."""
        sparse = import_optional("scipy.sparse", "linalg")
        values = matrix.data[self.taken].astype(np.float64)
        return sparse.csc_matrix((values, self.indices, self.starts), matrix.shape)


class SymmetricFactors:
    """The factors of a matrix; see `factorise`."""

    def __init__(self, pattern: _Pattern, solver: Any) -> None:
        self._pattern = pattern
        self._solver = solver

    def solve(self, b: Any, _: str = "N") -> Any:
        """The solution for a right-hand side of f64; that of the transposed matrix is the same."""
        return self._solver.solve(b)

    def is_positive(self) -> bool:
        """Whether the matrix is positive definite."""
        _, diagonal, _ = self._solver.factors()
        return bool((diagonal > 0).all())

    def __del__(self) -> None:
        if len(self._pattern.taken) <= _MOST_KEPT:
            _unused[:] = [(self._pattern, self._solver)]


def factorise(matrix: Any) -> SymmetricFactors | None:
    """The factors of the symmetric matrix whose lower triangle a matrix of scipy has.

    None if QDLDL is not installed, or finds none: it takes pivots from the diagonal only, so it
    needs a diagonal of entries, and no pivot may be zero or small.
    """
    qdldl = find_optional("qdldl")
    if qdldl is None:
        return None
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    kept = _take_unused()
    try:
        if kept is not None and kept[0].is_of(matrix):
            pattern, solver = kept
            upper = pattern.upper(matrix)
            solver.update(upper, upper=True)
            if _are_factors(solver, upper):
                return SymmetricFactors(pattern, solver)
        pattern = _Pattern(matrix)
        upper = pattern.upper(matrix)
        solver = qdldl.Solver(upper, upper=True)
    except (RuntimeError, ValueError):  # the second where the triangle has no entries
        return None
    return SymmetricFactors(pattern, solver) if _are_factors(solver, upper) else None


def _are_factors(solver: Any, upper: Any) -> bool:
    """Whether a solver solves a system of the matrix with an upper triangle.

    It does not if pivots are small. And an update does not report a pivot of zero: it leaves the
    factors of an earlier matrix from there on.
    """
    b = np.cos(np.arange(1.0, upper.shape[0] + 1))
    with np.errstate(all="ignore"):
        found = solver.solve(b)
        product = upper @ found + upper.T @ found - upper.diagonal() * found
        most = np.abs(upper.data).max() * np.abs(found).max() + 1.0
        return bool(np.abs(product - b).max() <= _BACKWARD_ERROR * most)


def _take_unused() -> tuple[_Pattern, Any] | None:
    try:
        return _unused.pop()
    except IndexError:  # there are none, or another thread has taken them
        return None
