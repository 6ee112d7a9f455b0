"""Square matrices of 16 or 32 rows in registers, of which each lane of a subgroup holds one row.

``tile[:] = array[i:j, k:n]`` loads the part of an array that fits, ``array[i:j, k:n] = tile``
stores it: row ``i + lane`` belongs to a lane. Lanes behind ``j``, and columns from ``n`` on, are
left alone. ``array[i:j, k]`` is a column, an element for each lane, 0 behind ``j``; and
``tile -= outer(v, w)`` subtracts the outer product of two columns. Leading indices, as in
``array[b, i:j, k:n]``, choose a matrix of a batch. All lanes have to come to each of these but
loads and stores.
"""

from __future__ import annotations

import functools
from typing import Any

from octants.lang.directives import static, static_assert
from octants.lang.library_function_marks import kernel_only, library_function
from octants.lang.scalar_functions import max as larger
from octants.lang.scalar_functions import min as smaller
from octants.lang.scalar_functions import select, sqrt
from octants.lang.simt.subgroup import invocation_id, shuffle
from octants.types.matrix_types import vector
from octants.types.parameter_annotations import CompileTime
from octants.types.structs import StructType


class Tile:
    """The tiles of a size; `zeros` and `eye` make one in a kernel."""

    def __init__(self, size: int) -> None:
        self.SIZE = size

        @kernel_only
        def zeros(dtype: Any = None) -> Any:
            """A tile of zeros; its elements are of the default float type unless given."""

        @kernel_only
        def eye(dtype: Any = None) -> Any:
            """The identity; its elements are of the default float type unless given."""

        self.zeros, self.eye = zeros, eye


Tile16x16, Tile32x32 = Tile(16), Tile(32)


@library_function
def eye_(self: Any) -> None:
    """Become the identity."""
    for k in static(range(self.r.n)):
        self.r[k] = select(invocation_id() == k, 1, 0)


@library_function
def cholesky_(self: Any, eps: Any) -> None:
    """Become the lower triangular L with L @ L.transpose() equal to the tile's lower triangle.

    The square of each pivot is at least the `eps` of its lane. What is above the diagonal stays.
    """
    lane = invocation_id()
    for k in static(range(self.r.n)):
        pivot = sqrt(shuffle(larger(self.r[k], eps), k))
        below = self.r[k] / pivot
        self.r[k] = select(lane > k, below, select(lane == k, pivot, self.r[k]))
        for j in static(range(k + 1, self.r.n)):
            rest = self.r[j] - below * shuffle(below, j)
            self.r[j] = select(lane >= j, rest, self.r[j])


@library_function
def solve_triangular_(self: Any, B: CompileTime, lower: CompileTime = True) -> None:  # noqa: N803
    """Have tile `B` become the X with X @ self.transpose() equal to B; `self` is lower triangular.

    A zero on its diagonal gives infinities or NaNs.
    """
    static_assert(lower, "a tile solves for lower triangles only")
    for k in static(range(self.r.n)):
        total = B.r[k]
        for j in static(range(k)):
            total -= B.r[j] * shuffle(self.r[j], k)
        B.r[k] = total / shuffle(self.r[k], k)


@functools.cache
def tile_type(size: int, dtype: Any) -> StructType:
    """The struct that a tile is: `r` is the row of the lane."""
    methods = {method.__name__: method for method in (eye_, cholesky_, solve_triangular_)}
    return StructType({"r": vector(size, dtype)}, methods, f"Tile{size}x{size}")


@library_function
def load(
    tile: CompileTime,
    array: CompileTime,
    batch: CompileTime,
    rows: CompileTime,
    columns: CompileTime,
) -> None:
    """``tile[:] = array[*batch, rows[0]:rows[1], columns[0]:columns[1]]``"""
    row = rows[0] + invocation_id()
    if row < smaller(rows[1], array.shape[len(batch)]):
        end = smaller(columns[1], array.shape[len(batch) + 1])
        for k in static(range(tile.r.n)):
            if columns[0] + k < end:
                tile.r[k] = array[batch, row, columns[0] + k]


@library_function
def store(
    tile: CompileTime,
    array: CompileTime,
    batch: CompileTime,
    rows: CompileTime,
    columns: CompileTime,
) -> None:
    """``array[*batch, rows[0]:rows[1], columns[0]:columns[1]] = tile``"""
    row = rows[0] + invocation_id()
    if row < smaller(rows[1], array.shape[len(batch)]):
        end = smaller(columns[1], array.shape[len(batch) + 1])
        for k in static(range(tile.r.n)):
            if columns[0] + k < end:
                array[batch, row, columns[0] + k] = tile.r[k]


@library_function
def column(
    array: CompileTime, batch: CompileTime, rows: CompileTime, number: CompileTime, zero: Any
) -> Any:
    """``array[*batch, rows[0]:rows[1], number]``: the element of the lane's row, or ``zero``."""
    row = rows[0] + invocation_id()
    result = zero
    if row < smaller(rows[1], array.shape[len(batch)]):
        result = array[batch, row, number]
    return result


@library_function
def subtract_outer(tile: CompileTime, left: Any, right: Any) -> None:
    """``tile -= outer(left, right)``"""
    for k in static(range(tile.r.n)):
        tile.r[k] -= left * shuffle(right, k)
