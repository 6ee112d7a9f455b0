"""Makes an atomic update a load, an operation and a store where no other work item interferes.

Before::

    array @x: f32, 1, ndarray, () [primal, adjoint]
    array @y: f32, 1, ndarray, () [primal, adjoint]
    parallel (%2: i32 < shape<@x, 0>()) {
      %3: i32 = constant<1>()
      %4: i32 = binary<add>(%2, %3)
      %5: f32 = load<@y, primal>(%2)
      %6: f32 = atomic<add, @x, adjoint>(%5, %2)
      %7: f32 = atomic<add, @y, adjoint>(%5, %2)
      %8: f32 = atomic<add, @y, adjoint>(%5, %4)
    }

After::

    parallel (%2: i32 < shape<@x, 0>()) {
      %3: i32 = constant<1>()
      %4: i32 = binary<add>(%2, %3)
      %5: f32 = load<@y, primal>(%2)
      %6: f32 = load<@x, adjoint>(%2)
      %7: f32 = binary<add>(%6, %5)
      store<@x, adjoint>(%7, %2)
      %8: f32 = atomic<add, @y, adjoint>(%5, %2)
      %9: f32 = atomic<add, @y, adjoint>(%5, %4)
    }

That is so in serial tasks, and where all writes of a task to an array go to elements that follow
from the index of the work item in one way: here those of `x`, but not of `y`, where an element is
the second of one work item and the first of the next.
"""

from __future__ import annotations

from octants.analysis.access_aliasing import ElementAliasing
from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.array_aliasing import may_alias_another
from octants.ir.core import ArrayRef, Block, Module, Operation, Task, Value
from octants.types.scalars import u1


@staged("demote_atomics")
def demote_atomics(module: Module, noalias: bool = True) -> None:
    """Replace atomics at locations that one work item owns by loads and stores, in place.

    Args:
        module: what is rewritten.
        noalias: no two arrays share memory.
    """
    for task in module.tasks:
        owned = owned_targets(task, noalias)
        if owned:
            _rewrite(task.body, owned)


def owned_targets(task: Task, noalias: bool) -> set[ArrayRef]:
    """The targets of updates that no two work items write at one location."""
    writes: dict[ArrayRef, list[ops.Write]] = {}
    for op in task.body.walk():
        if isinstance(op, ops.Write):
            writes.setdefault(op.ref, []).append(op)
    updated = {target for target, own in writes.items() if any(map(_is_update, own))}
    if not task.is_parallel or not updated:
        return updated
    aliasing = ElementAliasing(task)
    return {
        target
        for target in updated
        if not may_alias_another(target, writes, noalias) and aliasing.is_owned(writes[target])
    }


def _is_update(op: Operation) -> bool:
    return isinstance(op, ops.Atomic) and op.array.dtype is not u1


def _rewrite(block: Block, owned: set[ArrayRef]) -> None:
    rewritten: list[Operation] = []
    for op in block.ops:
        for region in op.regions:
            _rewrite(region, owned)
        if isinstance(op, ops.Atomic) and _is_update(op) and op.ref in owned:
            rewritten += _plain(op)
        else:
            rewritten.append(op)
    block.ops[:] = rewritten


def _plain(op: ops.Atomic) -> list[Operation]:
    """Return an update as a load, an operation and a store; its result is the load's."""
    target, indices = op.ref, op.indices
    load = ops.Load(*target, indices, results=op.results, location=op.location)
    if op.fn == "exchange":
        return [load, ops.Store(*target, op.value, indices, location=op.location)]
    new = Value(op.array.dtype)
    update = ops.Binary(op.fn, load.result, op.value, results=[new], location=op.location)
    return [load, update, ops.Store(*target, new, indices, location=op.location)]
