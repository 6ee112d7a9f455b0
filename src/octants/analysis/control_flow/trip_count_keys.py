"""Finds the number by which a block sorts its work items, so that subgroups have equal ones.

The threads of a subgroup run in step, so a loop takes as long as the longest one of its threads. If
neighbouring work items have other trip counts, most threads wait most of the time. The trip count
of such a loop is known before it runs: it follows from numbers that the work item loads. Sorting
pays if the loop is long, and if its accesses are not to neighbouring elements for neighbouring work
items, which a subgroup accesses together.

The numbers are loaded before the work item, and other work items may overwrite them meanwhile. That
may spoil the order, but what is an index of another load must not change: it might be none by then.
"""

from __future__ import annotations

from collections.abc import Sequence

from octants.analysis.cost_model import Costs
from octants.analysis.indices.affine_analysis import AffineExpressions
from octants.ir import ops
from octants.ir.array_aliasing import may_alias
from octants.ir.cooperative_tasks import ALL_REGISTERS, cooperates
from octants.ir.core import Operation, Space, Task, Value
from octants.ir.slices import backward_slice
from octants.lazy_dataclass import dataclass

_LONG = 200
"""The cost of an iteration, in additions, with which a loop is long; inner loops have some."""
_EXCLUDING = ("fixed_order", "block_dim", ALL_REGISTERS)
_TRIPS = 8  # that are assumed of loops of unknown trip counts
_SHRINKS = ("floordiv", "shr", "ushr")
_GROWS = frozenset(("add", "sub", "mul", "shl", "min", "max", *_SHRINKS))
_COMPUTES = (ops.Constant, ops.Binary, ops.Cast, ops.Load)


@dataclass(frozen=True, slots=True)
class TripCountKey:
    """A number that grows with the trip count: `end`, without `start` if there is one.

    `slice` computes both from the number of the work item, and has no effects.
    """

    slice: tuple[Operation, ...]
    end: Value
    start: Value | None


def find_key(task: Task, noalias: bool = False) -> TripCountKey | None:
    """The key of a task's work items; None if they are not worth sorting, or cannot be sorted.

    A block has a size that the kernel asks for because its work items have an order. A launch of
    few work items takes as long as the longest of them. With ``noalias`` no two arrays share
    memory.
    """
    if not task.is_parallel or any(map(task.options.get, _EXCLUDING)):
        return None
    loops = [op for op in task.body.ops if isinstance(op, ops.For)]
    if not loops or cooperates(task) or any(op.reports for op in task.body.walk()):
        return None
    finder, costs = _Finder(task, noalias), Costs(task.body, _TRIPS)
    for loop in loops:
        key = finder.key(loop)
        if key is not None and costs.of(loop.body) >= _LONG * finder.iterations(loop):
            return None if finder.accesses_neighbours() else key
    return None


class _Finder:
    def __init__(self, task: Task, noalias: bool) -> None:
        self._task = task
        self._makers = {value: op for op in task.body.ops for value in op.results}
        writes = (op for op in task.body.walk() if isinstance(op, ops.Write))
        self._noalias, self._written = noalias, {op.ref for op in writes}

    def key(self, loop: ops.For) -> TripCountKey | None:
        start = None if self._is_constant(loop.lower) else loop.lower
        end = self._origin(loop.upper) if start is None else loop.upper
        needed = {*backward_slice([end] if start is None else [end, start], self._makers)}
        found = tuple(op for op in self._task.body.ops if op in needed)
        return TripCountKey(found, end, start) if self._is_sound(found) else None

    def iterations(self, loop: ops.For) -> int:
        """Return how many iterations one of a loop over chunks has; see `write_chunks`."""
        op = self._makers.get(loop.upper)
        shift = self._makers.get(op.rhs) if isinstance(op, ops.Binary) and op.fn == "ushr" else None
        return 1 << int(shift.value) if isinstance(shift, ops.Constant) else 1

    def _is_constant(self, value: Value) -> bool:
        return isinstance(self._makers.get(value), ops.Constant)

    def _origin(self, value: Value) -> Value:
        """The number that a bound grows with: a loop in blocks counts these."""
        while True:
            op = self._makers.get(value)
            if isinstance(op, ops.Binary) and op.fn in _GROWS:
                constants = [self._is_constant(each) for each in (op.lhs, op.rhs)]
                if op.fn in ("sub", "shl", *_SHRINKS):
                    constants[0] = False
                if sum(constants) != 1:
                    return value
                value = op.rhs if constants[0] else op.lhs
            elif isinstance(op, ops.Longest):
                value = op.count
            elif isinstance(op, ops.Cast) and op.x.type.is_integer:
                value = op.x
            else:
                return value

    def _is_local(self, op: Operation) -> bool:
        """Whether an operation loads what the work item has stored."""
        return isinstance(op, ops.Load) and op.array.space is Space.LOCAL

    def _is_sound(self, needed: Sequence[Operation]) -> bool:
        """Whether work items load elements of their own, by indices that nothing changes.

        No other operations may be needed than such that can run before the work item.
        """
        by_item, changing, found = {self._task.body.args[0]}, set[Value](), False
        for op in needed:
            if not isinstance(op, _COMPUTES) or self._is_local(op):
                return False
            if isinstance(op, ops.Load):
                if not changing.isdisjoint(op.indices):
                    return False
                found = found or not by_item.isdisjoint(op.indices)
            if not by_item.isdisjoint(op.operands):
                by_item.update(op.results)
            if not changing.isdisjoint(op.operands) or self._may_change(op):
                changing.update(op.results)
        return found

    def _may_change(self, op: Operation) -> bool:
        """Whether an operation loads what the task may write."""
        return isinstance(op, ops.Load) and any(
            may_alias(op.ref, written, self._noalias) for written in self._written
        )

    def accesses_neighbours(self) -> bool:
        """Whether loops access elements by the number of the work item."""
        affine = AffineExpressions(self._task)
        return any(
            affine.item in affine.expression(index).terms
            for op in self._task.body.walk()
            if isinstance(op, ops.Access) and affine.loops[op]
            for index in op.indices
        )
