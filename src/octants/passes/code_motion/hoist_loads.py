"""Hoists loads over branches, so that a thread of a GPU waits for all of them at once.

Before::

    array @x: f32, 1, field, () [primal (8,) ((0, 1, 0, 4),) ()]
    array @y: f32, 1, field, () [primal (8,) ((0, 1, 0, 4),) ()]
    parallel (%2: i32 < constant<8>()) {
      %3: i32 = constant<1>()
      %4: i32 = constant<7>()
      %5: f32 = load<@x, primal>(%2)
      %6: u1 = compare<lt>(%2, %4)
      %7: f32 = if(%6) {
        %8: i32 = binary<add>(%2, %3)
        %9: f32 = load<@x, primal>(%8)
        %10: f32 = binary<sub>(%9, %5)
        yield(%10)
      } {
        yield(%5)
      }
      %11: f32 = load<@y, primal>(%2)
      %12: f32 = binary<add>(%11, %7)
      store<@y, primal>(%12, %2)
    }

After::

    parallel (%2: i32 < constant<8>()) {
      %3: i32 = constant<1>()
      %4: i32 = constant<7>()
      %5: f32 = load<@x, primal>(%2)
      %6: u1 = compare<lt>(%2, %4)
      %8: i32 = binary<add>(%2, %3)
      %7: i32 = select(%6, %8, %2)
      %9: f32 = load<@x, primal>(%7)
      %11: f32 = load<@y, primal>(%2)
      %10: f32 = if(%6) {
        %12: f32 = binary<sub>(%9, %5)
        yield(%12)
      } {
        yield(%5)
      }
      %13: f32 = binary<add>(%11, %10)
      store<@y, primal>(%13, %2)
    }

The neighbours of a cell that the boundary may cut off are loaded in one branch each. A thread waits
for the loads of a branch before it comes to the next. Where a branch depends on indices alone, its
loads can run before it: where the branch is not taken they load an element that the work item has
loaded anyway, or one that surely exists. Then the loads behind the branch move before it, too, if
no operation between them may write what they read.

Only branches outside of loops, without loops inside, are hoisted over: a value would take a
register for the whole time of a loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from octants.analysis.indices.affine_analysis import AffineExpressions
from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.array_aliasing import may_alias
from octants.ir.builder import Builder
from octants.ir.core import ArrayRef, Block, Module, Operation, Space, Task, Value
from octants.ir.slices import backward_slice

MOST_LOADS = 48
"""The most loads of a task that are hoisted: each takes registers."""

_INDEX = frozenset(("add", "sub", "mul", "min", "max", "and", "or", "xor", "shl", "shr", "ushr"))


@staged("hoist_loads")
def hoist_loads(module: Module, noalias: bool = False) -> None:
    """Hoist in all parallel tasks whose work items do not cooperate, in place.

    Args:
        module: what is rewritten.
        noalias: no two arrays share memory.
    """
    for task in module.tasks:
        if task.is_parallel and any(map(_is_branch, task.body.ops)) and _is_independent(task):
            _Speculation(task).run()
            _Advance(task, noalias).run()


def _is_branch(op: Operation) -> bool:
    """Whether an operation is an `if` without loops in it."""
    return isinstance(op, ops.If) and not any(
        isinstance(each, ops.Loop) for each in op.walk_regions()
    )


def _is_independent(task: Task) -> bool:
    return not any(op.orders_memory or op.is_convergent for op in task.body.walk())


def _reads_shared_memory(op: Operation) -> TypeGuard[ops.Load]:
    """Whether an operation loads from memory that is not the work item's own."""
    spaces = (Space.FIELD, Space.NDARRAY, Space.TEMPORARY)
    return isinstance(op, ops.Load) and op.array.space in spaces


def _is_index_arithmetic(op: Operation) -> bool:
    """Whether an operation is cheap, and may run where the program does not come to it."""
    if isinstance(op, (ops.Constant, ops.Cast, ops.Compare, ops.Select)):
        return True
    return isinstance(op, ops.Binary) and op.fn in _INDEX and not op.lhs.type.is_float


