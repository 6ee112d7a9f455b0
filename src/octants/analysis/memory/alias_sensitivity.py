"""Decides whether a kernel is worth compiling for launches whose arrays share no memory.

Each launch of such code compares addresses, and needs other code where arrays do share memory. It
is faster where aliasing keeps an update atomic, which keeps its task out of lanes; where it keeps a
sum in memory during a loop; and where it keeps workers from adding to copies of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

from octants.analysis.memory.access_aliasing import ElementAliasing
from octants.analysis.sums.reductions import find_reductions
from octants.ir import ops
from octants.ir.array_aliasing import has_memory_of_others, may_alias_another
from octants.ir.core import ArrayRef, Block, Module, Space, Task

_MOST = 16
"""The arguments whose addresses a launch compares."""


def disjoint_refs(module: Module) -> tuple[ArrayRef, ...]:
    """The array references that a kernel writes, and that should overlap no other one.

    There are none if the kernel would not be faster, or has too many arguments.
    """
    accessed = dict.fromkeys(op.ref for op in module.walk() if isinstance(op, ops.Access))
    written = dict.fromkeys(op.ref for op in module.walk() if isinstance(op, ops.Write))
    found = tuple(ref for ref in written if may_alias_another(ref, accessed, noalias=False))
    count = sum(array.space is Space.NDARRAY for array, _ in accessed)
    return found if found and count <= _MOST and any(map(_is_sensitive, module.tasks)) else ()


def _is_sensitive(task: Task) -> bool:
    """Whether the code of a task depends on whether its arrays share memory."""
    accesses = list(_shared(task.body, is_in_loop=False))
    if len({op.ref for op, _ in accesses}) < 2:
        return False
    writes = [(op, is_in_loop) for op, is_in_loop in accesses if isinstance(op, ops.Write)]
    if any(is_in_loop for _, is_in_loop in writes):
        return True
    updates = [op for op, _ in writes if not isinstance(op, ops.Store)]
    if not (updates and task.is_parallel):
        return False
    if len({op.ref for op, _ in writes}) > 1:
        return True
    collected = {op for found in find_reductions(task) for op in found.atomics}
    return not (collected.issuperset(updates) or ElementAliasing(task).is_owned(updates))


def _shared(block: Block, *, is_in_loop: bool) -> Iterator[tuple[ops.Access, bool]]:
    """The accesses to memory that others may have, each with whether it is in a loop."""
    for op in block.ops:
        if isinstance(op, ops.Access) and has_memory_of_others(op.array):
            yield op, is_in_loop
        for region in op.regions:
            yield from _shared(region, is_in_loop=is_in_loop or isinstance(op, ops.Loop))
