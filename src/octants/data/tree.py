"""Trees of blocks that fields are placed in: ``root.dense(i, n).place(x, x.grad)``.

A tree is described first, and allocated as one piece of memory when one of its fields is first
used; `root` is then the beginning of a new tree.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from octants.data import current_runtime, host_access_events
from octants.data.axes import Axes, check_axes, check_dimensions, check_extents, check_offset
from octants.data.errors import (
    CannotPlace,
    NotFinalized,
    PlacedTwice,
    TreeIsAllocated,
    UnsupportedNode,
    UsedAfterDestroy,
    UsedAfterReset,
    WrongArrayOption,
    describe,
)
from octants.deferred_import import Deferred
from octants.diagnostics.exceptions import InternalError
from octants.internal_members import internal
from octants.runtime.device import Device
from octants.types import array_factory_hooks
from octants.types.companions import Companion
from octants.types.enums import SNodeGradType
from octants.types.scalars import DType
from octants.types.sparsity import MOST_CELLS, BlockInfo, Sparsity

if TYPE_CHECKING:
    from octants.data import sparse_blocks
    from octants.diagnostics import sparse_block_errors
else:
    sparse_blocks = Deferred("octants.data.sparse_blocks")
    sparse_block_errors = Deferred("octants.diagnostics.sparse_block_errors")

_GRAD_TYPES = {
    Companion.PRIMAL: SNodeGradType.PRIMAL,
    Companion.ADJOINT: SNodeGradType.ADJOINT,
    Companion.TANGENT: SNodeGradType.DUAL,
    Companion.ADJOINT_TANGENT: SNodeGradType.DUAL,
}

COMPANION_WORDS = {
    Companion.PRIMAL: ("field", "", ""),
    Companion.ADJOINT: ("gradient", "needs_grad", "grad"),
    Companion.TANGENT: ("dual", "needs_dual", "dual"),
    Companion.ADJOINT_TANGENT: ("dual of the gradient", "needs_dual", "dual"),
}
"""The name of a companion, the option that requests it, and its attribute."""


class Placeable(Protocol):
    """A field or a companion of one, as a tree sees it."""

    dtype: DType
    element_shape: tuple[int, ...]
    companion: Companion
    place_nodes: dict[tuple[int, ...] | None, PlaceNode]
    """Its place node; or one for each component, by the index in the element."""

    @property
    def primal(self) -> Any: ...

    def note_placed(self, offset: tuple[int, ...] | None) -> None:
        """Take notice of being placed."""

    def require_placeable(self) -> None:
        """An error if it is too late to place this."""

    def describe(self) -> str:
        """The field in the words of a message."""


Component = tuple[Placeable, tuple[int, ...] | None]
"""The content of a place node: a field and None, or one component of its elements."""


_USE_POINTER = "use `pointer`: cells that are not in use take no time"


def _missing(*_: Any) -> Any:
    raise InternalError("a part of octants is used without the whole")


make_activity: Callable[[str, int, Device], Any] = _missing
"""Makes a field of i32 with a name and as many elements on a device; `octants.data.field` has it.
"""

deactivate_cells: Callable[[SNode], None] = _missing
"""Deactivates all cells of a sparse block by a kernel; `octants.sparse` has it."""


sparse_trees: weakref.WeakSet[Tree] = weakref.WeakSet()
"""The trees that have sparse blocks."""


class SNode:
    """A block of a field tree: an array of cells, each of which holds the children of the block.

    The cells of a sparse block (`pointer`, `bitmasked`, `dynamic`) are active or not. A kernel
    activates a cell by writing to it; loops over a field or a block visit active cells only, and
    what is not active reads as zero.
    """

    kind = "dense"
    _activity: Any = None

    @internal
    def __init__(
        self, tree: Tree, above: SNode | None, axes: Axes, extents: tuple[int, ...]
    ) -> None:
        self.tree = tree
        self.above = above
        ordered = sorted(zip(axes, extents, strict=True), key=lambda pair: pair[0].number)
        self.axes: Axes = tuple(axis for axis, _ in ordered)
        self.extents: tuple[int, ...] = tuple(extent for _, extent in ordered)
        self.children: list[SNode] = []

    # -- building -------------------------------------------------------------------------------

    def dense(self, axes: Any, dimensions: Any) -> SNode:
        """A block of ``dimensions`` cells along ``axes`` in each cell of this one.

        An axis may occur on several levels: ``dense(i, 4).dense(i, 8)`` is 32 elements.
        """
        return self._add("dense", axes, dimensions)

    def _add(self, kind: str, indices: Any, dimensions: Any) -> SNode:
        axes = check_axes(indices)
        extents = check_dimensions(f"a {kind} block", axes, dimensions)
        self.tree.require_open(f"{kind}()")
        node = SNode(self.tree, self, axes, extents)
        node.kind = kind
        if node.is_sparse and math.prod(node.shape) > MOST_CELLS:
            raise sparse_block_errors.TooManyCells(kind, math.prod(node.shape), MOST_CELLS).at()
        self.children.append(node)
        if node.is_sparse:
            sparse_trees.add(self.tree)
        return node

    def place(self, *fields: Any, offset: Any = None) -> SNode:
        """Place fields in the cells of this block, or their ``grad`` and ``dual``; gives the block.

        `fields` are made without a shape; `offset` is the index of the first element, an integer
        for each axis. Example::

            x = qd.field(qd.f32)
            y = qd.field(qd.f32)
            qd.root.dense(qd.i, 100).place(x, y)  # x[0], y[0], x[1], y[1], ...

        Raises:
            OctantsRuntimeError: a field is placed already, or the tree is in use.
        """
        self.tree.require_open("place()")
        components = list(_components(fields))
        _check_not_placed(components)
        origin = check_offset("place()", offset, len(self.all_axes()))
        check_extents("place()", self.shape, origin)
        for field, component in components:
            node = PlaceNode(self, field, component)
            self.children.append(node)
            field.place_nodes[component] = node
            field.note_placed(origin)
        return self

    def lazy_grad(self) -> None:
        """Place gradients of all fields of floats in this block, in blocks like theirs."""
        self._add_companions(Companion.ADJOINT, "lazy_grad()")

    def lazy_dual(self) -> None:
        """Place duals of all fields of floats in this block, in blocks like theirs."""
        self._add_companions(Companion.TANGENT, "lazy_dual()")

    def _add_companions(self, companion: Companion, what: str) -> None:
        self.tree.require_open(what)
        mirror = Mirror(self.tree)
        for node, field in list(self.placed()):
            if field.companion is Companion.PRIMAL and field.dtype.is_float:
                mirror.place(node, field.companion_array(companion))

    def pointer(self, axes: Any, dimensions: Any) -> SNode:
        """A sparse block; a cell holds blocks, which become active together.

        Args:
            axes: The axes, as for `dense`.
            dimensions: The number of cells along each axis.

        Returns:
            The block. All its cells have addresses, and on GPUs memory; see the page on sparse
            fields.
        """
        return self._add("pointer", axes, dimensions)

    def bitmasked(self, axes: Any, dimensions: Any) -> SNode:
        """A sparse block like `pointer`, with cells that are small, often single elements.

        It has `dimensions` cells along `axes`.
        """
        return self._add("bitmasked", axes, dimensions)

    def hash(self, *_: Any, **__: Any) -> SNode:
        """Not supported; use `pointer`.

        Raises:
            OctantsRuntimeError: always.
        """
        raise UnsupportedNode("hash", _USE_POINTER).at()

    def dynamic(self, axis: Any, dimension: Any, chunk_size: int | None = None) -> SNode:
        """A list of up to `dimension` cells in each cell of this block; see `append`.

        Args:
            axis: one axis, along which the lists lie.
            dimension: the most cells of a list.
            chunk_size: accepted for Quadrants' sake; lists have no chunks.

        Raises:
            OctantsValueError: there are several axes, or `chunk_size` is not positive.
        """
        if len(check_axes(axis)) != 1:
            raise WrongArrayOption("dynamic()", "axis", "is a single axis").at()
        if chunk_size is not None and chunk_size < 1:
            raise WrongArrayOption("dynamic()", "chunk_size", "is a positive integer").at()
        return self._add("dynamic", axis, dimension)

    def deactivate_all(self) -> None:
        """Deactivate all cells of this block and of those in it; what is in them becomes zero."""
        if self.is_sparse:
            deactivate_cells(self)
            return
        for child in list(self.children):
            child.deactivate_all()

    def quant_array(self, axes: Any, dimensions: Any, max_num_bits: int) -> Any:
        """A word in each cell of this block that several elements of a quantised field share.

        ``dense(i, 4).quant_array(i, 8, max_num_bits=32).place(x)`` places a field of 32 elements of
        up to 4 bits. It takes one field, of `types.quant.int` or `types.quant.fixed`.

        Args:
            axes: the axes along which elements share a word.
            dimensions: how many elements do, along each axis.
            max_num_bits: the bits of the word: 8, 16, 32 or 64.
        """
        return array_factory_hooks.make("quant_array", self, axes, dimensions, max_num_bits)

    # -- asking ---------------------------------------------------------------------------------

    def parent(self, n: int = 1) -> SNode | None:
        """The block that this is in; for larger n, the block that is in, and so on."""
        node: SNode | None = self
        for _ in range(n):
            node = None if node is None else node.above
        return node

    @internal
    def path(self) -> list[SNode]:
        """The blocks from the root to this one."""
        above = [] if self.above is None else self.above.path()
        return [*above, self]

    @internal
    def all_axes(self) -> Axes:
        """The axes of a field that is placed here, in their order."""
        found = {axis for node in self.path() for axis in node.axes}
        return tuple(sorted(found, key=lambda axis: axis.number))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a field that is placed here."""
        pairs = [pair for node in self.path() for pair in zip(node.axes, node.extents, strict=True)]
        return tuple(
            math.prod(extent for other, extent in pairs if other == axis)
            for axis in self.all_axes()
        )

    @internal
    def walk(self) -> Iterator[SNode]:
        """This node and all below it, in order."""
        yield self
        for child in list(self.children):
            yield from child.walk()

    @internal
    def placed(self) -> Iterator[tuple[PlaceNode, Any]]:
        """The place nodes in and below this block, in order, with their fields that still exist."""
        for node in self.walk():
            if isinstance(node, PlaceNode) and (field := node.field) is not None:
                yield node, field

    # -- sparse blocks --------------------------------------------------------------------------

    @property
    def is_sparse(self) -> bool:
        """Whether cells of the block can be inactive."""
        return self.kind in ("pointer", "bitmasked", "dynamic")

    @property
    @internal
    def activity(self) -> Any:
        """The field of i32 with a flag for each cell; of a dynamic block, the lengths of lists."""
        if self._activity is None:
            counted = self.above if self.kind == "dynamic" and self.above is not None else self
            name = f"{'lengths' if self.kind == 'dynamic' else 'activity'} of a {self.kind} block"
            count, device = math.prod(counted.shape), self.tree.device
            self._activity = make_activity(name, count, device)
        return self._activity

    @property
    @internal
    def sparsity(self) -> Sparsity | None:
        """The sparse blocks on the path to the cells of this block; None if there are none."""
        return sparse_blocks.sparsity_of(self)

    @property
    @internal
    def info(self) -> BlockInfo:
        """The description of this block for kernels."""
        return sparse_blocks.info_of(self)

    @property
    def ptr(self) -> SNode:
        """The node itself; programs for Quadrants ask its `ptr`."""
        return self

    def __repr__(self) -> str:
        if self.above is None:
            return "qd.root"
        dimensions = ", ".join(f"{a}={n}" for a, n in zip(self.axes, self.extents, strict=True))
        return f"{self.above} => {self.kind} [{dimensions}]"


