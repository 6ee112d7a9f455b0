"""Derivatives of tasks whose work items work together.

Forward mode goes through barriers and shared arrays, whose tangents are shared arrays beside them.

Reverse mode writes shared arrays again in its first sweep, with the barriers of the forward run,
and has them all once more on the way back. The adjoint of an element becomes zero when the element
is stored; behind the barrier those who read it add to it, and before the barrier who has stored it
takes it. What is read once more on the way back, in a loop or in a branch, must be what the array
held then: nobody may have stored to it later, `Phases` tells.

Barriers stand directly in the body of the parallel loop, or in that of a serial loop there. An
iteration of the latter is run again before it is reversed, and the shared arrays in it hold again
what they held: each is stored to, at the same places in each iteration, before it is read, and
nowhere else (`_check_tiles`).

What lanes do it knows where all of them come once: sums, and values of lanes that can be told
(`subgroups`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from octants.autodiff import subgroups
from octants.autodiff.activity import ActivityFlow, reach_through
from octants.autodiff.errors import no_rule
from octants.ir import ops
from octants.ir.cooperation import cooperates, is_cooperative, shared_arrays
from octants.ir.core import Array, Block, Operation, Space, Task, Value
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
    if not changes_something(task, is_active):
        return True
    flow = ActivityFlow(task.body)
    active = flow.varied(is_active) & flow.useful(is_active)
    used = {value for op in task.body.walk() for value in op.operands}
    constants = {op.result: op.value for op in task.body.walk() if isinstance(op, ops.Constant)}
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
            raise no_rule(_describe(op), op.location, WAY_OUT)
    return False


def changes_something(task: Task, is_active: Callable[[Array], bool]) -> bool:
    """Whether a task writes to arrays with a derivative that outlive it."""
    return any(
        isinstance(op, ops.Write) and op.array.space is not Space.SHARED and is_active(op.array)
        for op in task.body.walk()
    )


def with_adjoints(task: Task, is_active: Callable[[Array], bool]) -> set[Array]:
    """The shared arrays through which a derivative goes; ``is_active`` is asked of the others."""
    arrays = [array for array in shared_arrays(task) if array.dtype.is_float]
    if not arrays or not changes_something(task, is_active):
        return set()
    flows = [ActivityFlow(task.body)]
    varied, useful = (
        reach_through(flows, is_active, arrays.__contains__, backward=backward)[1]
        for backward in (False, True)
    )
    return varied & useful


def has_barriers(block: Block) -> bool:
    """Whether work items of a block wait for each other."""
    return any(isinstance(op, ops.Barrier) and op.scope == "block" for op in block.walk())


def _loops_with_barriers(task: Task) -> list[ops.For]:
    """Those that stand directly in the body of the task."""
    loops = (op for op in task.body.ops if isinstance(op, ops.For))
    return [loop for loop in loops if any(isinstance(op, ops.Barrier) for op in loop.body.ops)]


def _check_tiles(task: Task, loop: ops.For) -> None:
    """Raise an error unless each iteration of a loop begins with shared arrays of its own.

    What an iteration stores, others have stored at the same places in it, before it is read; so
    nothing that is read comes from the iteration before.
    """
    inside = set(loop.body.walk())
    defined = {value for op in inside for value in (*op.results, *_arguments(op))}
    defined.update(loop.body.args)
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
                raise no_rule(what, op.location, WAY_OUT)
        elif op not in inside or not phases.is_last(op):
            what = f"what a loop with barriers left in `{array.name}`"
            raise no_rule(what, op.location, WAY_OUT)


def _arguments(op: Operation) -> list[Value]:
    return [arg for region in op.regions for arg in region.args]


def _accesses_shared(op: Operation) -> bool:
    array: Array | None = getattr(op, "array", None)
    return array is not None and array.space is Space.SHARED


class Phases:
    """The pieces of a task between its barriers, numbered; see the module."""

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
        """Whether nobody stores to an array in the phase of a load from it, or later."""
        return self._last_write.get(load.array, -1) < self._number[load]

    def check(self, load: Any) -> None:
        """Raise an error unless a shared array still holds in the end what was loaded from it."""
        if not self.is_last(load):
            what = f"the shared array `{load.array.name}`, which is stored to after this,"
            raise no_rule(what, load.location, WAY_OUT)


def refuse_order(task: Task) -> None:
    """Raise an error if a task that overwrites what it reads waits for others in between.

    Its first sweep would have to write, and log, from barrier to barrier.
    """
    barrier = next((op for op in task.body.ops if isinstance(op, ops.Barrier)), None)
    if barrier is not None:
        what = "a barrier in a loop that overwrites what it reads"
        raise no_rule(what, barrier.location, WAY_OUT)


def refuse_records(task: Task) -> None:
    """Raise an error if a work item of a reversed task may end before others that wait for it.

    One whose records find no room ends, and is run again by itself.
    """
    records = [op for op in task.body.walk() if isinstance(op, ops.RecordPush)]
    if records and cooperates(task):
        what = "a loop that must be recorded, beside what lanes do together,"
        location = records[0].record.location
        raise no_rule(what, location, "move what lanes do together to a loop of its own")


def _is_repeatable(op: Operation, used: set[Value]) -> bool:
    """Whether an access to a shared array does again what it did."""
    if isinstance(op, ops.Atomic):
        return op.fn in ("add", "sub") and op.result not in used
    return isinstance(op, (ops.Load, ops.Store))


def _is_reversible(op: Operation, active: set[Value], constants: dict[Value, Any]) -> bool:
    """Whether reverse mode can run an operation again, and reverse it, if it is at the top."""
    if not isinstance(op, ops.Subgroup):
        return isinstance(op, ops.Barrier)
    if op.result not in active:
        return True
    return subgroups.is_known(op, constants)


def _describe(op: Any) -> str:
    if isinstance(op, ops.Subgroup):
        return f"`{op.fn}` of a subgroup, here,"
    if op.orders_memory:
        return f"a {op.NAME} of a {op.scope}"
    return f"the shared array `{op.array.name}`"
