"""Sparse matrices on the host, and their products with vectors on a Tape."""

from __future__ import annotations

from typing import Any

import numpy as np

from octants.data.ndarray import Ndarray
from octants.diagnostics.linalg_errors import (
    EntryOutOfRange,
    WrongMatrixOperand,
    WrongMatrixOption,
    WrongOperandShape,
)
from octants.diagnostics.optional_dependencies import import_optional
from octants.linalg.numpy_vectors import Source, recorded, vector_of
from octants.types.default_types import resolve
from octants.types.scalars import DType, f32, f64

_FORMATS = {"col_major": "csc_matrix", "row_major": "csr_matrix"}
_SHOWN = 10_000  # elements of a matrix that is printed in full


def check_dtype(what: str, given: Any) -> DType:
    """A type of values; `OctantsValueError` for others than f32 and f64."""
    found = resolve(given)
    if found not in (f32, f64):
        raise WrongMatrixOption(what, "dtype", str(found), "f32, f64").at()
    return found


def check_format(what: str, given: str) -> str:
    """A storage format; `OctantsValueError` for an unknown one."""
    if given not in _FORMATS:
        choices = ", ".join(f'"{name}"' for name in _FORMATS)
        raise WrongMatrixOption(what, "storage_format", repr(given), choices).at()
    return given


def sparse() -> Any:
    """scipy's sparse matrices."""
    return import_optional("scipy.sparse", "linalg")


