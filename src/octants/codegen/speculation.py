"""Which loops are run on the guess that no function in them needs its rare way.

A function that is right for most operands only has a test in front of it, and a rare way for the
others. In a loop that does little else the tests, or the rare ways where a machine runs both sides
of each branch, are most of the work. So the loop is run without them, with a look afterwards
whether that was right; if not, it is run again with all tests. So that nobody notices, such a loop
changes no memory, and what may have been guessed wrong is no index and counts no turns.
"""

from __future__ import annotations

from collections.abc import Callable

from octants.ir import ops
from octants.ir.core import Block, Operation, Value

IsRare = Callable[[Operation], bool]
"""Whether an operation may take a rare way."""

_AT_PLACES = (ops.Load, ops.RecordPush, ops.RecordPop)


def can_be_guessed(loop: ops.For, may_be_rare: IsRare, also: IsRare, most: int) -> bool:
    """Whether a loop may take rare ways, does little else, and can be run again.

    It has at most ``most`` operations. Besides what changes nothing there may be what ``also``
    says can be done again.
    """
    inside = [each for each in loop.body.walk() if not isinstance(each, ops.Constant)]
    if len(inside) > most or not any(map(may_be_rare, inside)):
        return False
    if not all(each.is_speculatable or also(each) for each in inside):
        return False
    guessed = _guessed(loop.body, may_be_rare)
    return all(guessed.isdisjoint(_decisive(each)) for each in inside)


def inside(op: Operation) -> list[Operation]:
    """The operations in the regions of another one."""
    return [each for region in op.regions for each in region.walk()]


def _decisive(op: Operation) -> list[Value]:
    """What an operation uses as an index, to count turns, or to tell whether an index is good."""
    if isinstance(op, ops.Load):
        return op.indices
    if isinstance(op, ops.RecordAccess):
        return [op.base, op.index]
    if isinstance(op, ops.If) and any(isinstance(each, _AT_PLACES) for each in inside(op)):
        return [op.condition]
    return [op.lower, op.upper] if isinstance(op, ops.For) else []


def _guessed(body: Block, may_be_rare: IsRare) -> set[Value]:
    """The values of a turn that may be wrong: those of functions with rare ways, and after them.

    What loops carry is among them.
    """
    wrong = set(body.args[1:])
    for op in body.walk():
        if isinstance(op, ops.For):
            wrong.update([*op.body.args[1:], *op.results])
        needed = [value for each in (op, *inside(op)) for value in each.operands]
        if may_be_rare(op) or not wrong.isdisjoint(needed):
            wrong.update(op.results)
    return wrong
