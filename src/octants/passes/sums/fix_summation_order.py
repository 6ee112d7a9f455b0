"""Makes results the same bits from run to run, for any number of threads: ``deterministic=True``.

Before::

    array @x: f32, 1, ndarray, () [primal]
    array @s: f32, 0, field, () [primal]
    parallel (%2: i32 < shape<@x, 0>()) {
      %3: f32 = load<@x, primal>(%2)
      %4: f32 = atomic<add, @s, primal>(%3)
    }

After::

    kernel @k
    array @x: f32, 1, ndarray, () [primal]
    array @s: f32, 0, field, () [primal]
    array @k_0_sums0: f32, 0, temporary, (1, 128) [primal]
    parallel @k_0 {
      %0: i32 = constant<0>()
      %1: i32 = constant<128>()
      yield(%0, %1)
    } { (%2: i32):
      %3: i32 = constant<0>()
      %4: i32 = shape<@x, 0>()
      %5: i64 = constant<0>()
      %6: i64 = cast(%4)
      %7: i32 = constant<0>()
      %8: i64 = constant<0>()
      %9: i64 = binary<max>(%6, %8)
      %10: i64 = cast(%2)
      %11: i64 = constant<128>()
      %12: i64 = constant<1>()
      %13: i64 = binary<add>(%10, %12)
      %14: i64 = binary<mul>(%9, %10)
      %15: i64 = binary<floordiv>(%14, %11)
      %16: i32 = cast(%15)
      %17: i64 = binary<mul>(%9, %13)
      %18: i64 = binary<floordiv>(%17, %11)
      %19: i32 = cast(%18)
      for(%16, %19) { (%20: i32):
        %21: f32 = load<@x, primal>(%20)
        %22: f32 = atomic<add, @k_0_sums0, primal>(%21, %7, %2)
        yield()
      }
      yield()
    }
    serial @k_0_combine {
      %23: i32 = constant<0>()
      %24: i32 = constant<0>()
      %25: f32 = constant<0.0>()
      %26: i32 = constant<0>()
      %27: i32 = constant<128>()
      %28: f32 = for(%26, %27, %25) { (%29: i32, %30: f32):
        %31: i32 = constant<1>()
        %32: f32 = load<@k_0_sums0, primal>(%23, %29)
        %33: f32 = binary<add>(%30, %32)
        yield(%33)
      }
      %34: f32 = constant<0.0>()
      %35: u1 = compare<ne>(%28, %34)
      if(%35) {
        %36: f32 = atomic<add, @s, primal>(%28)
        yield()
      } {
        yield()
      }
      yield()
    }

Sums into an element that is the same for all work items are taken over chunks of the work items,
whose bounds do not depend on the number of threads, and combined in order (`ordered_reductions`).
Sums into elements that vary are left to code generation, if `analysis.sums.privatisation` has a way
to make them: the task has the option ``fixed_order``. With other updates that depend on the order -
products of floats, or what returns what was there before - the work items run one after the other.
Where it takes many threads to keep the machine busy, both kinds of sums are taken by many threads,
if possible.
"""

from __future__ import annotations

from octants.analysis.indices.affine_analysis import AffineExpressions
from octants.analysis.sums.privatisation import find_sums
from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.array_aliasing import may_alias
from octants.ir.cloning import refuse_cooperation, serialise
from octants.ir.core import ArrayRef, Module, Operation, Task, Value
from octants.passes.sums.demote_atomics import owned_targets
from octants.passes.sums.ordered_reductions import (
    OrderedReductions,
    reductions_by_many_threads,
    reductions_in_chunks,
)


@staged("fix_summation_order")
def fix_summation_order(module: Module, noalias: bool = False, many: bool = False) -> None:
    """Fix the order of updates, in place.

    Args:
        module: what is rewritten.
        noalias: no two arrays share memory.
        many: the device needs many threads to be busy, so that partial sums are many, too.
    """
    tasks: list[Task] = []
    for task in module.tasks:
        updates = _unordered(task, noalias)
        if not updates:
            tasks.append(task)
            continue
        refuse_cooperation(task)
        reductions = _reductions(task, updates, noalias, many)
        if reductions is not None:
            tasks += reductions.tasks(module)
        elif _are_plain_sums(task, updates, noalias):
            task.options = {**task.options, "fixed_order": True}
            tasks.append(task)
        else:
            tasks.append(serialise(task))
    module.tasks[:] = tasks


# -- which -----------------------------------------------------------------------------------------


def _unordered(task: Task, noalias: bool) -> list[Operation]:
    """The updates of a task whose outcome depends on the order of its work items."""
    if not task.is_parallel:
        return []
    used = task.body.used()
    found = [op for op in task.body.walk() if _depends_on_order(op, used)]
    owned = owned_targets(task, noalias) if found else set()
    return [op for op in found if op.ref not in owned]  # type: ignore[attr-defined]


def _depends_on_order(op: Operation, used: set[Value]) -> bool:
    if not isinstance(op, ops.Atomic):
        return op.reads and op.writes
    return op.array.dtype.is_float or op.fn == "exchange" or op.result in used


def _reductions(
    task: Task, updates: list[Operation], noalias: bool, many: bool
) -> OrderedReductions | None:
    """The reductions of the updates; None if there cannot be any for all of them."""
    found = _by_many_threads(task, updates, noalias) if many else None
    if found is None and _are_uniform_sums(task, updates, noalias):
        return reductions_in_chunks(task, updates)
    return found


def _by_many_threads(
    task: Task, updates: list[Operation], noalias: bool
) -> OrderedReductions | None:
    """The reductions by many threads; None if there are updates other than sums.

    A work item that records may have to run again, which a thread with several of them cannot.
    """
    if any(isinstance(op, ops.RecordPush) for op in task.body.walk()):
        return None
    sums, targets = find_sums(task, noalias), dict[ArrayRef, list[Operation]]()
    for op in updates:
        targets.setdefault(op.ref, []).append(op)  # type: ignore[attr-defined]
    uniform: list[Operation] = []
    others: list[Operation] = []
    for target, own in targets.items():
        if _are_uniform_sums(task, own, noalias):
            uniform += own
        elif target in sums:
            others += own
        else:
            return None
    return reductions_by_many_threads(task, uniform, others)


def _are_plain_sums(task: Task, updates: list[Operation], noalias: bool) -> bool:
    """Whether workers can add to all of their targets plainly."""
    sums = find_sums(task, noalias)
    return all(op.ref in sums for op in updates)  # type: ignore[attr-defined]


def _are_uniform_sums(task: Task, updates: list[Operation], noalias: bool) -> bool:
    """Whether all of them add to uniform addresses whose values before are unused."""
    affine = AffineExpressions(task)
    used = task.body.used()
    for op in updates:
        if not isinstance(op, ops.Atomic) or op.fn not in ("add", "sub") or op.result in used:
            return False
        if not all(map(affine.is_uniform, op.indices)):
            return False
    known = set(updates)
    others = [op for op in task.body.walk() if isinstance(op, ops.Access) and op not in known]
    return not any(_conflicts(affine, op, other, noalias) for op in updates for other in others)


def _conflicts(affine: AffineExpressions, op: Operation, other: ops.Access, noalias: bool) -> bool:
    """Whether an access and a delayed update of its work item may touch one location."""
    assert isinstance(op, ops.Atomic)
    if other.ref == op.ref:
        return True
    if not may_alias(op.ref, other.ref, noalias):
        return False
    return not (isinstance(other, ops.Load) and affine.precedes(other, op))
