"""Sparse blocks on the host: their activity, what kernels need of them, and host writes.

Example: of ``root.pointer(i, 4).dense(i, 8).place(x)``, `activity` has 4 flags. ``x[9] = 1`` sets
the second flag; ``x.fill(1)`` then sets ``x[8]`` to ``x[15]``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from octants.data.axes import Axes
from octants.types.sparsity import BlockInfo, CellArray, SparseLevel, Sparsity

Array = np.ndarray[Any, Any]


class TreeBlock(Protocol):
    """A block of a field tree, or a place node in one; see `octants.data.tree.SNode`."""

    kind: str
    axes: Axes
    extents: tuple[int, ...]
    above: Any

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def is_sparse(self) -> bool: ...

    @property
    def activity(self) -> Any: ...

    def path(self) -> list[Any]: ...

    def walk(self) -> Iterator[Any]: ...

    def all_axes(self) -> Axes: ...


# -- what kernels need -----------------------------------------------------------------------------


def sparsity_of(node: TreeBlock, offset: tuple[int, ...] = ()) -> Sparsity | None:
    """The sparse blocks on the path to the cells of a block; None if there are none."""
    path = node.path()
    if all(not each.is_sparse for each in path):
        return None
    axes = node.all_axes()
    levels = [_level(each, axes) for each in path if each.is_sparse]
    return Sparsity(node.shape, tuple(levels), offset)


def _level(node: TreeBlock, axes: Axes) -> SparseLevel:
    own = dict(zip(node.axes, node.extents, strict=True))
    block = tuple(own.get(axis, 1) for axis in axes)
    return SparseLevel(node.kind, _cells(node, axes), block, node.activity)


def _cells(node: TreeBlock, axes: Axes) -> tuple[int, ...]:
    """The cells of a block along some axes, in all blocks above together."""
    counts = dict(zip(node.all_axes(), node.shape, strict=True))
    return tuple(counts.get(axis, 1) for axis in axes)


def info_of(node: TreeBlock) -> BlockInfo:
    """The description of a block for kernels."""
    found = sparsity_of(node) or Sparsity(node.shape, ())
    contents = tuple(_contents(node))
    lists: tuple[int, ...] = ()
    if node.kind == "dynamic":
        axes = node.all_axes()
        lists = tuple(axes.index(axis) for axis in node.above.all_axes())
    return BlockInfo(node.kind, repr(node), found, contents, lists)


def _contents(node: TreeBlock) -> list[CellArray]:
    """The arrays below a block, and its own lists, by the axes of its cells.

    Those of the lists of a dynamic block are the axes of the cells that the lists are in.
    """
    above = node.above if node.kind == "dynamic" and node.above is not None else node
    axes, found = above.all_axes(), []
    for each in node.walk():
        if each.kind == "place":
            field: Any = each.field
            if field is not None and field.primal is field:
                found.append(_content(field, False, each, axes))
        elif each.is_sparse and (each is not node or node.kind == "dynamic"):
            lists = each.above if each.kind == "dynamic" else each
            assert lists is not None
            found.append(_content(each.activity, True, lists, axes))
    return list(dict.fromkeys(found))


def _content(array: Any, is_activity: bool, node: TreeBlock, axes: Axes) -> CellArray:
    own = node.all_axes()
    along = tuple(axes.index(axis) if axis in axes else -1 for axis in own)
    return CellArray(array, is_activity, along, node.shape)


# -- host ------------------------------------------------------------------------------------------


def activate(sparsity: Sparsity, index: tuple[int, ...]) -> None:
    """Activate the cells that an element lies in; the index counts from 0."""
    for level in sparsity.levels:
        extents = zip(index, level.cells, sparsity.shape, strict=True)
        coordinates = [k * n // extent for k, n, extent in extents]
        if not level.is_dynamic:
            _raise(level.activity, _number(coordinates, level.cells), 1)
            continue
        lists = [k // size for k, size in zip(coordinates, level.block, strict=True)]
        inside = [k % size for k, size in zip(coordinates, level.block, strict=True)]
        _raise(level.activity, _number(lists, level.lists), 1 + sum(inside))


def _raise(activity: Any, number: int, least: int) -> None:
    if activity[number] < least:
        activity[number] = least


def _number(coordinates: list[int], extents: tuple[int, ...]) -> int:
    """The row-major number of a cell."""
    number = 0
    for coordinate, extent in zip(coordinates, extents, strict=True):
        number = number * extent + coordinate
    return number


def active_elements(sparsity: Sparsity) -> Array:
    """Which elements lie in active cells, as an array of bools of their shape."""
    level = sparsity.levels[-1]
    values = level.activity.to_numpy()
    if level.is_dynamic:
        lists = _repeated(values.reshape(level.lists), level.cells)
        inside = np.zeros(level.cells, np.int64)
        for axis, size in enumerate(level.block):
            shape = [1] * len(level.block)
            shape[axis] = level.cells[axis]
            inside = inside + (np.arange(level.cells[axis]) % size).reshape(shape)
        flags = inside < lists
    else:
        flags = values.reshape(level.cells) != 0
    return _repeated(flags, sparsity.shape)


def _repeated(values: Array, shape: tuple[int, ...]) -> Array:
    """Values of cells as those of the elements in them."""
    for axis, extent in enumerate(shape):
        values = np.repeat(values, extent // values.shape[axis], axis)
    return values


def only_active(sparsity: Sparsity, values: Any, element_rank: int) -> Any:
    """Values for all elements, with zeros for those in cells that are not active."""
    flags = active_elements(sparsity)
    given = np.asarray(values)
    zero = np.zeros((), given.dtype)
    return np.where(flags.reshape(flags.shape + (1,) * element_rank), given, zero)
