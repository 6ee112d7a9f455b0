"""Splits the serial sums of work items over threads, where work items are few.

Before::

    array @x: f32, 2, ndarray, () [primal]
    array @y: f32, 1, ndarray, () [primal]
    parallel (%2: i32 < constant<10000>()) {
      %3: i32 = constant<0>()
      %4: i32 = shape<@x, 1>()
      %5: f32 = constant<0.0>()
      %6: f32 = for(%3, %4, %5) { (%7: i32, %8: f32):
        %9: f32 = load<@x, primal>(%2, %7)
        %10: f32 = binary<add>(%8, %9)
        yield(%10)
      }
      store<@y, primal>(%6, %2)
    }

After::

    kernel @k
    array @x: f32, 2, ndarray, () [primal]
    array @y: f32, 1, ndarray, () [primal]
    parallel @k_0 {'block_dim': 128, 'subgroup_size': 32, 'shared_loops': True} {
      %0: i64 = constant<160000>()
      %1: i64 = constant<0>()
      yield(%1, %0)
    } { (%2: i64):
      %3: i64 = constant<4>()
      %4: i64 = constant<15>()
      %5: i64 = binary<and>(%2, %4)
      %6: i64 = constant<0>()
      %7: u1 = compare<eq>(%5, %6)
      %8: i64 = binary<shr>(%2, %3)
      %9: i32 = cast(%8)
      %10: i32 = shape<@x, 1>()
      %11: f32 = constant<0.0>()
      %12: i64 = cast(%10)
      %13: i64 = binary<sub>(%12, %5)
      %14: i64 = binary<add>(%13, %4)
      %15: i64 = binary<shr>(%14, %3)
      %16: f32 = constant<-0.0>()
      %17: f32 = select(%7, %11, %16)
      %18: i32 = constant<0>()
      %19: i32 = cast(%15)
      %20: i32 = constant<4>()
      %21: i32 = cast(%5)
      %22: f32 = for(%18, %19, %17) { (%23: i32, %24: f32):
        %25: i32 = binary<shl>(%23, %20)
        %26: i32 = binary<add>(%21, %25)
        %27: f32 = load<@x, primal>(%9, %26)
        %28: f32 = binary<add>(%24, %27)
        yield(%28)
      }
      %29: i32 = constant<1>()
      %30: f32 = subgroup<shuffle_xor, 32>(%22, %29)
      %31: f32 = binary<add>(%22, %30)
      %32: i32 = constant<2>()
      %33: f32 = subgroup<shuffle_xor, 32>(%31, %32)
      %34: f32 = binary<add>(%31, %33)
      %35: f32 = subgroup<shuffle_xor, 32>(%34, %20)
      %36: f32 = binary<add>(%34, %35)
      %37: i32 = constant<8>()
      %38: f32 = subgroup<shuffle_xor, 32>(%36, %37)
      %39: f32 = binary<add>(%36, %38)
      barrier<subgroup>()
      if(%7) {
        store<@y, primal>(%39, %9)
        yield()
      } {
        yield()
      }
      yield()
    }

Each launch decides how many threads share a work item, a power of two: enough to fill the device.
All of them run the whole work item, but each has its own iterations of the loops that sum up, and
only the first one has effects, after the others have read what they need. That changes the order
of the sums. So the pass runs only where rounding may differ, and only on sums that no branch, trip
count or index depends on, since a replay must find those again. Loops may also add to memory that
nothing else in the task reads.

A short loop is split if it has longer ones in it, such as that over the cells around a particle.
A loop of few iterations that adds to the same elements for all work items, as to weights, is not:
the lanes of an item add to different elements, but those of different items, which are in step, add
to one element together.

The threads of a work item are lanes of a subgroup here, which load what is side by side
(`split_sums_over_lanes`). If everything that its loops load is uniform over the work items, blocks
share (`split_sums_over_blocks`).
"""

from __future__ import annotations

from octants.analysis.floats.replay_strictness import decides
from octants.analysis.sums.gatherable_sums import PairLoops
from octants.analysis.sums.reductions import find_shared
from octants.analysis.sums.serial_sums import REASSOCIATE_SUMS, only_adds, only_sums
from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.cooperative_tasks import local_arrays
from octants.ir.core import Module, Task
from octants.passes.loops.collapse_nests import collapse_nests
from octants.passes.sums.split_sums_over_blocks import BlockShares
from octants.passes.sums.split_sums_over_lanes import LaneShares
from octants.passes.sums.split_work_items import SharedItems
from octants.simplify import simplify
from octants.target import Blocks

