"""Computes before a loop what branches in it would compute in each iteration.

Before::

    array @x: f32, 1, field, () [primal (8,) ((0, 1, 0, 4),) ()]
    array @y: f32, 1, field, () [primal (8,) ((0, 1, 0, 4),) ()]
    parallel (%2: i32 < constant<8>()) {
      %3: i32 = constant<0>()
      %4: i32 = constant<8>()
      %5: f32 = constant<0.0>()
      %6: f32 = for(%3, %4, %5) { (%7: i32, %8: f32):
        %9: u1 = compare<ne>(%7, %2)
        %10: f32 = if(%9) {
          %11: f32 = load<@x, primal>(%2)
          %12: f32 = load<@x, primal>(%7)
          %13: f32 = binary<mul>(%11, %11)
          %14: f32 = binary<div>(%12, %13)
          %15: f32 = binary<add>(%8, %14)
          yield(%15)
        } {
          yield(%8)
        }
        yield(%10)
      }
      store<@y, primal>(%6, %2)
    }

After::

    parallel (%2: i32 < constant<8>()) {
      %3: i32 = constant<0>()
      %4: i32 = constant<8>()
      %5: f32 = constant<0.0>()
      %11: f32 = load<@x, primal>(%2)
      %13: f32 = binary<mul>(%11, %11)
      %6: f32 = for(%3, %4, %5) { (%7: i32, %8: f32):
        %9: u1 = compare<ne>(%7, %2)
        %10: f32 = if(%9) {
          %12: f32 = load<@x, primal>(%7)
          %14: f32 = binary<div>(%12, %13)
          %15: f32 = binary<add>(%8, %14)
          yield(%15)
        } {
          yield(%8)
        }
        yield(%10)
      }
      store<@y, primal>(%6, %2)
    }

`simplify` hoists what loops compute outside of branches. This pass speculates, so it is limited to
cheap arithmetic, and to loads of elements that surely exist, of arrays that the loop does not
write. It runs before derivatives are taken, so that the reversed loop sums up the adjoint of what
is hoisted, which flows on once after the loop; there, an infinity that no iteration uses
contributes nothing. Races have not been looked for yet, so elements that other work items may
write are not read where the program does not read them. It runs again for the invariants of
derivatives.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from itertools import starmap

from octants.analysis.cost_model import CHEAP, DIVISION
from octants.analysis.indices.affine_analysis import AffineExpressions
from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.array_aliasing import may_alias
from octants.ir.core import ArrayRef, Block, Module, Operation, Space, Task, Value
from octants.lazy_dataclass import dataclass

MOST_WORK = 32
"""The greatest cost, in additions, of what is hoisted out of one loop: no iteration may need it."""

_FUNCTIONS: dict[type[Operation], frozenset[str]] = {
    ops.Unary: frozenset((*CHEAP, "sqrt")),
    ops.Binary: frozenset(("add", "sub", "mul", "div", "min", "max", "and", "or", "xor")),
}
_OTHERS = frozenset(
    (ops.Load, ops.Constant, ops.Fma, ops.Compare, ops.Select, ops.Cast, ops.Bitcast)
)
"""Cheap operations: some functions, and all other operations of these classes."""


@staged("hoist_from_branches")
def hoist_from_branches(module: Module, noalias: bool = False, keeps_races: bool = False) -> None:
    """Hoist in every task, in place.

    Args:
        module: what is rewritten.
        noalias: no two arrays share memory.
        keeps_races: work items race where they did before, and nowhere else.
    """
    for task in module.tasks:
        if any(map(_has_branches, task.body.ops)):
            _Hoisting(task, noalias, keeps_races).rewrite(task.body)


def _has_branches(op: Operation) -> bool:
    """Whether there is an `if` in a loop."""
    if isinstance(op, ops.Loop):
        return any(isinstance(each, ops.If) for each in op.walk_regions())
    return any(_has_branches(each) for region in op.regions for each in region.ops)


@dataclass(slots=True)
class _Loop:
    """A loop around the operations that are visited, and what has been hoisted out of it."""

    written: set[ArrayRef]
    orders_memory: bool
    hoisted: list[Operation] = field(default_factory=list)
    work: int = 0


class _Hoisting:
    def __init__(self, task: Task, noalias: bool, keeps_races: bool) -> None:
        self._task = task
        self._noalias = noalias
        self._raced = _written(task.body.walk()) if keeps_races and task.is_parallel else set()
        self._loops: list[_Loop] = []
        self._depths: dict[Value, int] = {}  # of the loops around a definition
        self._ranges: AffineExpressions | None = None

    def rewrite(self, block: Block) -> None:
        """Move operations of a block, and of those in it, before the loops around it."""
        depth = len(self._loops)
        self._depths.update((arg, depth) for arg in block.args)
        kept: list[Operation] = []
        for op in block.ops:
            home = self._home(op) if depth else 0
            self._depths.update((value, home) for value in op.results)
            if home < depth:
                self._loops[home].hoisted.append(op)
                self._loops[home].work += _cost(op)
                continue
            if isinstance(op, ops.Loop):
                kept += self._hoisted_from(op)
            else:
                for region in op.regions:
                    self.rewrite(region)
            kept.append(op)
        block.ops[:] = kept

    def _hoisted_from(self, loop: ops.Loop) -> list[Operation]:
        inside = [*loop.walk_regions()]
        self._loops.append(_Loop(_written(inside), any(op.orders_memory for op in inside)))
        for region in loop.regions:
            self.rewrite(region)
        return self._loops.pop().hoisted

    def _home(self, op: Operation) -> int:
        """How many of the present loops must stay around an operation."""
        depth = len(self._loops)
        if not _is_cheap(op):
            return depth
        home = max((self._depths[value] for value in op.operands), default=0)
        if isinstance(op, ops.Load):
            if home < depth and (self._may_race(op) or not self._surely_exists(op)):
                return depth
            while depth > home and not self._pins(self._loops[depth - 1], op.ref):
                depth -= 1
            home = depth
        work = _cost(op)
        while home < len(self._loops) and self._loops[home].work + work > MOST_WORK:
            home += 1
        return home

    def _pins(self, loop: _Loop, target: ArrayRef) -> bool:
        """Whether an iteration may find another value in memory than the one before it."""
        return loop.orders_memory or self._is_among(loop.written, target)

    def _may_race(self, op: ops.Load) -> bool:
        """Whether another work item may write the element of a load."""
        return self._is_among(self._raced, op.ref)

    def _is_among(self, written: set[ArrayRef], target: ArrayRef) -> bool:
        return any(may_alias(each, target, self._noalias) for each in written)

    def _surely_exists(self, op: ops.Load) -> bool:
        """Whether the indices of a load are in bounds, whatever branches decide."""
        if op.array.space not in (Space.FIELD, Space.NDARRAY, Space.ARGUMENT):
            return False
        shape = op.array.fixed_shape or ()
        if len(shape) != op.array.rank:
            return False
        if self._ranges is None:
            self._ranges = AffineExpressions(self._task)
        pairs = zip(op.indices, (*shape, *op.array.element_shape), strict=True)
        return all(starmap(self._ranges.is_index, pairs))


def _written(found: Iterable[Operation]) -> set[ArrayRef]:
    return {op.ref for op in found if isinstance(op, ops.Write)}


def _is_cheap(op: Operation) -> bool:
    kind = type(op)
    return kind in _OTHERS or getattr(op, "fn", "") in _FUNCTIONS.get(kind, ())


def _cost(op: Operation) -> int:
    if isinstance(op, ops.Constant):
        return 0
    return DIVISION if getattr(op, "fn", "") in ("div", "sqrt") else 1
