"""Allocate arrays of a work item: on the stack, or in the worker's record buffer if large."""

from __future__ import annotations

from octants.codegen import messages
from octants.codegen.llvm.function_text import FunctionText
from octants.codegen.message_formats import memory_message
from octants.diagnostics.exceptions import InternalError
from octants.ir import ops
from octants.ir.cooperative_tasks import ON_STACK, local_arrays, nbytes
from octants.ir.core import Companion, Task

_ALIGNMENT = 64  # a vector that crosses the end of a cache line takes two accesses


def begin(f: FunctionText, task: Task, lanes: int = 1) -> None:
    """Give all work items of a function the same memory, as they run one after the other.

    Those that run in ``lanes`` have their elements side by side.
    """
    offsets: dict[tuple[object, Companion], int] = {}
    total = 0
    for array in local_arrays(task):
        offsets[array, Companion.PRIMAL] = total
        total += -(-lanes * nbytes(array) // _ALIGNMENT) * _ALIGNMENT
    if not offsets:
        return
    if total <= ON_STACK:
        base = f.on_stack("local", f"[{total} x i8]", _ALIGNMENT)
    else:
        base = _in_record_buffer(f, task, total)
    for ref, offset in offsets.items():
        f.parts[ref] = f.assign(f"getelementptr inbounds i8, ptr {base}, i64 {offset}")  # type: ignore[index]


def _in_record_buffer(f: FunctionText, task: Task, total: int) -> str:
    """Return the start of the record buffer, which such a task uses for nothing else."""
    if any(isinstance(op, ops.RecordPush) for op in task.body.walk()):
        raise InternalError(f"the local arrays of {task.name} would overwrite its records")
    f.record_buffer.require(
        str(total),
        lambda: messages.fail(f, memory_message(task.location), [str(total)]),
    )
    return str(f.record_buffer.address("0"))
