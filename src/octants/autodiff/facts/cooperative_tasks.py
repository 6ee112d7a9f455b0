"""Checks tasks whose work items cooperate for derivatives, and says why their reverse is right.

Forward mode runs through barriers and shared arrays; the tangents of shared arrays are shared
companions.

The first sweep of reverse mode stores to shared arrays again, with the barriers of the forward run,
and the backward sweep repeats the barriers in reverse order. The adjoint of an element becomes zero
when the element is stored. Behind the barrier, the work items that read the element add to its
adjoint; before the barrier, the work item that stored it takes it. A value that the backward sweep
reads again, in a loop or a branch, must still be in the array: `Phases` checks that no work item
has stored to it later.

Barriers are directly in the body of the parallel loop, or of a serial loop in that. An iteration of
such a loop is replayed before it is reversed, and its shared arrays hold again what they held: each
is stored before it is read, at the same indices in each iteration, and nowhere else
(`_check_tiles`).

Subgroup operations have a reverse if all lanes reach them once: sums, and values of lanes whose
numbers are known (`subgroup_adjoints`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from octants.autodiff.emit import subgroup_adjoints
from octants.autodiff.errors import no_rule
from octants.autodiff.facts.activity import ActivityFlow, propagate_activity
from octants.ir import ops
from octants.ir.cooperative_tasks import cooperates, is_cooperative, shared_arrays
from octants.ir.core import Array, Operation, Space, Task, Value
from octants.ir.ops.cooperation import SHUFFLES

LINEAR = frozenset((*SHUFFLES, "add", "inclusive_add"))
"""The subgroup operations that map tangents as they map values."""

REMEDY = (
    "keep what needs a derivative in a loop without it, or give its gradient by hand:"
    " `ad.grad_replaced`"
)


def has_no_reverse(task: Task, is_active: Callable[[Array], bool]) -> bool:
    """Whether a cooperative task writes nothing that has a derivative.

    Args:
        task: the task.
        is_active: whether an array has a derivative.

    Returns:
        True for a cooperative task without a reverse; False for all other tasks.

    Raises:
        OctantsCompilationError: the task has a derivative that reverse mode does not support.
    """
    if not cooperates(task):
        return False
    if not changes_something(task, is_active):
        return True
    flow = ActivityFlow(task.body)
    active = flow.varied(is_active) & flow.useful(is_active)
    used = task.body.used()
    constants = ops.constants_in(task.body)
    at_top, loops = set(task.body.ops), _loops_with_barriers(task)
    in_loops = {op for loop in loops for op in loop.body.ops}
    for loop in loops:
        _check_tiles(task, loop)
    for op in task.body.walk():
        if not is_cooperative(op):
            continue
        if op.is_convergent or op.orders_memory:
            known = op in at_top and _is_reversible(op, active, constants)
            known = known or (isinstance(op, ops.Barrier) and op in in_loops)
        else:
            known = _is_repeatable(op, used)
        if not known:
            raise no_rule(_describe(op), op.location, REMEDY)
    return False


def changes_something(task: Task, is_active: Callable[[Array], bool]) -> bool:
    """Whether a task writes to arrays with a derivative that outlive it."""
    return any(
        isinstance(op, ops.Write) and op.array.space is not Space.SHARED and is_active(op.array)
        for op in task.body.walk()
    )


def shared_with_adjoints(task: Task, is_active: Callable[[Array], bool]) -> set[Array]:
    """The shared arrays through which a derivative flows; for others ``is_active`` is called."""
    arrays = [array for array in shared_arrays(task) if array.dtype.is_float]
    if not arrays or not changes_something(task, is_active):
        return set()
    flows = [ActivityFlow(task.body)]
    varied, useful = (
        propagate_activity(flows, is_active, arrays.__contains__, backward=backward)[1]
        for backward in (False, True)
    )
    return varied & useful


def _loops_with_barriers(task: Task) -> list[ops.For]:
    """The loops directly in the body of a task that directly contain barriers."""
    loops = (op for op in task.body.ops if isinstance(op, ops.For))
    return [loop for loop in loops if any(isinstance(op, ops.Barrier) for op in loop.body.ops)]


def _check_tiles(task: Task, loop: ops.For) -> None:
    """Raise an error unless each iteration of a loop stores to shared arrays before it reads them.

    All iterations store at the same indices, so that no read depends on the iteration before.
    """
    inside = set(loop.body.walk())
    defined = loop.body.defined()
    phases = Phases(task)
    arrays = {op.array for op in inside if _accesses_shared(op)}  # type: ignore[attr-defined]
    for op in task.body.walk():
        array: Any = getattr(op, "array", None)
        if array not in arrays:
            continue
        if isinstance(op, ops.Write):
            is_whole = isinstance(op, ops.Store) and op in loop.body.ops
            if not is_whole or not defined.isdisjoint(op.indices):
                what = f"what a loop with barriers does to `{array.name}`"
                raise no_rule(what, op.location, REMEDY)
        elif op not in inside or not phases.is_last(op):
            what = f"what a loop with barriers left in `{array.name}`"
            raise no_rule(what, op.location, REMEDY)


def _accesses_shared(op: Operation) -> bool:
    array: Array | None = getattr(op, "array", None)
    return array is not None and array.space is Space.SHARED


class Phases:
    """The sections of a task between its barriers, numbered."""

    def __init__(self, task: Task) -> None:
        self._number: dict[Operation, int] = {}
        self._last_write: dict[Array, int] = {}
        number = 0
        for op in task.body.walk():
            number += isinstance(op, ops.Barrier)
            self._number[op] = number
            if isinstance(op, ops.Write):
                self._last_write[op.array] = number

    def is_last(self, load: Any) -> bool:
        """Whether no work item stores to a shared array in the phase of a load from it or later."""
        return self._last_write.get(load.array, -1) < self._number[load]

    def check(self, load: Any) -> None:
        """Raise an error unless a shared array still holds at the end what a load read.

        Raises:
            OctantsCompilationError: it does not.
        """
        if not self.is_last(load):
            what = f"the shared array `{load.array.name}`, which is stored to after this,"
            raise no_rule(what, load.location, REMEDY)


def refuse_order(task: Task) -> None:
    """Raise an error if a task that overwrites what it reads has barriers.

    Its first sweep would have to store and log from barrier to barrier.

    Raises:
        OctantsCompilationError: it has.
    """
    barrier = next((op for op in task.body.ops if isinstance(op, ops.Barrier)), None)
    if barrier is not None:
        what = "a barrier in a loop that overwrites what it reads"
        raise no_rule(what, barrier.location, REMEDY)


def refuse_records(task: Task) -> None:
    """Raise an error if a small record buffer may end a work item of a cooperative reverse task.

    A work item whose records do not fit ends, and is run again alone, while others wait for it.

    Raises:
        OctantsCompilationError: the task pushes records.
    """
    records = [op for op in task.body.walk() if isinstance(op, ops.RecordPush)]
    if records and cooperates(task):
        what = "a loop that must be recorded, beside what lanes do together,"
        location = records[0].record.location
        raise no_rule(what, location, "move what lanes do together to a loop of its own")


def _is_repeatable(op: Operation, used: set[Value]) -> bool:
    """Whether an access to a shared array can be repeated."""
    if isinstance(op, ops.Atomic):
        return op.fn in ("add", "sub") and op.result not in used
    return isinstance(op, (ops.Load, ops.Store))


def _is_reversible(op: Operation, active: set[Value], constants: dict[Value, Any]) -> bool:
    """Whether an operation at the top level of a task can be replayed and reversed."""
    if not isinstance(op, ops.Subgroup):
        return isinstance(op, ops.Barrier)
    if op.result not in active:
        return True
    return subgroup_adjoints.is_known(op, constants)


def _describe(op: Any) -> str:
    if isinstance(op, ops.Subgroup):
        return f"`{op.fn}` of a subgroup, here,"
    if op.orders_memory:
        return f"a {op.NAME} of a {op.scope}"
    return f"the shared array `{op.array.name}`"
