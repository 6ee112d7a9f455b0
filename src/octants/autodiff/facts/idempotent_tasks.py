"""Finds idempotent tasks: run again, they read and store the same values.

In ``s[i] = 0; for j in ...: s[i] = g(s[i])`` each work item stores an element before it reads it,
and no other work item accesses the element. Its prior content has no influence, so the first sweep
of the reverse kernel can store and read it again, whatever memory holds.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable

from octants.analysis.memory.access_aliasing import ElementAliasing
from octants.ir import ops
from octants.ir.cooperative_tasks import cooperates
from octants.ir.core import Array, Block, Companion, Space, Task

_Element = tuple[Array, tuple[Hashable, ...]]


def initialises(task: Task, arrays: Collection[Array]) -> bool:
    """Whether each work item stores the elements of some arrays before it reads or updates them.

    Args:
        task: the task.
        arrays: the arrays that it overwrites.

    Returns:
        True if it does and no two work items access the same element.
    """
    if not arrays or cooperates(task) or any(array.space is Space.TEMPORARY for array in arrays):
        return False
    aliasing = ElementAliasing(task)
    accesses = [
        op
        for op in task.body.walk()
        if isinstance(op, ops.Access) and op.companion is Companion.PRIMAL
    ]
    for array in arrays:
        if not aliasing.is_owned([op for op in accesses if op.array is array]):
            return False
    return _stores_first(aliasing, task.body, arrays, frozenset())


def _stores_first(
    aliasing: ElementAliasing, block: Block, arrays: Collection[Array], known: frozenset[_Element]
) -> bool:
    """Whether a block stores before it reads, given the elements that have been stored.

    An element is identified by the SSA values of its indices.
    """
    for op in block.ops:
        if isinstance(op, ops.Access) and op.array in arrays and op.companion is Companion.PRIMAL:
            element = op.array, tuple(map(aliasing.number, op.indices))
            if isinstance(op, ops.Store):
                known |= {element}
            elif element not in known:
                return False
        if not all(_stores_first(aliasing, region, arrays, known) for region in op.regions):
            return False
    return True
