"""Finds sums whose lanes add to neighbouring elements at several distances, as reverse stencils do.

    x[i - 1] += a;  x[i] += b;  x[(i + 1) % n] += c

In these updates all lanes of a tile together access one *window* of elements. Each takes its part
of it, moved on by a constant: the distance. Indices that are bounded, by a remainder, a minimum or
a maximum, are at their distance only where no lane is at a boundary.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import field

from octants.analysis.control_flow.uniformity import Uniformity
from octants.analysis.indices.affine_analysis import AffineExpressions
from octants.analysis.indices.affine_arithmetic import Affine, wrapped
from octants.analysis.indices.array_strides import strides
from octants.analysis.sums.gatherable_sums import atomics_outside_loops
from octants.ir import ops
from octants.ir.core import Operation, Task, Value
from octants.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class SlidingWindow:
    """Updates of neighbouring elements along an axis.

    Attributes:
        anchor: an update whose elements are neighbours, and whose indices all work items have.
        axis: the index by which elements differ.
        distances: by how much that index exceeds the anchor's.
        bounded: the updates of which that is so only where no lane is at a boundary.
        is_certain: whether all work items make the anchor's update.
    """

    anchor: ops.Atomic
    axis: int
    distances: dict[Operation, int]
    bounded: frozenset[Operation]
    is_certain: bool

    @property
    def ordered(self) -> list[int]:
        """The distances that occur, the least one first."""
        return sorted(set(self.distances.values()))


@dataclass(slots=True)
class _Family:
    """The updates whose elements probably differ by constants, and the anchors among them."""

    axis: int
    constants: dict[ops.Atomic, int] = field(default_factory=dict)
    bounded: set[Operation] = field(default_factory=set)
    anchors: list[ops.Atomic] = field(default_factory=list)


def find_windows(
    task: Task, updates: Collection[Operation], facts: Uniformity, lines: Iterable[Value], most: int
) -> list[SlidingWindow]:
    """Find the windows of a task.

    Args:
        task: the task.
        updates: those that may be made later, and in any order.
        facts: which values are the same in all lanes.
        lines: the values that grow by one from lane to lane.
        most: the greatest difference between two distances of a window.

    Returns:
        The windows, each with several updates.
    """
    if len(updates) < 2:
        return []
    return list(_Finder(task, facts, lines).find(updates, most))


class _Finder(AffineExpressions):
    def __init__(self, task: Task, facts: Uniformity, lines: Iterable[Value]) -> None:
        super().__init__(task)
        self._varies, self._lines = facts.varies, set(lines)

    def find(self, updates: Collection[Operation], most: int) -> Iterator[SlidingWindow]:
        families: dict[object, _Family] = {}
        always = set(self.task.body.ops)
        own = {value for op in always for value in op.results} | set(self.task.body.args)
        for op in atomics_outside_loops(self.task.body):
            axis = self._axis(op) if op in updates else None
            if axis is None:
                continue
            index = op.indices[axis]
            exact, expected = self.expression(index), self._away_from_boundaries(index)
            others = (self._key(index) for k, index in enumerate(op.indices) if k != axis)
            key = op.ref, axis, *others, index.type, frozenset(expected.terms.items())
            family = families.setdefault(key, _Family(axis))
            family.constants[op] = expected.constant
            if (exact.constant, exact.terms) != (expected.constant, expected.terms):
                family.bounded.add(op)
            elif own.issuperset(op.indices) and self._is_line(exact):
                family.anchors.append(op)
        for family in families.values():
            yield from self._windows(family, most, always)

    def _axis(self, op: ops.Atomic) -> int | None:
        """The only index that varies, if elements along it are neighbours in memory."""
        varying = [axis for axis, index in enumerate(op.indices) if self._varies(index)]
        if len(varying) != 1:
            return None
        (axis,) = varying
        distance = strides(op.array, op.companion, len(op.indices))[axis]
        return axis if distance == op.array.dtype.size else None

    def _key(self, index: Value) -> tuple[object, ...]:
        expression = self.expression(index)
        return index.type, frozenset(expression.terms.items()), expression.constant

    def _is_line(self, expression: Affine) -> bool:
        """Whether an index grows by one from lane to lane."""
        varying = {atom: c for atom, c in expression.terms.items() if self._varies(atom)}
        return list(varying.values()) == [1] and self._lines.issuperset(varying)

    def _away_from_boundaries(self, value: Value) -> Affine:
        """The expression of an index where none of its bounds counts."""
        found = self.expression(value)
        for atom, coefficient in list(found.terms.items()):
            inside = self._unbounded(atom)
            if inside is not None:
                found = found.without(atom).plus(inside, coefficient)
        return found

    def _unbounded(self, atom: Value) -> Affine | None:
        op = self.definitions.get(atom)
        if atom in self._lines or not isinstance(op, ops.Binary):
            return None
        operands = op.lhs, op.rhs
        if op.fn in ("min", "max") and sum(map(self._varies, operands)) == 1:
            return self._away_from_boundaries(next(filter(self._varies, operands)))
        if op.fn != "mod" or self._varies(op.rhs):
            return None
        found, size = self._away_from_boundaries(op.lhs), self.expression(op.rhs)
        if not size.terms and size.constant > 0:  # i + n - 1 is i - 1
            rounds = (found.constant + size.constant // 2) // size.constant
            return found.plus(size, -rounds)
        if any(atom in found.terms for atom in size.terms):
            return found.plus(size, -1)
        return found

    def _windows(
        self, family: _Family, most: int, always: Collection[Operation]
    ) -> Iterator[SlidingWindow]:
        """Divide a family into windows of up to ``most`` elements more than there are lanes."""
        if not family.anchors:
            return
        bits = family.anchors[0].indices[family.axis].type.bits
        zero = family.constants[family.anchors[0]]
        waiting = {op: wrapped(c - zero, bits) for op, c in family.constants.items()}
        while waiting:
            first = min(waiting.values())
            part = {op: c for op, c in waiting.items() if c - first <= most}
            waiting = {op: c for op, c in waiting.items() if op not in part}
            anchors = [op for op in family.anchors if op in part]
            if anchors:
                anchor = next(filter(always.__contains__, anchors), anchors[0])
                distances: dict[Operation, int] = {op: c - part[anchor] for op, c in part.items()}
                bounded = frozenset(family.bounded & distances.keys())
                if len(distances) > 1:
                    yield SlidingWindow(anchor, family.axis, distances, bounded, anchor in always)
