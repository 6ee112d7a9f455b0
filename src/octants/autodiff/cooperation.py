"""Derivatives of tasks whose work items work together.

Forward mode goes through barriers and shared arrays, whose tangents are shared arrays beside them.
Reverse mode does not: others have written what is read behind a barrier, and it has gone when it is
needed. It knows sums over lanes, and what lanes exchange pairwise, where all of them come once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from octants.autodiff.activity import Flow
from octants.autodiff.errors import no_rule
from octants.ir import ops
from octants.ir.cooperation import cooperates, is_cooperative
from octants.ir.core import Array, Operation, Task, Value
from octants.ir.ops.cooperation import SHUFFLES

LINEAR = frozenset((*SHUFFLES, "add", "inclusive_add"))
"""What lanes do that the tangents of their values do in the same way."""

WAY_OUT = (
    "keep what needs a derivative in a loop without it, or give its gradient by hand:"
    " `ad.grad_replaced`"
)


def ends_here(task: Task, is_active: Callable[[Array], bool]) -> bool:
    """Whether a task of blocks changes nothing that has a derivative: it has no reverse.

    Raises:
        OctantsCompilationError: it does, and reverse mode does not know how.
    """
    if not cooperates(task):
        return False
    if not any(isinstance(op, _WRITES) and is_active(op.array) for op in task.body.walk()):
        return True
    flow = Flow(task.body)
    active = flow.varied(is_active) & flow.useful(is_active)
    constants = {op.result for op in task.body.walk() if isinstance(op, ops.Constant)}
    at_top = set(task.body.ops)
    for op in task.body.walk():
        if is_cooperative(op) and not (op in at_top and _is_reversible(op, active, constants)):
            raise no_rule(_describe(op), op.location, WAY_OUT)
    return False


def refuse_records(task: Task) -> None:
    """Raise an error if a work item of a reversed task may end before others that wait for it.

    One whose records find no room ends, and is run again by itself.
    """
    records = [op for op in task.body.walk() if isinstance(op, ops.RecordPush)]
    if records and cooperates(task):
        what = "a loop that must be recorded, beside what lanes do together,"
        location = records[0].record.location
        raise no_rule(what, location, "move what lanes do together to a loop of its own")


_WRITES = (ops.Store, ops.Atomic, ops.CompareExchange)


def _is_reversible(op: Operation, active: set[Value], constants: set[Value]) -> bool:
    """Whether reverse mode can run an operation again, and reverse it, if it is at the top."""
    if not isinstance(op, ops.Subgroup):
        return False
    if op.result not in active:
        return True
    return op.fn == "add" or (op.fn == "shuffle_xor" and constants.issuperset(op.lane))


def _describe(op: Any) -> str:
    if isinstance(op, ops.Subgroup):
        return f"`{op.fn}` of a subgroup, here,"
    if isinstance(op, (ops.Barrier, ops.Fence)):
        return f"a {op.NAME} of a {op.scope}"
    return f"the shared array `{op.array.name}`"
