"""Allocate arrays of a work item: on the stack, or in the worker's record buffer if large."""

from __future__ import annotations

from octants.codegen import messages
from octants.codegen.llvm.function_text import FunctionText
from octants.codegen.message_formats import memory_message
from octants.diagnostics.exceptions import InternalError
from octants.ir import ops
from octants.ir.cooperative_tasks import ON_STACK, local_arrays, nbytes
from octants.ir.core import ArrayRef, Companion, Task

_ALIGNMENT = 64  # a vector that crosses the end of a cache line takes two accesses
_PAGE = 4096
"""Processors compare addresses modulo this to find out whether a load reads what an earlier store
has not written yet. A load that seems to has to wait.
"""


def begin(f: FunctionText, task: Task, lanes: int = 1) -> None:
    """Give all work items of a function the same memory, as they run one after the other.

    Those that run in ``lanes`` have their elements side by side.
    """
    arrays = local_arrays(task)
    if not arrays:
        return
    sizes = [-(-lanes * nbytes(array) // _ALIGNMENT) * _ALIGNMENT for array in arrays]
    starts, total = choose_starts(sizes)
    if total <= ON_STACK:
        base = f.on_stack("local", f"[{total} x i8]", _ALIGNMENT)
    else:
        base = _in_record_buffer(f, task, total)
    for array, start in zip(arrays, starts, strict=True):
        own = f.assign(f"getelementptr inbounds i8, ptr {base}, i64 {start}")
        f.parts[ArrayRef(array, Companion.PRIMAL)] = own


def choose_starts(sizes: list[int]) -> tuple[list[int], int]:
    """Choose where arrays start, so that elements with about the same index look different.

    Args:
        sizes: The bytes of each array, multiples of the alignment.

    Returns:
        The start of each array, and the bytes of all.
    """
    distance = _PAGE // (2 * len(sizes)) // _ALIGNMENT * _ALIGNMENT
    if sum(sizes) <= _PAGE:
        distance = 0
    starts: list[int] = []
    total = 0
    for size in sizes:
        start = total
        while any(_distance(start, other) < distance for other in starts):
            start += _ALIGNMENT
        starts.append(start)
        total = start + size
    if sum(sizes) <= ON_STACK < total:
        return [sum(sizes[:number]) for number in range(len(sizes))], sum(sizes)
    return starts, total


def _distance(one: int, other: int) -> int:
    """Return the distance of two addresses modulo the size of a page."""
    ahead = (one - other) % _PAGE
    return min(ahead, _PAGE - ahead)


def _in_record_buffer(f: FunctionText, task: Task, total: int) -> str:
    """Return the start of the record buffer, which such a task uses for nothing else."""
    if any(isinstance(op, ops.RecordPush) for op in task.body.walk()):
        raise InternalError(f"the local arrays of {task.name} would overwrite its records")
    f.record_buffer.require(
        str(total),
        lambda: messages.fail(f, memory_message(task.location), [str(total)]),
    )
    return str(f.record_buffer.address("0"))
