"""Finds the updates whose derivative depends on the order of work items.

The derivative of a sum does not depend on the order, and the winner of a minimum is known
afterwards. But the content of a product before a factor is applied, or what an update returns,
depends on which work item comes first: such a task is differentiated with its work items in order,
unless a single work item accesses each element.
"""

from __future__ import annotations

from collections.abc import Callable

from octants.analysis.memory.access_aliasing import ElementAliasing
from octants.autodiff.facts.activity import ActivityFlow
from octants.ir import ops
from octants.ir.core import Array, Companion, Task
from octants.lazy_dataclass import dataclass

SUMS = ("add", "sub")
EXTREMA = ("min", "max")


@dataclass(frozen=True, slots=True)
class Ordering:
    """Facts of one task about the order of its updates.

    Several work items may access one element of `shared` arrays. `mixed` arrays have writes other
    than atomics of one function. `unordered` are the updates whose derivative depends on an unknown
    order. The reverse needs the contents of `needing` arrays before an update. `only_sums` says
    that work items update shared arrays by sums alone, which tangents can follow in any order.
    """

    shared: frozenset[Array]
    mixed: frozenset[Array]
    unordered: tuple[ops.Atomic, ...]
    needing: frozenset[Array]
    only_sums: bool


def ordering_of(task: Task, is_active: Callable[[Array], bool]) -> Ordering:
    """The facts of a task; ``is_active`` says whether derivatives flow through an array."""
    accesses: dict[Array, list[ops.Access]] = {}
    for op in task.body.walk():
        if isinstance(op, ops.Access) and op.companion is Companion.PRIMAL:
            accesses.setdefault(op.array, []).append(op)
    updated = {a: own for a, own in accesses.items() if any(map(_is_update, own))}
    shared = _shared(task, updated)
    mixed = frozenset(array for array, own in updated.items() if _is_mixed(own))
    useful = ActivityFlow(task.body).useful(is_active) if updated else set()
    unordered: list[ops.Atomic] = []
    needing: set[Array] = set()
    only_sums = True
    for array, own in updated.items():
        for op in own:
            if not isinstance(op, ops.Atomic) or not is_active(array):
                continue
            returns = op.result in useful
            alone = op.fn in SUMS or (op.fn in EXTREMA and array not in mixed)
            if array in shared:
                only_sums = only_sums and op.fn in SUMS and not returns
                if returns or not alone:
                    unordered.append(op)
            if op.fn == "mul" or (op.fn in EXTREMA and (returns or array in mixed)):
                needing.add(array)
    return Ordering(shared, mixed, tuple(unordered), frozenset(needing), only_sums)


def _is_update(op: ops.Access) -> bool:
    return isinstance(op, ops.Write) and op.reads


def _shared(task: Task, updated: dict[Array, list[ops.Access]]) -> frozenset[Array]:
    """The updated arrays of which two work items may access one element."""
    if not task.is_parallel or not updated:
        return frozenset()
    aliasing = ElementAliasing(task)
    return frozenset(array for array, own in updated.items() if not aliasing.is_owned(own))


def _is_mixed(accesses: list[ops.Access]) -> bool:
    writes = [op for op in accesses if not isinstance(op, ops.Load)]
    functions = {op.fn if isinstance(op, ops.Atomic) else "" for op in writes}
    return len(functions) > 1 or "" in functions