class PlaceNode(SNode):
    """A leaf of a tree: a field, or one component of its elements, in the cells of a block."""

    kind = "place"

    def __init__(self, above: SNode, field: Placeable, component: tuple[int, ...] | None) -> None:
        super().__init__(above.tree, above, (), ())
        self._field = weakref.ref(field)
        self.component = component
        self.companion = field.companion
        self.dtype = field.dtype
        self.count = 1 if component is not None else math.prod(field.element_shape)

    @property
    def field(self) -> Any:
        """The field that is placed; None if it is gone."""
        return self._field()

    def get_snode_grad_type(self) -> SNodeGradType:
        """Whether this holds a field, a gradient or a dual."""
        return _GRAD_TYPES[self.companion]

    def has_adjoint(self) -> bool:
        """Whether the field has a gradient."""
        return bool(self.field.has_grad())

    def has_dual(self) -> bool:
        """Whether the field has a dual."""
        return bool(self.field.has_dual())

    def __repr__(self) -> str:
        return f"{self.above} => place"


class Mirror:
    """Places companions in blocks like those of their fields."""

    def __init__(self, tree: Tree) -> None:
        self._blocks: dict[SNode, SNode] = {tree.root: tree.root}

    def place(self, node: PlaceNode, companion: Any) -> None:
        """Place a companion, or the component of one, like the field at ``node``."""
        if node.component not in companion.place_nodes and None not in companion.place_nodes:
            above = node.above
            assert above is not None
            given = companion if node.component is None else (companion, node.component)
            self._block(above).place(given, offset=node.field.offset or None)

    def _block(self, block: SNode) -> SNode:
        if block not in self._blocks:
            assert block.above is not None
            above = self._block(block.above)
            self._blocks[block] = above.dense(block.axes, block.extents)
        return self._blocks[block]


