"""Gives a tree its memory."""

from __future__ import annotations

import math
from typing import Any

from octants.data import events
from octants.data.errors import (
    CompanionWithoutField,
    MissingComponents,
    WrongCompanionShape,
)
from octants.data.memory import make_storage, make_window
from octants.data.placement import Placement
from octants.data.tree import COMPANION_WORDS, Tree
from octants.runtime.capture import once
from octants.types.companions import Companion


def allocate(tree: Tree, user: str) -> None:
    """Give a tree its memory; ``user`` is the field that is used first, for messages."""
    tree.require_final(user)
    fields = tree.finish()
    for field in fields:
        _check(field)
    placement = Placement(tree.root)
    located = [(field, *placement.locate(field)) for field in fields]
    total = f"the tree of {len(fields)} fields, with {user},"
    with once():  # what a graph that is captured uses first was there before
        storage = make_storage(tree.runtime.device, placement.nbytes, total)
    for field, layout, offset in located:
        field.settle(make_window(storage, offset, layout, field.dtype, field.element_shape), layout)
    tree.is_allocated = True
    tree.fields.clear()
    events.after_allocation()


def _check(field: Any) -> None:
    """Errors of a field or companion that is placed, but not as it must be."""
    count = math.prod(field.element_shape)
    if None not in field.places and len(field.places) < count:
        raise MissingComponents(field.describe(), len(field.places), count).at(None)
    if field.companion is Companion.PRIMAL:
        return
    primal, word = field.primal, COMPANION_WORDS[field.companion][0]
    if not primal.places:
        raise CompanionWithoutField(primal.describe(), word).at(None)
    if (primal.shape, primal.offset) != (field.shape, field.offset):
        shapes = [_shape_in_words(each) for each in (primal, field)]
        raise WrongCompanionShape(primal.describe(), shapes[0], word, shapes[1]).at(None)


def _shape_in_words(field: Any) -> str:
    offset = f" and offset {field.offset}" if field.offset else ""
    return f"shape {field.shape}{offset}"