class SparseMatrix:
    """A sparse matrix of f32 or f64 on the host.

    It is zero at first, or `sm`; `SparseMatrixBuilder.build` makes those that kernels fill.
    ``A + B``, ``A - B``, ``A * 2.0``, ``A * B`` (entry by entry) and ``A @ B`` give sparse
    matrices, ``A @ x`` a vector: an ndarray for an ndarray, else a numpy array, for a field too.
    ``A[i, j]`` reads and writes an entry; `scipy` is the matrix of scipy's itself.

    Args:
        n: the number of rows.
        m: the number of columns; as many as rows if left out.
        sm: a matrix of scipy's to begin with, instead of `n` and `m`.
        dtype: the type of the values, f32 or f64.
        storage_format: "col_major" or "row_major".

    Raises:
        OctantsValueError: for an unknown dtype or storage format, and shapes that do not fit.
        OctantsMissingDependency: scipy is not installed.
    """

    def __init__(
        self,
        n: int | None = None,
        m: int | None = None,
        sm: Any = None,
        dtype: Any = f32,
        storage_format: str = "col_major",
    ) -> None:
        self.dtype = check_dtype("SparseMatrix", dtype)
        self.storage_format = check_format("SparseMatrix", storage_format)
        self.source: Source | None = None
        if sm is None:
            rows = 1 if n is None else n
            sm = (rows, rows if m is None else m)
        self.scipy: Any = getattr(sparse(), _FORMATS[storage_format])(sm, dtype=self.dtype.numpy)

    @property
    def n(self) -> int:
        """The number of rows."""
        return int(self.scipy.shape[0])

    @property
    def m(self) -> int:
        """The number of columns."""
        return int(self.scipy.shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return self.n, self.m

    # -- entries --------------------------------------------------------------------------------

    def set_entries(self, rows: Any, columns: Any, values: Any) -> None:
        """Make this the matrix of `values` at `rows` and `columns`, three arrays of equal length.

        Values at one position add up.
        """
        kind = getattr(sparse(), _FORMATS[self.storage_format])
        numbers = np.asarray(values, self.dtype.numpy)
        self.scipy = kind((numbers, (rows, columns)), shape=self.shape, dtype=self.dtype.numpy)
        self.source = None

    def build_from_ndarray(self, ndarray: Any) -> None:
        """Make this the matrix of entries (row, column, value), an ndarray of vectors of three.

        Raises:
            OctantsValueError: the elements have not three components.
        """
        entries = ndarray.to_numpy()
        if entries.ndim < 1 or entries.shape[-1] != 3:
            operation = "build_from_ndarray"
            raise WrongOperandShape(operation, "vectors of three", f"{entries.shape}").at()
        rows, columns, values = entries.reshape(-1, 3).T
        self.set_entries(rows.astype(np.int64), columns.astype(np.int64), values)

    def __getitem__(self, index: tuple[int, int]) -> float:
        row, column = self._checked(index)
        major, minor = (column, row) if self.scipy.format == "csc" else (row, column)
        start, end = self.scipy.indptr[major : major + 2]
        found = self.scipy.indices[start:end] == minor
        return float(self.scipy.data[start:end][found].sum())

    def __setitem__(self, index: tuple[int, int], value: float) -> None:
        position = self._checked(index)
        changed = self.scipy.tolil()
        changed[position] = value
        self.scipy = changed.asformat(self.scipy.format)
        self.source = None

    def _checked(self, index: tuple[int, int]) -> tuple[int, int]:
        row, column = index
        if not (0 <= row < self.n and 0 <= column < self.m):
            raise EntryOutOfRange(row, column, str(self.shape)).at()
        return row, column

    # -- arithmetic -----------------------------------------------------------------------------

    def _like(self, found: Any) -> SparseMatrix:
        return SparseMatrix(sm=found, dtype=self.dtype, storage_format=self.storage_format)

    def _operand(self, operation: str, other: Any) -> Any:
        """The matrix of scipy's of an operand of the same shape."""
        if not isinstance(other, SparseMatrix):
            raise WrongMatrixOperand(operation, repr(other), "a SparseMatrix").at()
        if other.shape != self.shape:
            raise WrongOperandShape(operation, f"shape {self.shape}", f"{other.shape}").at()
        return other.scipy

    def __add__(self, other: SparseMatrix) -> SparseMatrix:
        return self._like(self.scipy + self._operand("A + B", other))

    def __sub__(self, other: SparseMatrix) -> SparseMatrix:
        return self._like(self.scipy - self._operand("A - B", other))

    def __iadd__(self, other: SparseMatrix) -> SparseMatrix:  # noqa: PYI034
        self.scipy, self.source = self.scipy + self._operand("A += B", other), None
        return self

    def __isub__(self, other: SparseMatrix) -> SparseMatrix:  # noqa: PYI034
        self.scipy, self.source = self.scipy - self._operand("A -= B", other), None
        return self

    def __mul__(self, other: Any) -> SparseMatrix:
        if isinstance(other, (int, float, np.number)):
            return self._like(self.scipy * self.dtype.numpy.type(other))
        return self._like(self.scipy.multiply(self._operand("A * B", other)))

    __rmul__ = __mul__

    def transpose(self) -> SparseMatrix:
        """The matrix with rows and columns exchanged."""
        return self._like(self.scipy.transpose())

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, SparseMatrix):
            if other.n != self.m:
                raise WrongOperandShape("A @ B", f"shape {self.shape}", f"{other.shape}").at()
            return self._like(self.scipy @ other.scipy)
        if isinstance(other, Ndarray):
            return self._product(other)
        return self.scipy @ vector_of("A @ x", other, self.dtype, self.m)

    def _product(self, x: Ndarray) -> Ndarray:
        """The product with an ndarray, recorded where a Tape is."""
        matrix, values = self.scipy, vector_of("A @ x", x, self.dtype, self.m)

        def back(adjoint: Any) -> Any:
            return matrix.T @ adjoint, lambda rows, columns: adjoint[rows] * values[columns]

        return recorded("A @ x", self.dtype, self.source, x, matrix @ values, back)

    # -- text -----------------------------------------------------------------------------------

    def __repr__(self) -> str:
        if self.n * self.m > _SHOWN:
            stored = f"{self.scipy.nnz} entries of {self.dtype}"
            return f"<SparseMatrix of {self.n} x {self.m}, {stored}>"
        rows = [[f"{value:g}" for value in row] for row in self.scipy.toarray()]
        width = max((len(text) for row in rows for text in row), default=0)
        return "\n".join("[" + ", ".join(text.rjust(width) for text in row) + "]" for row in rows)

    def mmwrite(self, filename: str) -> None:
        """Write a file of the Matrix Market format: `scipy.io.mmread` reads it."""
        import_optional("scipy.io", "linalg").mmwrite(filename, self.scipy)
