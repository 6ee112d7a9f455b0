"""Finds the tasks whose work items work together, and the sizes of their blocks."""

from __future__ import annotations

import math

from octants.ir import ops
from octants.ir.core import Array, ArrayRef, Block, Companion, InvalidIR, Operation, Space, Task

SHARED_LOOPS = "shared_loops"
"""The option of a task whose work items threads share, each with iterations of its loops."""

ALL_REGISTERS = "all_registers"
"""The option of a task with so few work items that each may use all registers."""

LEAST_BLOCKS = "least_blocks"
"""The option of such a task of which a GPU should run so many blocks side by side."""


ON_STACK = 1 << 18
"""Bytes of local arrays that a CPU has on the stack, which may be that of a user's thread."""


def is_cooperative(op: Operation) -> bool:
    """Whether an operation by itself makes its task one of blocks."""
    if op.is_convergent or op.orders_memory:
        return True
    array: Array | None = getattr(op, "array", None)
    return array is not None and array.space is Space.SHARED


def cooperates(task: Task) -> bool:
    """Whether work items of a task work together, in blocks."""
    return task.is_parallel and first_cooperative(task.body) is not None


def first_cooperative(block: Block) -> Operation | None:
    """The first operation of a block that makes its task one of blocks."""
    return next(filter(is_cooperative, block.walk()), None)


def is_block_barrier(op: Operation) -> bool:
    """Whether the work items of a block wait for each other in an operation."""
    return isinstance(op, ops.Barrier) and op.scope == "block"


def has_barriers(block: Block) -> bool:
    """Whether the work items of a block wait for each other somewhere in code."""
    return any(map(is_block_barrier, block.walk()))


def waiting_operations(block: Block) -> set[Operation]:
    """The operations in which a work item may wait for others: convergent ones, and around them."""
    found: set[Operation] = set()
    for op in block.ops:
        inside = [waiting_operations(region) for region in op.regions]
        if op.is_convergent or any(inside):
            found |= {op}.union(*inside)
    return found


def shared_arrays(task: Task) -> list[Array]:
    """The arrays of which each block of a task has its own."""
    return list(dict.fromkeys(array for array, _ in shared_array_refs(task)))


def shared_array_refs(task: Task) -> list[ArrayRef]:
    """The arrays of which each block of a task has its own, with the companions that it uses."""
    found: dict[ArrayRef, None] = {}
    for op in task.body.walk():
        array: Array | None = getattr(op, "array", None)
        if array is not None and array.space is Space.SHARED:
            found[ArrayRef(array, getattr(op, "companion", Companion.PRIMAL))] = None
    return list(found)


def local_arrays(task: Task) -> list[Array]:
    """The arrays of which each work item of a task has its own."""
    arrays = (getattr(op, "array", None) for op in task.body.walk())
    return list(dict.fromkeys(a for a in arrays if a is not None and a.space is Space.LOCAL))


def words(array: Array) -> int:
    """How many scalars a shared or a local array has."""
    return math.prod((*(array.fixed_shape or ()), *array.element_shape))


def nbytes(array: Array) -> int:
    """The bytes of such an array."""
    return array.dtype.size * words(array)


def sizes(task: Task) -> tuple[int, int]:
    """How many work items a block has, and how many a subgroup."""
    return task.options["block_dim"], task.options["subgroup_size"]


def verify_task(task: Task) -> None:
    """Raise `InvalidIR` if a task has operations of blocks, and not their sizes."""
    if first_cooperative(task.body) is None:
        return
    if not task.is_parallel:
        raise InvalidIR(f"the serial task {task.name} has no blocks")
    block_dim, subgroup_size = (task.options.get(n, 0) for n in ("block_dim", "subgroup_size"))
    if block_dim < 1 or subgroup_size < 1 or subgroup_size & (subgroup_size - 1):
        raise InvalidIR(f"{task.name}: blocks of {block_dim} in subgroups of {subgroup_size}")
    for op in task.body.walk():
        if isinstance(op, ops.Subgroup) and op.lanes > subgroup_size:
            raise InvalidIR(f"{task.name}: {op.lanes} of {subgroup_size} lanes")
    for array in shared_arrays(task):
        if array.fixed_shape is None:
            raise InvalidIR(f"the extents of {array.name} are not known")
