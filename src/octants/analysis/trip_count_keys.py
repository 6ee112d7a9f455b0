"""Finds the number by which a block sorts its work items, so that subgroups have equal ones.

The threads of a subgroup run in step, so a loop takes as long as the longest one of its threads. If
neighbouring work items have other trip counts, most threads wait most of the time. The trip count
of such a loop is known before it runs: it follows from numbers that the work item loads. Sorting
pays if the loop is long, and if its accesses are not to neighbouring elements for neighbouring work
items, which a subgroup accesses together.
"""

from __future__ import annotations

from octants.analysis.affine_analysis import AffineExpressions
from octants.analysis.cost_model import Costs
from octants.ir import ops
from octants.ir.cooperative_tasks import ALL_REGISTERS, cooperates
from octants.ir.core import Operation, Task, Value
from octants.lazy_dataclass import dataclass

_LONG = 200
"""The cost of an iteration, in additions, with which a loop is long; inner loops have some."""
_EXCLUDING = ("fixed_order", "block_dim", ALL_REGISTERS)
_TRIPS = 8  # that are assumed of loops of unknown trip counts
_GROWS = frozenset(("add", "sub", "mul", "floordiv", "shr", "shl", "min", "max"))
_COMPUTES = (ops.Constant, ops.Binary, ops.Cast, ops.Load)


@dataclass(frozen=True, slots=True)
class TripCountKey:
    """A number that grows with the trip count: `end`, without `start` if there is one.

    `slice` computes both from the number of the work item, and has no effects.
    """

    slice: tuple[Operation, ...]
    end: Value
    start: Value | None


def find_key(task: Task) -> TripCountKey | None:
    """The key of a task's work items; None if they are not worth sorting, or cannot be sorted.

    A block has a size that the kernel asks for because its work items have an order. A launch of
    few work items takes as long as the longest of them.
    """
    if not task.is_parallel or any(map(task.options.get, _EXCLUDING)):
        return None
    loops = [op for op in task.body.ops if isinstance(op, ops.For)]
    if not loops or cooperates(task) or any(op.reports for op in task.body.walk()):
        return None
    finder, costs = _Finder(task), Costs(task.body, _TRIPS)
    for loop in loops:
        key = finder.key(loop)
        if key is not None and costs.of(loop.body) >= _LONG:
            return None if finder.accesses_neighbours() else key
    return None


class _Finder:
    def __init__(self, task: Task) -> None:
        self._task = task
        self._makers = {value: op for op in task.body.ops for value in op.results}

    def key(self, loop: ops.For) -> TripCountKey | None:
        start = None if self._is_constant(loop.lower) else loop.lower
        end = self._origin(loop.upper) if start is None else loop.upper
        needed: dict[Operation, None] = {}
        if not all(self._visit(value, needed) for value in (end, start) if value is not None):
            return None
        item = self._task.body.args[0]
        if not any(isinstance(op, ops.Load) for op in needed) or not any(
            item in op.operands for op in needed
        ):
            return None
        return TripCountKey(tuple(op for op in self._task.body.ops if op in needed), end, start)

    def _is_constant(self, value: Value) -> bool:
        return isinstance(self._makers.get(value), ops.Constant)

    def _origin(self, value: Value) -> Value:
        """The number that a bound grows with: a loop in blocks counts these."""
        while True:
            op = self._makers.get(value)
            if isinstance(op, ops.Binary) and op.fn in _GROWS:
                constants = [self._is_constant(each) for each in (op.lhs, op.rhs)]
                if op.fn in ("sub", "floordiv", "shr", "shl"):
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

    def _visit(self, value: Value, needed: dict[Operation, None]) -> bool:
        """Add what computes a value; return whether that can be computed before the work item."""
        op = self._makers.get(value)
        if op is None:
            return value is self._task.body.args[0]
        if not isinstance(op, _COMPUTES):
            return False
        needed[op] = None
        return all(self._visit(each, needed) for each in op.operands)

    def accesses_neighbours(self) -> bool:
        """Whether loops access elements by the number of the work item."""
        affine = AffineExpressions(self._task)
        return any(
            affine.item in affine.expression(index).terms
            for op in self._task.body.walk()
            if isinstance(op, ops.Access) and affine.loops[op]
            for index in op.indices
        )
