"""A list of entries (row, column, value) that kernels add to and a matrix is made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from octants.data.ndarray import ndarray
from octants.diagnostics.linalg_errors import EntryOutOfRange, TooManyEntries, WrongMatrixOption
from octants.linalg.sparse_matrix import SparseMatrix, check_dtype, check_format
from octants.types.scalars import f32, i32


class SparseMatrixBuilder:
    """Collects the entries of a sparse matrix; kernels add to it by ``A[i, j] += value``.

    It is passed to a parameter ``A: qd.types.sparse_matrix_builder()``. Entries of one position are
    summed up by `build`, which makes the matrix and empties the builder.

    Args:
        num_rows: the rows of the matrix.
        num_cols: its columns; as many as rows if left out.
        max_num_triplets: the capacity: how many entries can be added between two calls of `build`.
        dtype: the type of the values, f32 or f64.
        storage_format: "col_major" or "row_major": the order in which `build` stores them.
        needs_grad: whether a Tape computes the derivatives of a loss by the entries: by solves
            and products with the matrix, back to what kernels added.
        device: the number of the GPU on which kernels add to it; that of `init` if left out.

    Raises:
        OctantsValueError: for an unknown dtype or storage format, or if there is no such device.

    Example::

        K = qd.linalg.SparseMatrixBuilder(n, n, max_num_triplets=3 * n)

        @qd.kernel
        def fill(K: qd.types.sparse_matrix_builder()):
            for i in range(n):
                K[i, i] += 2.0

        fill(K)
        A = K.build()
    """

    def __init__(
        self,
        num_rows: int,
        num_cols: int | None = None,
        max_num_triplets: int = 0,
        dtype: Any = f32,
        storage_format: str = "col_major",
        *,
        needs_grad: bool = False,
        device: int | None = None,
    ) -> None:
        self.num_rows = num_rows
        self.num_cols = num_rows if num_cols is None else num_cols
        self.max_num_triplets = max_num_triplets
        self.dtype = check_dtype("SparseMatrixBuilder", dtype)
        self.storage_format = check_format("SparseMatrixBuilder", storage_format)
        for name, extent in (("num_rows", self.num_rows), ("num_cols", self.num_cols)):
            if extent < 1:
                raise WrongMatrixOption("SparseMatrixBuilder", name, str(extent), "1, 2, ...").at()
        self.rows = ndarray(i32, max_num_triplets, device=device)
        self.columns = ndarray(i32, max_num_triplets, device=device)
        self.values = ndarray(self.dtype, max_num_triplets, needs_grad=needs_grad, device=device)
        self.count = ndarray(i32, 1, device=device)

    def print_triplets(self) -> None:
        """Print the entries, in the order in which they came."""
        rows, columns, values = self._entries()
        size = f"n={self.num_rows}, m={self.num_cols}"
        print(f"{size}, num_triplets={len(rows)} (max={self.max_num_triplets})")
        for row, column, value in zip(rows, columns, values, strict=True):
            print(f"[{row}, {column}] = {value:g}")

    def build(self, dtype: Any = None, _format: str = "CSR") -> SparseMatrix:
        """The matrix of the entries, those of one position summed up; the builder is empty then.

        Args:
            dtype: the type of its values; the builder's if left out.

        Raises:
            OctantsRuntimeError: more entries were added than the capacity.
            OctantsIndexError: an entry is outside of the matrix.
        """
        kind = self.dtype if dtype is None else check_dtype("build", dtype)
        rows, columns, values = self._entries()
        self.count.fill(0)
        shape = (self.num_rows, self.num_cols)
        above = [np.max(each.view(np.uint32), initial=0) for each in (rows, columns)]
        if above[0] >= shape[0] or above[1] >= shape[1]:  # as unsigned, so negative ones are, too
            outside = (rows < 0) | (rows >= shape[0]) | (columns < 0) | (columns >= shape[1])
            first = int(np.argmax(outside))
            raise EntryOutOfRange(int(rows[first]), int(columns[first]), str(shape)).at()
        found = SparseMatrix(*shape, dtype=kind, storage_format=self.storage_format)
        found.set_entries(rows, columns, values)
        if self.values.has_grad():
            found.source = self.values.grad, rows, columns
        return found

    def _entries(self) -> tuple[Any, Any, Any]:
        """The rows, columns and values that were added since the last `build`."""
        count = self.count[0]
        if count > self.max_num_triplets:
            raise TooManyEntries(count, self.max_num_triplets).at()
        rows, columns, values = (
            each.to_numpy()[:count] for each in (self.rows, self.columns, self.values)
        )
        return rows, columns, values