SHARERS = 64
"""So many threads can share a work item at least."""

_FEW = 16  # iterations
_MOST_COMBINED = 64
"""The iterations of a loop that is not split if subgroups can combine what it adds to memory."""
_BLOCKS = Blocks()


@staged("split_sums")
def split_sums(
    module: Module, noalias: bool = True, fills: int = 1 << 18, blocks: Blocks = _BLOCKS
) -> None:
    """Split the sums of tasks with fewer than ``fills`` work items, in place.

    Args:
        module: what is rewritten.
        noalias: no two arrays share memory.
        fills: how many threads fill the device.
        blocks: what it has for threads that work together.
    """
    has_changed = False
    for task in module.tasks:
        facts = PairLoops(task, noalias)
        if not facts.is_free() or facts.fills(fills // 2 + 1):
            continue
        if loops := _loops_to_split(task, facts, noalias):
            collapse_nests(task, loops, facts.numbers)
            facts = PairLoops(task, noalias)
            shared: SharedItems = LaneShares(task, facts, loops, fills, blocks)
            in_blocks = BlockShares(task, facts, loops, fills, blocks)
            if in_blocks.fits and _may_share_in_blocks(task, facts, loops):
                shared = in_blocks
            shared.run()
            module.arrays += shared.arrays
            has_changed = True
    if has_changed:  # items of a thread compute some values several times
        simplify(module)


# -- which -----------------------------------------------------------------------------------------


def _loops_to_split(task: Task, facts: PairLoops, noalias: bool) -> set[ops.For]:
    """The loops of a task that sum up; none if it has others, or cannot run in several threads."""
    every = list(task.body.walk())
    used = {value for op in every for value in op.operands}
    if local_arrays(task) or any(
        op.has_effects and not used.isdisjoint(op.results) for op in every
    ):
        return set()
    found: set[ops.For] = set()
    combined = find_shared(task.body)
    true = {op.result for op in every if isinstance(op, ops.Constant) and op.value is True}
    for op in task.body.ops:
        inner = [*op.walk()][1:]
        has_effects = any(each.has_effects for each in inner)
        loops = [each for each in (op, *inner) if isinstance(each, ops.Loop)]
        is_short = all(facts.is_short(loop, _FEW) for loop in loops)
        if isinstance(op, ops.For) and not is_short:
            if has_effects and not (only_adds(op, noalias) and _are_alone(task, op, facts)):
                return set()
            are_few = all(facts.is_short(loop, _MOST_COMBINED + 1) for loop in loops)
            if are_few and not combined.isdisjoint(inner):
                return set()
            if not only_sums(op, true, is_nest=True):
                return set()
            found.add(op)
        elif not is_short or (op.results and has_effects):
            return set()
    sums = {value for op in found for value in op.results}
    floats = {value for value in sums if value.type.is_float}
    may = task.options.get(REASSOCIATE_SUMS) or not decides(task.body, floats)
    return found if sums and may else set()


def _are_alone(task: Task, loop: ops.For, facts: PairLoops) -> bool:
    """Whether nothing but sums accesses what a loop adds to."""
    updates = [op for op in loop.body.walk() if isinstance(op, ops.Atomic)]
    others = [op for op in task.body.walk() if isinstance(op, ops.Access) and not facts.is_sum(op)]
    return not any(facts.meet(update, other) for update in updates for other in others)


def _may_share_in_blocks(task: Task, facts: PairLoops, loops: set[ops.For]) -> bool:
    """Whether loops load from the same locations for all work items, and have no effects.

    The last threads of blocks have items that do not exist.
    """
    if any(op.has_effects for loop in loops for op in loop.body.walk()):
        return False
    known = facts.following(task.body)
    for loop in loops:
        varying_equally = facts.following(loop.body, {*known, loop.body.args[0]})
        loads = (op for op in loop.body.walk() if isinstance(op, ops.Load))
        if not all(varying_equally.issuperset(load.indices) for load in loads):
            return False
    return True
