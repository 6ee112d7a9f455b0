"""Reads the target of an idempotent update first, and leaves out an update that changes nothing.

Before::

    array @x: i32, 1, ndarray, () [primal]
    parallel (%2: i32 < shape<@x, 0>()) {
      %3: i32 = constant<4>()
      %4: i32 = binary<floordiv>(%2, %3)
      %5: i32 = atomic<or, @x, primal>(%3, %4)
    }

After::

    parallel (%2: i32 < shape<@x, 0>()) {
      %3: i32 = constant<4>()
      %4: i32 = binary<floordiv>(%2, %3)
      %5: i32 = load<@x, primal>(%4)
      %6: i32 = binary<or>(%5, %3)
      %7: u1 = compare<ne>(%6, %5)
      if(%7) {
        %8: i32 = atomic<or, @x, primal>(%3, %4)
        yield()
      } {
        yield()
      }
    }

An atomic keeps other processors from memory for 20 cycles or more, a read of what hardly changes
does not. Writes to sparse fields set a flag each time, which nearly always is set already.
"""

from __future__ import annotations

from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Module, Operation, Space, Task
from octants.ir.rewriting import rewrite
from octants.types.scalars import u1

_IDEMPOTENT = ("or", "and", "min", "max")


def skip_unchanged_updates(module: Module) -> None:
    """Rewrite the updates of integers in parallel tasks whose results nothing uses, in place."""
    for task in module.tasks:
        if task.is_parallel and any(map(_is_idempotent, task.body.walk())):
            found = _find_redundant_candidates(task)
            if found:
                rewrite(task.body, lambda build, op: op in found and _test(build, op))


def _is_idempotent(op: Operation) -> bool:
    if not isinstance(op, ops.Atomic) or op.fn not in _IDEMPOTENT:
        return False
    return op.array.dtype is not u1 and not op.array.dtype.is_float


def _find_redundant_candidates(task: Task) -> set[Operation]:
    """The updates of elements that differ between work items, and whose results are not used."""
    used = task.body.used()
    varying = task.body.defined() - ops.constants_in(task.body).keys()
    return {
        op
        for op in task.body.walk()
        if isinstance(op, ops.Atomic)
        and _is_idempotent(op)
        and op.array.space in (Space.FIELD, Space.NDARRAY)
        and not varying.isdisjoint(op.indices)
        and used.isdisjoint(op.results)
    }


def _test(builder: Builder, op: Operation) -> bool:
    """Build an update with a test before it."""
    assert isinstance(op, ops.Atomic)
    before = builder.load(op.array, op.indices, op.companion)
    after = builder.binary(op.fn, before, op.value)
    with builder.only_if(builder.compare("ne", after, before)):
        builder.append(op)
    return True