class _Speculation:
    """Moves loads out of the branches of a task that depend on indices alone.

    `_known` are the values that no load computes but those of arguments, `_loaded` the indices of
    the elements that have been loaded, by array.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._ranges = AffineExpressions(task)
        self._known = set(task.body.args)
        self._loaded: dict[ArrayRef, list[Sequence[Value]]] = {}
        self._left = MOST_LOADS
        self._builder = Builder(Block())

    def run(self) -> None:
        """Rewrite the task."""
        kept = self._builder.block.ops
        for op in self._task.body.ops:
            if _is_branch(op) and op.operands[0] in self._known:
                assert isinstance(op, ops.If)
                self._hoist_from(op, op.then)
                self._hoist_from(op, op.orelse)
            elif isinstance(op, ops.Load):
                if op.array.space is Space.ARGUMENT and self._known.issuperset(op.indices):
                    self._known.update(op.results)
                self._loaded.setdefault(op.ref, []).append(op.indices)
            elif op.is_scalar and self._known.issuperset(op.operands):
                self._known.update(op.results)
            kept.append(op)
        self._task.body.ops[:] = kept

    def _hoist_from(self, branch: ops.If, block: Block) -> None:
        """Move loads, and the indices that they need, before the branch whose block this is."""
        before = self._builder.block.ops
        inside = {value for op in block.ops for value in op.results}
        movable: dict[Value, Operation] = {}  # index arithmetic that no load has needed yet
        moved: set[Operation] = set()
        for op in block.ops:
            if op.regions or op.writes or op.has_effects or not self._left:
                break
            if not inside.isdisjoint(op.operands) and not movable.keys() >= inside.intersection(
                op.operands
            ):
                continue
            if _is_index_arithmetic(op):
                movable[op.results[0]] = op
            elif isinstance(op, ops.Load):
                needed = backward_slice(op.operands, movable)
                mark = len(before)
                before += needed
                indices = self._safe_indices(op, branch, block)
                if indices is None:
                    del before[mark:]
                    continue
                load = ops.Load(op.array, op.companion, indices, results=op.results)
                load.location = op.location
                before.append(load)
                moved.update((op, *needed))
                inside.difference_update(op.results, *(each.results for each in needed))
                for each in needed:
                    del movable[each.results[0]]
                self._left -= 1
        block.ops[:] = [op for op in block.ops if op not in moved]

    def _safe_indices(self, op: ops.Load, branch: ops.If, block: Block) -> list[Value] | None:
        """The indices of a load, or those of an element that exists if its block is not run."""
        array, builder = op.array, self._builder
        if not _reads_shared_memory(op) or not op.indices:
            return None
        shape = array.fixed_shape
        extents = (
            None if shape is None or len(shape) != array.rank else (*shape, *array.element_shape)
        )
        others = max(
            self._loaded.get(op.ref, ()),
            key=lambda other: sum(a is b for a, b in zip(other, op.indices, strict=True)),
            default=None,
        )
        if others is None and extents is None:
            return None
        indices: list[Value] = []
        for axis, index in enumerate(op.indices):
            other = None if others is None else others[axis]
            is_valid = extents is not None and self._ranges.is_index(index, extents[axis])
            if other is index or is_valid:
                indices.append(index)
                continue
            other = builder.constant(0, index.type) if other is None else other
            other = builder.cast(other, index.type)
            pair = (index, other) if block is branch.then else (other, index)
            indices.append(builder.select(branch.condition, *pair))
        return indices


class _Advance:
    """Moves loads over the branches before them."""

    def __init__(self, task: Task, noalias: bool) -> None:
        self._task, self._noalias = task, noalias
        self._affine = AffineExpressions(task)

    def run(self) -> None:
        """Rewrite the task."""
        result: list[Operation] = []
        left = MOST_LOADS
        for op in self._task.body.ops:
            if left and _reads_shared_memory(op) and self._moves(op, result):
                left -= 1
            else:
                result.append(op)
        self._task.body.ops[:] = result

    def _moves(self, load: ops.Load, before: list[Operation]) -> bool:
        """Insert a load, with the indices that it needs, before the first branch that it may pass.

        Args:
            load: The load.
            before: The operations before it; rewritten in place.
        """
        makers = {value: k for k, op in enumerate(before) for value in op.results}
        indices: set[int] = set()
        earliest, waiting = 0, list(load.operands)
        while waiting:
            k = makers.get(waiting.pop())
            if k is None or k in indices:
                continue
            if _is_index_arithmetic(before[k]):
                indices.add(k)
                waiting += before[k].operands
            else:
                earliest = max(earliest, k + 1)
        position = len(before)
        while position > earliest and self._passes(load, before[position - 1]):
            position -= 1
        branches = (k for k in range(position, len(before)) if before[k].regions)
        target = next(branches, None)
        if target is None:
            return False
        moved = [before[k] for k in sorted(indices) if k > target]
        kept = [op for op in before[target:] if op not in moved]
        before[target:] = [*moved, load, *kept]
        return True

    def _passes(self, load: ops.Load, op: Operation) -> bool:
        """Whether a load may move before an operation."""
        if op.regions:
            return _is_branch(op) and all(
                each.regions or self._passes(load, each) for each in op.walk_regions()
            )
        if isinstance(op, ops.Write):
            return not may_alias(op.ref, load.ref, self._noalias) or self._differ(load, op)
        return isinstance(op, (ops.Access, ops.Yield)) or not op.has_effects

    def _differ(self, load: ops.Load, write: ops.Write) -> bool:
        """Whether a load and a write of one execution access different elements."""
        if load.ref != write.ref:
            return False
        for pair in zip(load.indices, write.indices, strict=True):
            one, other = self._affine.together(*pair)
            difference = other.plus(one, -1)
            if not difference.terms and difference.constant:
                return True
        return False
