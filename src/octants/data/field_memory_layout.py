"""Lays out the fields of a tree in its memory.

A cell holds its children one after the other, each aligned to its own needs, like a C struct; a
block is the array of its cells. Example, with f32 x and f64 y::

    root.dense(i, 4).place(x, y)      cell of 16 bytes: x at 0, y at 8
                                      x[i] at 0 + i * 16, y[i] at 8 + i * 16

Blocks of which there is one cell around, such as the outermost ones, begin at a multiple of
`ROOT_ALIGNMENT`. So does each field without gaps between its elements: a cell with other fields
would make gaps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from octants.data.axes import Axes
from octants.data.errors import UnevenComponents
from octants.data.tree import Placeable, PlaceNode, SNode
from octants.lazy_dataclass import dataclass
from octants.types.layouts import Layout, Term, row_major

ROOT_ALIGNMENT = 64  # blocks of different fields share no cache line


@dataclass(frozen=True, slots=True)
class NodeSize:
    """The bytes of all cells of a node, of one of them, and what its address is a multiple of."""

    total: int
    cell: int
    alignment: int


class Placement:
    """Sizes and offsets of some outermost blocks of a tree, and of all nodes in them."""

    def __init__(self, root: SNode, blocks: Sequence[SNode]) -> None:
        self._blocks = blocks
        self._sizes: dict[SNode, NodeSize] = {}
        self._offsets: dict[SNode, int] = {root: 0}
        self.nbytes = self._measure(root).total

    def _measure(self, node: SNode) -> NodeSize:
        if isinstance(node, PlaceNode):
            total = node.count * node.dtype.size
            size = NodeSize(total, total, node.dtype.size)
        else:
            size = self._measure_block(node)
        self._sizes[node] = size
        return size

    def _measure_block(self, node: SNode) -> NodeSize:
        position, alignment = 0, 1
        least = ROOT_ALIGNMENT if math.prod(node.shape) == 1 else 1
        for child in self._blocks if node.above is None else node.children:
            size = self._measure(child)
            needed = max(size.alignment, least)
            position = _round_up(position, needed)
            self._offsets[child] = position
            position += size.total
            alignment = max(alignment, needed)
        cell = _round_up(position, alignment)
        return NodeSize(cell * math.prod(node.extents), cell, alignment)

    def locate(self, field: Placeable) -> tuple[Layout, int]:
        """The layout of a field, and the offset of its first element in the tree's memory."""
        if None in field.place_nodes:
            node = field.place_nodes[None]
            strides = row_major(field.element_shape, field.dtype.size)
            return self._layout(node, strides), self._offset(node)
        return self._locate_components(field)

    def _locate_components(self, field: Placeable) -> tuple[Layout, int]:
        """Of a field whose components are placed one by one."""
        first = (0,) * len(field.element_shape)
        start = self._offset(field.place_nodes[first])
        strides = []
        for axis, extent in enumerate(field.element_shape):
            second = tuple(int(other == axis) for other in range(len(first)))
            step = (
                self._offset(field.place_nodes[second]) - start if extent > 1 else field.dtype.size
            )
            strides.append(step)
        layout = self._layout(field.place_nodes[first], tuple(strides))
        for component, node in field.place_nodes.items():
            assert component is not None
            expected = start + sum(k * step for k, step in zip(component, strides, strict=True))
            same = self._layout(node, layout.element_strides) == layout
            if self._offset(node) != expected or not same:
                raise UnevenComponents(field.describe()).at()
        return layout, start

    def _offset(self, place_node: SNode) -> int:
        return sum(self._offsets[above] for above in place_node.path())

    def _layout(self, place_node: PlaceNode, element_strides: tuple[int, ...]) -> Layout:
        axes = place_node.all_axes()
        parts: list[list[tuple[int, int]]] = [[] for _ in axes]
        for node in place_node.path()[:-1]:
            strides = row_major(node.extents, self._sizes[node].cell)
            for axis, extent, stride in zip(node.axes, node.extents, strides, strict=True):
                parts[axes.index(axis)].append((extent, stride))
        terms = [term for axis in range(len(axes)) for term in _terms(axis, parts[axis])]
        return Layout(_shape(axes, parts), tuple(terms), element_strides)


def _shape(axes: Axes, parts: list[list[tuple[int, int]]]) -> tuple[int, ...]:
    return tuple(math.prod(extent for extent, _ in parts[axis]) for axis in range(len(axes)))


def _terms(axis: int, parts: list[tuple[int, int]]) -> list[Term]:
    """The terms of an axis from the (extent, stride) of its levels, outermost first."""
    levels: list[tuple[int, int]] = []
    for extent, stride in parts:
        if extent == 1:
            continue
        if levels and levels[-1][1] == extent * stride:
            levels[-1] = (levels[-1][0] * extent, stride)  # the two count on without a gap
        else:
            levels.append((extent, stride))
    terms = []
    for level, (extent, stride) in enumerate(levels):
        divisor = math.prod(inner for inner, _ in levels[level + 1 :])
        terms.append(Term(axis, divisor, extent if level else 0, stride))
    return terms


def _round_up(position: int, alignment: int) -> int:
    return -(-position // alignment) * alignment
