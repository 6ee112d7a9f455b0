"""Write cooperative tasks for GPUs: a block of work items is a block of threads.

A thread of the last block without a work item has ended, and barriers do not wait for it. The first
`cooperation.Lanes.count` lanes of a subgroup have work items; the others must not take part.
"""

from __future__ import annotations

from octants.codegen.cooperation import find_lanes
from octants.codegen.llvm.gpu.function_text import ThreadText
from octants.codegen.llvm.types_and_literals import identifier
from octants.diagnostics.cooperation_errors import WrongSharedArray
from octants.diagnostics.exceptions import InternalError
from octants.ir import ops
from octants.ir.cooperative_tasks import nbytes, shared_array_refs, sizes
from octants.ir.core import ArrayRef, Task

_WHOLE = 16  # bytes: updates of narrow types work on words


def begin_task(f: ThreadText, task: Task) -> None:
    """Declare the arrays that the work items of a block share, and their companions."""
    taken = 0
    for array, companion in shared_array_refs(task):
        size = -(-nbytes(array) // _WHOLE) * _WHOLE
        name = f"octants_shared_{f.task}_{len(f.shared_arrays)}_{identifier(array.name)}"
        f.shared_arrays[ArrayRef(array, companion)] = f.code.shared_memory(name, size)
        taken += size
    if taken > f.gpu.shared_bytes:
        problem = f"this loop has {taken} bytes of them, and a block can have {f.gpu.shared_bytes}"
        way_out = "tangents take as much as what they are of; use fewer elements"
        raise WrongSharedArray(problem, way_out).at(task.location)


def begin_item(f: ThreadText, task: Task, item: str) -> None:
    """Compute the lanes with work items, before the work item with this number (i64)."""
    _, subgroup_size = sizes(task)
    if subgroup_size != f.gpu.subgroup:
        raise InternalError(f"{task.name}: subgroups of {subgroup_size}, not {f.gpu.subgroup}")
    if not any(_needs_lanes(op) for op in task.body.walk()):
        return
    f.lanes = find_lanes(f.code, task, item, f.upper())
    missing = f.apply("sub", "i32", subgroup_size, f.lanes.count)
    f.lane_mask = f.apply("lshr", "i32", (1 << subgroup_size) - 1, missing)


def end_item(f: ThreadText) -> None:
    """Wait before the next block of work items while others still read this block's arrays."""
    if f.shared_arrays:
        f.code.barrier("block")


def _needs_lanes(op: object) -> bool:
    return isinstance(op, ops.Subgroup) or (isinstance(op, ops.Barrier) and op.scope == "subgroup")
