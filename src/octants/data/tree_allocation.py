"""Gives a tree its memory.

All blocks of a tree become one piece of memory. Where that is refused, each field gets the memory
of its own blocks when it is used, so that only a field that is too large is an error. Blocks whose
fields are all gone get none. A field that is not placed as it must be is an error for the whole
tree, which stays open, so that it can be completed.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from octants.data import host_access_events
from octants.data.errors import (
    CompanionOnOtherDevice,
    CompanionWithoutField,
    MissingComponents,
    WrongCompanionShape,
)
from octants.data.field_memory_layout import Placement
from octants.data.host_element_access import make_window
from octants.data.tree import COMPANION_WORDS, SNode, Tree
from octants.data.zeroed_device_memory import make_storage
from octants.deferred_import import Deferred
from octants.diagnostics.exceptions import OctantsMemoryError
from octants.runtime.capture import uncaptured
from octants.types.companions import Companion

if TYPE_CHECKING:
    from octants.diagnostics import sparse_block_errors
else:
    sparse_block_errors = Deferred("octants.diagnostics.sparse_block_errors")


def allocate(field: Any, tree: Tree) -> None:
    """Give a field its memory, and with it all others of its tree, if they can have it."""
    tree.require_final(field.describe())
    if not tree.is_allocated:
        tree.add_needed_companions()
        blocks = [block for block in tree.root.children if any(block.placed())]
        with contextlib.suppress(OctantsMemoryError):  # for all of them; perhaps not for each
            _allocate(tree, blocks, field)
        tree.is_allocated = True
    if not field.is_allocated:
        _allocate(tree, _blocks_of(field, tree), field)


def _allocate(tree: Tree, blocks: list[SNode], user: Any) -> None:
    """Allocate outermost blocks; ``user`` is the field that is used first, for messages."""
    fields = [field for field in _fields_in(blocks) if not field.is_allocated]
    for field in fields:
        _check(field)
    placement = Placement(tree.root, blocks)
    located = [(field, *placement.locate(field)) for field in fields]
    total = f"the tree of {len(fields)} fields, with {user.describe()},"
    with uncaptured():  # what a graph that is captured uses first was there before
        storage = make_storage(tree.device, placement.nbytes, total)
    for field, layout, offset in located:
        field.settle(make_window(storage, offset, layout, field.dtype, field.element_shape), layout)
    host_access_events.after_allocation()


def _fields_in(blocks: Iterable[SNode]) -> list[Any]:
    """The fields and companions that are placed in some blocks and still exist, each once."""
    return list(dict.fromkeys(field for block in blocks for _, field in block.placed()))


def _blocks_of(field: Any, tree: Tree) -> list[SNode]:
    """The outermost blocks that a field needs: its own, and those that they share fields with.

    A field and its companions need each other.
    """
    blocks, primals = set[SNode](), {field.primal}
    while True:
        found = {
            block
            for block in tree.root.children
            if not primals.isdisjoint(each.primal for each in _fields_in([block]))
        }
        if found == blocks:
            return [block for block in tree.root.children if block in found]
        blocks = found
        primals |= {each.primal for each in _fields_in(found)}


def _check(field: Any) -> None:
    """Errors of a field or companion that is placed, but not as it must be."""
    count = math.prod(field.element_shape)
    if None not in field.place_nodes and len(field.place_nodes) < count:
        raise MissingComponents(field.describe(), len(field.place_nodes), count).at()
    if field.companion is Companion.PRIMAL:
        return
    primal, word = field.primal, COMPANION_WORDS[field.companion][0]
    if not primal.place_nodes:
        raise CompanionWithoutField(primal.describe(), word).at()
    if field.snode.tree.device is not primal.snode.tree.device:
        devices = [each.snode.tree.device.number for each in (primal, field)]
        raise CompanionOnOtherDevice(primal.describe(), devices[0], word, devices[1]).at()
    if not _sparse_blocks(field) <= _sparse_blocks(primal):
        raise sparse_block_errors.SparseCompanion(field.describe()).at()
    if (primal.shape, primal.offset) != (field.shape, field.offset):
        shapes = [_shape_in_words(each) for each in (primal, field)]
        raise WrongCompanionShape(primal.describe(), shapes[0], word, shapes[1]).at()


def _sparse_blocks(field: Any) -> set[SNode]:
    return {block for block in field.snode.path() if block.is_sparse}


def _shape_in_words(field: Any) -> str:
    offset = f" and offset {field.offset}" if field.offset else ""
    return f"shape {field.shape}{offset}"
