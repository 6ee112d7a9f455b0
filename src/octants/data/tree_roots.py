"""The roots of field trees: `root`, and `FieldsBuilder` for a tree of its own."""

from __future__ import annotations

from typing import Any

from octants.data import current_runtime
from octants.data.element_types import check_device
from octants.data.errors import BuilderIsFinalized, TreeIsAllocated
from octants.data.tree import SNode, Tree, sparse_trees
from octants.diagnostics.user_frames import warn_at_caller
from octants.types.companions import Companion


class Root:
    """The beginning of the current tree."""

    @property
    def node(self) -> SNode:
        """The outermost block of the tree that is being described."""
        return outermost_block()

    def dense(self, indices: Any, dimensions: Any) -> SNode:
        """A block of ``dimensions`` cells along the axes ``indices``; see `SNode.dense`."""
        return self.node.dense(indices, dimensions)

    def place(self, *fields: Any, offset: Any = None) -> SNode:
        """Place 0-D fields; see `SNode.place`."""
        return self.node.place(*fields, offset=offset)

    def lazy_grad(self) -> None:
        """Place gradients of all fields of floats that are placed and not yet used.

        It has no effect, but a warning, if the fields that were placed last are in use already.
        """
        if not self._is_complete(Companion.ADJOINT, "lazy_grad()"):
            self.node.lazy_grad()

    def lazy_dual(self) -> None:
        """Place duals of all fields of floats that are placed and not yet used.

        It has no effect, but a warning, if the fields that were placed last are in use already.
        """
        if not self._is_complete(Companion.TANGENT, "lazy_dual()"):
            self.node.lazy_dual()

    def _is_complete(self, companion: Companion, what: str) -> bool:
        """Whether the last tree is in use; a warning if a field of it lacks a companion."""
        runtime = current_runtime.runtime()
        tree: Tree | None = runtime.open_trees.get(runtime.device.number)
        if tree is None or not tree.is_allocated or tree.is_destroyed:
            return False
        for _, field in tree.root.placed():
            is_primal = field.companion is Companion.PRIMAL and field.dtype.is_float
            if is_primal and companion not in field.layouts():
                warn_at_caller(TreeIsAllocated(f"{what} has no effect on the {field.describe()}"))
                break
        return True

    def pointer(self, indices: Any, dimensions: Any) -> SNode:
        """A sparse block of `dimensions` cells along the axes `indices`; see `SNode.pointer`."""
        return self.node.pointer(indices, dimensions)

    def bitmasked(self, indices: Any, dimensions: Any) -> SNode:
        """A sparse block of small cells, `dimensions` along `indices`; see `SNode.bitmasked`."""
        return self.node.bitmasked(indices, dimensions)

    def hash(self, *_: Any, **__: Any) -> SNode:
        """Not supported; see `SNode.hash`."""
        return self.node.hash()

    def dynamic(self, index: Any, dimension: Any, chunk_size: int | None = None) -> SNode:
        """A list of up to `dimension` cells along the axis `index`; see `SNode.dynamic`."""
        return self.node.dynamic(index, dimension, chunk_size)

    def quant_array(self, indices: Any, dimensions: Any, max_num_bits: int) -> Any:
        """A word that elements along `indices` share; see `SNode.quant_array`."""
        return self.node.quant_array(indices, dimensions, max_num_bits)

    def deactivate_all(self) -> None:
        """Deactivate all cells of the sparse blocks of all trees."""
        deactivate_all_snodes()

    def parent(self, _: int = 1) -> None:
        """None: the root is in no block."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a field that is placed here: ()."""
        return ()

    def __repr__(self) -> str:
        return "qd.root"


def outermost_block(device: int | None = None) -> SNode:
    """The outermost block of the tree that is being described on a device; None: that of `init`."""
    runtime = current_runtime.runtime()
    found = runtime.device if device is None else runtime.devices.at(device)
    with runtime.lock:
        tree: Tree | None = runtime.open_trees.get(found.number)
        if tree is None or tree.is_allocated:
            tree = runtime.open_trees[found.number] = Tree(runtime, device=found)
        return tree.root


root = Root()


class FieldsBuilder(Root):
    """A tree of fields of its own, which can be destroyed before the others.

    Its fields can be used after `finalize`. Example::

        builder = qd.FieldsBuilder()
        x = qd.field(qd.f32)
        builder.dense(qd.i, 100).place(x)
        tree = builder.finalize()
        x.fill(1.0)
        tree.destroy()  # frees the memory at once

    Args:
        device: The number of the GPU that they are on, where there are several; by default that of
            `init`.
    """

    def __init__(self, device: int | None = None) -> None:
        check_device("FieldsBuilder", device)
        runtime = current_runtime.runtime()
        found = runtime.device if device is None else runtime.devices.at(device)
        self._builder_tree = Tree(runtime, is_builder=True, device=found)

    @property
    def node(self) -> SNode:
        """The outermost block of the tree.

        Raises:
            OctantsRuntimeError: the tree is complete.
        """
        if self._builder_tree.is_finalized:
            raise BuilderIsFinalized().at()
        return self._builder_tree.root

    def _is_complete(self, companion: Companion, what: str) -> bool:  # noqa: ARG002
        return False  # once it is, `node` is an error

    def finalize(self, raise_warning: bool = True) -> Tree:  # noqa: ARG002
        """End the description of the tree; its fields can be used now.

        The result's method ``destroy()`` frees the tree at last. `raise_warning` is ignored.
        """
        self.node.tree.is_finalized = True
        return self._builder_tree


def deactivate_all_snodes() -> None:
    """Deactivate the cells of all sparse blocks; all sparse fields become zero."""
    for each in list(sparse_trees):
        if each.runtime is current_runtime.runtime():
            each.root.deactivate_all()