class Tree:
    """A tree of blocks: described, then allocated, and at last perhaps destroyed.

    All its fields are on one `device`.
    """

    def __init__(
        self,
        runtime: current_runtime.Runtime,
        is_builder: bool = False,
        device: Device | None = None,
    ) -> None:
        self.runtime = runtime
        self.device = device or runtime.device
        self.root = SNode(self, None, (), ())
        self.is_allocated = self.is_destroyed = False
        self.is_finalized = not is_builder

    def require_open(self, what: str) -> None:
        """An error if nothing can be added any more."""
        if self.runtime is not current_runtime.runtime():
            raise UsedAfterReset(f"tree of this {what}").at()
        if self.is_allocated:
            raise TreeIsAllocated(what).at()

    def require_final(self, name: str) -> None:
        """Raise an error if a builder is not finalized."""
        if not self.is_finalized:
            raise NotFinalized(name).at()

    def add_needed_companions(self) -> None:
        """Place gradients and duals that ``needs_grad`` requested and no program placed."""
        mirror = Mirror(self)
        for node, field in self.root.placed():
            if node.companion is Companion.PRIMAL:
                for companion in field.needed:
                    mirror.place(node, field.companion_array(companion))

    def destroy(self) -> None:
        """Free the memory; any later use of the tree's fields is an error.

        Raises:
            OctantsRuntimeError: The tree was destroyed before.
        """
        if self.is_destroyed:
            raise UsedAfterDestroy("root").at()
        for _, field in self.root.placed():
            field.retire(UsedAfterDestroy)
            for companion in field.needed:  # which allocating would place
                field.companion_array(companion).retire(UsedAfterDestroy)
        for node in self.root.walk():
            if node._activity is not None:
                node._activity.retire(UsedAfterDestroy)
        self.is_allocated = self.is_destroyed = True
        host_access_events.after_end()


# -- what can be placed ----------------------------------------------------------------------------


def _components(given: Iterable[Any]) -> Iterator[Component]:
    """The components that the arguments of `SNode.place` stand for."""
    for item in given:
        if isinstance(item, list):
            yield from _components(item)
        elif isinstance(item, tuple) and len(item) == 2 and hasattr(item[0], "place_nodes"):
            yield item
        elif hasattr(item, "place_nodes"):
            yield item, None
        elif hasattr(item, "parts_to_place"):
            yield from _components(item.parts_to_place())
        else:
            raise CannotPlace(describe(item)).at()


def _check_not_placed(components: list[Component]) -> None:
    taken: dict[int, set[tuple[int, ...] | None]] = {}
    for field, component in components:
        field.require_placeable()
        placed = taken.setdefault(id(field), set(field.place_nodes))
        if component in placed or None in placed or (component is None and placed):
            raise PlacedTwice(field.describe()).at()
        placed.add(component)
