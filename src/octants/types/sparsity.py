"""Sparse blocks as kernels see them: which cells are active, and what lies in a cell.

All elements have addresses, as those of dense blocks have; an array of i32, the `activity` of a
block, says which cells are in use. What lies in a cell that is not active is zero, so that a read
need not ask. See `octants.frontend.memory.sparse_access` for what kernels do with that.
"""

from __future__ import annotations

import math
from typing import Any

from octants.lazy_dataclass import dataclass

MOST_CELLS = 1 << 26
"""The most cells of a sparse block: a launch may list all of them."""


@dataclass(frozen=True, slots=True)
class SparseLevel:
    """A sparse block on the path to an element.

    There are `cells` along each axis of the element's index, and `block` of them in one cell of the
    block above. `activity` is a handle of a field of i32, of one axis: a flag for each cell in
    row-major order; or of a dynamic block, the length of the list in each cell of the block above.
    """

    kind: str
    cells: tuple[int, ...]
    block: tuple[int, ...]
    activity: Any

    @property
    def is_dynamic(self) -> bool:
        """Whether the active cells of the block are the first ones of a list."""
        return self.kind == "dynamic"

    @property
    def lists(self) -> tuple[int, ...]:
        """The cells of the block above along each axis: a dynamic block has a list in each."""
        return tuple(n // size for n, size in zip(self.cells, self.block, strict=True))

    @property
    def count(self) -> int:
        """How many cells there are."""
        return math.prod(self.cells)


@dataclass(frozen=True, slots=True)
class Sparsity:
    """The sparse blocks on the path to elements of a `shape`, outermost first."""

    shape: tuple[int, ...]
    levels: tuple[SparseLevel, ...]
    offset: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CellArray:
    """An array with elements in the cells of a block: a field, or the activity of a block below.

    `axes` has, for each index of the array, the axis of the block that it runs along; -1: none of
    them. There are `extents` along the indices, of which an activity has the row-major number.
    """

    array: Any
    is_activity: bool
    axes: tuple[int, ...]
    extents: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BlockInfo:
    """A block of a field tree, for kernels: its cells, and what lies in them.

    Of a dynamic block, `list_axes` are those axes of its cells that the cells around lists have.
    """

    kind: str
    name: str
    sparsity: Sparsity
    contents: tuple[CellArray, ...]
    list_axes: tuple[int, ...] = ()
