"""Finds indices that make neighbours of work items, but at boundaries.

    (i + 1) % n        max(i - 1, 0)        min(max(j + 2, 0), m - 1)

From one boundary to the next such an index grows by one from work item to work item. It must be the
index along which elements are neighbours in memory, and few work items may be at its boundaries.
"""

from __future__ import annotations

from octants.analysis.control_flow.uniformity import Uniformity
from octants.analysis.indices.affine_analysis import INDEX_TYPES, AffineExpressions
from octants.analysis.indices.array_strides import strides
from octants.analysis.lanes.row_major_loops import ContiguousRows
from octants.ir import ops
from octants.ir.core import Operation, Space, Task, Value
from octants.ir.slices import backward_slice

_SHARE, _ROUNDS, _LONG = 4, 2, 64
"""Few work items are at a boundary: a part of them, in so many rounds of a remainder, or each of
so many.
"""


class Boundaries:
    """The boundaries of a task without loops.

    Attributes:
        slice: the operations that compute bounded indices, each after those that it uses.
        bounding: the minima, maxima and remainders among them, with the operand that is bounded.
    """

    def __init__(self, task: Task, facts: Uniformity, rows: ContiguousRows | None) -> None:
        self._varies, self._affine = facts.varies, AffineExpressions(task)
        self._lines = {task.body.args[0], *(() if rows is None else rows.columns)}
        self._definitions = {value: op for op in task.body.walk() for value in op.results}
        indices = [index for op in task.body.walk() for index in _neighbours(op)]
        found = dict.fromkeys(op for index in indices for op in self._slice(index))
        self.bounding: dict[ops.Binary, Value] = {}
        for op in found:
            if isinstance(op, ops.Binary) and op.result not in self._lines:
                index = op.lhs if self._varies(op.lhs) else op.rhs
                if self._bounds_few(op, index):
                    self.bounding[op] = index
                    self._lines.add(op.result)
        self.slice = list(found) if self.bounding else []
        self._known = {task.body.args[0], *(value for op in self.slice for value in op.results)}

    def __bool__(self) -> bool:
        return bool(self.bounding)

    def is_known(self, value: Value) -> bool:
        """Whether the slice has a value, which grows by one between boundaries."""
        return value in self._known and self._is_line(value)

    def _slice(self, index: Value) -> list[Operation]:
        """The operations that compute an index from the work item; none if it is not so simple."""
        found = backward_slice([index], self._definitions)
        return found if all(map(_is_simple, found)) else []

    def _is_line(self, value: Value) -> bool:
        """Whether a value grows by one from work item to work item between boundaries."""
        terms = self._affine.expression(value).terms
        varying = {atom: c for atom, c in terms.items() if self._varies(atom)}
        return list(varying.values()) == [1] and self._lines.issuperset(varying)

    def _bounds_few(self, op: ops.Binary, index: Value) -> bool:
        """Whether an operation bounds an index, but of few work items."""
        bound = op.rhs if index is op.lhs else op.lhs
        if op.fn not in ("min", "max") and (op.fn != "mod" or bound is op.lhs):
            return False
        if index.type not in INDEX_TYPES or self._varies(bound) or not self._is_line(index):
            return False
        (low, high), (least, most) = map(self._affine.value_range, (index, bound))
        if least != most:
            return True
        if op.fn == "mod":
            return least >= _LONG or (least > 0 and high // least - low // least <= _ROUNDS)
        beyond = high - least if op.fn == "min" else least - low
        return beyond <= 1 + (high - low) // _SHARE


def _neighbours(op: Operation) -> list[Value]:
    """The indices of an access along which elements are neighbours in memory."""
    if not isinstance(op, ops.Access) or op.array.space is Space.ARGUMENT:
        return []
    distances = strides(op.array, op.companion, len(op.indices))
    size = op.array.dtype.size
    return [x for x, distance in zip(op.indices, distances, strict=True) if distance == size]


def _is_simple(op: Operation) -> bool:
    is_argument = isinstance(op, ops.Load) and op.array.space is Space.ARGUMENT
    return op.is_scalar or is_argument or isinstance(op, ops.Shape)
