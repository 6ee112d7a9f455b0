"""Field trees with sparse blocks, and the fields in them, of which only active elements count."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from octants.fuzz.oracle.arrays import Array
from octants.fuzz.oracle.numbers import Num, Type, lift
from octants.fuzz.oracle.quantised_fields import BitpackedFields
from octants.fuzz.oracle.races import RaceWatch
from octants.fuzz.oracle.state import STATE, IllDefined
from octants.fuzz.oracle.structs import StructField

Cell = tuple[int, ...]


def cell_of(index: Any) -> Cell:
    """The numbers of an index: of a vector, of a list, or of one number."""
    parts = index if isinstance(index, list | tuple) else getattr(index, "items", [index])
    return tuple(lift(part).__index__() for part in parts)


class Node:
    """A block of a field tree: shapes multiply on the way down, `place` gives them to fields.

    A sparse one has its active cells; a dynamic one the length of the list in each cell above it.
    """

    def __init__(
        self, parent: Node | None = None, extents: dict[int, int] | None = None, kind: str = "dense"
    ) -> None:
        self.parent = parent
        self.extents: dict[int, int] = dict(parent.extents) if parent else {}
        for axis, size in (extents or {}).items():
            self.extents[axis] = self.extents.get(axis, 1) * size
        self.kind = kind
        self.active: set[Cell] = set()
        self.lengths: dict[Cell, int] = {}
        self.fields: list[SparseArray] = []  # in it, and in the blocks below
        self.watch = RaceWatch()

    def _child(self, kind: str, axes: Any, extents: Any) -> Node:
        places = axes if isinstance(axes, tuple) else (axes,)
        sizes = extents if isinstance(extents, tuple) else (extents,) * len(places)
        return Node(self, dict(zip(places, sizes, strict=True)), kind)

    def dense(self, axes: Any, extents: Any) -> Node:
        return self._child("dense", axes, extents)

    def quant_array(self, axes: Any, extents: Any, **_: Any) -> Node:
        return self._child("dense", axes, extents)

    def pointer(self, axes: Any, extents: Any) -> Node:
        return self._child("pointer", axes, extents)

    bitmasked = pointer

    def dynamic(self, axis: int, extent: int) -> Node:
        return self._child("dynamic", axis, extent)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.extents[axis] for axis in sorted(self.extents))

    @property
    def blocks(self) -> list[Node]:
        """The sparse blocks from here to the root."""
        above = self.parent.blocks if self.parent else []
        return above if self.kind == "dense" else [self, *above]

    def place(self, *fields: Any) -> Node:
        for one in fields:
            for leaf in one.leaves if isinstance(one, StructField | BitpackedFields) else [one]:
                leaf.take_shape(self.shape)
                if isinstance(leaf, SparseArray):
                    leaf.blocks = self.blocks
                    for block in self.blocks:
                        block.fields.append(leaf)
        return self

    # -- cells -------------------------------------------------------------------------------------

    def holds(self, cell: Cell) -> bool:
        """Whether a cell, or a place of a list, is active."""
        if self.kind == "dynamic":
            return cell[-1] < self.lengths.get(cell[:-1], 0)
        return cell in self.active

    def activate(self, cell: Cell) -> None:
        if STATE.quiet:
            return
        if self.kind == "dynamic":
            self.watch.note(cell[:-1], "activate")
            self.lengths[cell[:-1]] = max(cell[-1] + 1, self.lengths.get(cell[:-1], 0))
            return
        self.watch.note(cell, "activate")
        self.active.add(cell)

    def inner(self, field: SparseArray, position: Cell) -> Cell:
        """The cell that has an element of a field."""
        pairs = zip(position, field.shape, self.shape, strict=False)
        return tuple(place // (extent // own) for place, extent, own in pairs)

    def deactivate(self, cell: Cell) -> None:
        """Empty a cell, or a list: its content becomes zero."""
        if STATE.quiet:
            return
        self.watch.note(cell, "write")
        self.active.discard(cell)
        self.lengths.pop(cell, None)
        for field in self.fields:
            for position in itertools.product(*map(range, field.shape)):
                inner = self.inner(field, position)
                if inner[: len(cell)] != cell:
                    continue
                for block in field.blocks:
                    if len(block.shape) >= len(self.shape):
                        block.active.discard(block.inner(field, position))
                        block.lengths.pop(block.inner(field, position)[:-1], None)
                field.clear(position)

    def __iter__(self) -> Iterator[Any]:
        for cell in sorted(self.active):
            numbers = tuple(lift(k) for k in cell)
            yield numbers[0] if len(numbers) == 1 else numbers


class SparseArray(Array):
    """A field that a tree may place in sparse blocks: without any, it is a dense one."""

    def __init__(
        self, dtype: Type, shape: tuple[int, ...], element: tuple[int, ...], needs_grad: bool
    ) -> None:
        super().__init__(dtype, shape, element, needs_grad)
        self.blocks: list[Node] = []

    def position(self, offset: int) -> Cell:
        """The index of the element at an offset."""
        return tuple(int(k) for k in np.unravel_index(offset // self.width, self.shape))

    def is_active(self, offset: int) -> bool:
        if not self.blocks:
            return True
        position = self.position(offset)
        return all(block.holds(block.inner(self, position)) for block in self.blocks)

    takes_seed = is_active

    def _touch(self, offset: int) -> None:
        position = self.position(offset) if self.blocks else ()
        for block in self.blocks:
            block.activate(block.inner(self, position))

    def clear(self, position: Cell) -> None:
        """Let an element be zero; its adjoint ends here."""
        offset = self.offset(position)
        for k in range(self.width):
            self.watch.note(offset + k, "write")
            self.cells[offset + k] = Num(self.dtype, 0.0)

    # -- what the host says ------------------------------------------------------------------------

    def load_initial(self, values: Sequence[Any], tangents: Sequence[float] | None) -> None:
        super().load_initial(values, tangents)
        for offset, value in enumerate(values):
            if value:
                self._touch(offset)

    def put(self, offset: int, value: Num) -> None:
        if self.is_active(offset):
            super().put(offset, value)

    # -- what kernels say --------------------------------------------------------------------------

    def write(self, offset: int, value: Any) -> None:
        self._touch(offset)
        super().write(offset, value)

    def update(self, offset: int, fn: str, value: Any, used: bool = False) -> Num:
        self._touch(offset)
        return super().update(offset, fn, value, used)

    def __getitem__(self, index: Any) -> Any:
        if self.blocks and self.blocks[0].kind == "dynamic":
            cell = cell_of(index)
            if len(cell) < len(self.shape):
                return List(self, self.blocks[0], cell)
        return super().__getitem__(index)

    def __iter__(self) -> Iterator[Any]:
        """The elements that are active when the loop begins."""
        found = enumerate(super().__iter__())
        yield from [index for number, index in found if self.is_active(number * self.width)]


class List:
    """The list in a cell."""

    def __init__(self, array: SparseArray, block: Node, cell: Cell) -> None:
        self.array = array
        self.block = block
        self.cell = cell

    def length(self) -> Num:
        self.block.watch.note(self.cell, "read")
        return lift(self.block.lengths.get(self.cell, 0))

    def append(self, value: Any) -> Num:
        before = self.block.lengths.get(self.cell, 0)
        if before >= self.array.shape[-1]:
            raise IllDefined("a list that is full")
        self.block.watch.note(self.cell, "write")
        if not STATE.quiet:
            self.array[self.cell + (before,)] = value
        return lift(before)

    def deactivate(self) -> None:
        self.block.deactivate(self.cell)


def is_active(block: Node, index: Any) -> Num:
    cell = cell_of(index)
    block.watch.note(cell, "read")
    return lift(int(block.holds(cell)))


def activate(block: Node, index: Any) -> None:
    """Activate a cell, and those around it: here the blocks above have the same first axes."""
    cell = cell_of(index)
    for one in block.blocks:
        one.activate(cell[: len(one.shape)])


def deactivate(block: Node, index: Any) -> None:
    block.deactivate(cell_of(index))
