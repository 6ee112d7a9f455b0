"""Decides which accesses of a task may alias: within a work item, and between work items.

Indices are compared as affine expressions modulo 2^32, since they wrap: see
`affine_analysis` and `facts_from_valid_indices`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Sequence

from octants.analysis.indices.affine_arithmetic import Affine, wrapped
from octants.analysis.indices.equal_indices import EqualIndices
from octants.ir import ops
from octants.ir.core import Operation, Value
from octants.types.scalars import DType

_Number = tuple[DType, int, frozenset[tuple[Value, int]]]


class ElementAliasing(EqualIndices):
    """Facts of one task about the elements that its accesses touch."""

    def is_owned(self, accesses: Sequence[ops.Access]) -> bool:
        """Whether no element is accessed by two work items, by some accesses to one array."""
        if not self.task.is_parallel:
            return True
        elements = {tuple(map(self.number, op.indices)): op.indices for op in accesses}
        verdicts: dict[tuple[tuple[Value, Value], ...], bool] = {}
        for (key, one), (other_key, other) in itertools.combinations_with_replacement(
            elements.items(), 2
        ):
            numbers = list(zip(key, other_key, strict=True))
            if any(a != b and isinstance(a, int) and isinstance(b, int) for a, b in numbers):
                continue
            indices = zip(one, other, numbers, strict=True)
            pairs = tuple((a, b) for a, b, (number, _) in indices if not isinstance(number, int))
            if pairs not in verdicts:
                verdicts[pairs] = self._is_injective(pairs)
            if not verdicts[pairs]:
                return False
        return True

    def sections(self, accesses: Sequence[ops.Access]) -> list[list[ops.Access]]:
        """Accesses to one array in groups, so that no two groups ever touch one element.

        Accesses whose uniform indices differ in constants alone are not compared.
        """
        alike: dict[tuple[_Number | None, ...], list[ops.Access]] = {}
        for op in accesses:
            alike.setdefault(tuple(map(self._uniform_number, op.indices)), []).append(op)
        found: list[list[ops.Access]] = []  # of accesses that are alike, the first
        earlier: dict[Hashable, list[ops.Access]] = {}  # by what is equal but for constants
        for key, (first, *_) in alike.items():
            shape = tuple(number and (number[0], number[2]) for number in key)
            rivals = (same for other, same in earlier.items() if other != shape)
            met = {each for same in rivals for each in same if self._may_meet(first, each)}
            if met:
                touched = [group for group in found if not met.isdisjoint(group)]
                found = [group for group in found if group not in touched]
                found.append([*(each for group in touched for each in group), first])
            else:
                found.append([first])
            earlier.setdefault(shape, []).append(first)
        others = {same[0]: same for same in alike.values()}
        return [[op for each in group for op in others[each]] for group in found]

    def _uniform_number(self, index: Value) -> _Number | None:
        """A key of the number that an index is for all work items; None if it may vary."""
        expression = self.expression(index)
        if not all(map(self.is_uniform, expression.terms)):
            return None
        constant = wrapped(expression.constant, expression.bits)
        return index.type, constant, frozenset(expression.terms.items())

    def _may_meet(self, one: ops.Access, other: ops.Access) -> bool:
        """Whether two accesses, of any work items and iterations, may be to one element."""
        pairs = zip(one.indices, other.indices, strict=True)
        return not any(self._always_differ(*self.together(a, b)) for a, b in pairs)

    def number(self, index: Value) -> int | Value:
        """The number that an index is, if it is a constant; else the index."""
        expression = self.expression(index)
        return index if expression.terms else expression.constant

    def _is_injective(self, pairs: Sequence[tuple[Value, Value]]) -> bool:
        """Whether no two work items have these pairs of indices equal."""
        differ = any(self._always_differ(*self.together(a, b)) for a, b in pairs)
        return differ or self._same_item_only(pairs)

    def may_touch_later(self, load: ops.Load, write: ops.Write) -> bool:
        """Whether ``write`` may overwrite, after ``load``, the element that it read."""
        indices = list(zip(load.indices, write.indices, strict=True))
        if not self._may_meet(load, write):
            return False
        if self.task.is_parallel and not self._same_item_only(indices):
            return True
        return not self._never_after(load, write, indices)

    def _always_differ(self, read: Affine, written: Affine) -> bool:
        """Whether two indices differ for all work items and iterations."""
        if read.terms != written.terms:
            return False
        difference = wrapped(written.constant - read.constant, read.bits)
        return difference != 0 and all(map(self.is_uniform, read.terms))

    def _same_item_only(self, indices: Sequence[tuple[Value, Value]]) -> bool:
        """Whether equal indices imply that the same work item computed them."""
        assert self.item is not None
        agreed = [self.agreeing(read, written) for read, written in indices]
        return self.determined(self.item, set().union(*agreed))

    def _never_after(
        self, load: ops.Load, write: ops.Write, pairs: Sequence[tuple[Value, Value]]
    ) -> bool:
        """Whether within a work item the write never follows the read of the same element."""
        common = [a for a, b in zip(self.loops[load], self.loops[write], strict=False) if a is b]
        write_is_first = self.order[write] < self.order[load]
        if not common:
            if write_is_first:
                return True
            return any(self._differ_by_constant(*self.together(a, b)) for a, b in pairs)
        outermost = common[0]
        counter = outermost.body.args[0] if isinstance(outermost, ops.For) else None
        first_each_time = write_is_first and len(common) == 1
        return any(
            self._differ_later(read, written, outermost, counter, first_each_time)
            for read, written in pairs
        )

    def _differ_by_constant(self, read: Affine, written: Affine) -> bool:
        difference = written.plus(read, -1)
        return not difference.terms and difference.constant != 0

    def _differ_later(
        self,
        read: Value,
        written: Value,
        outermost: Operation,
        counter: Value | None,
        write_is_first: bool,
    ) -> bool:
        """Whether the indices differ if the write runs in the read's iteration or a later one.

        The difference is then ``slope * later + constant`` with ``later`` >= 0, or > 0 if within an
        iteration the write comes first. It must be neither 0 nor a multiple of 2^32.
        """
        one, other = self.together(read, written)
        slope = other.terms.get(counter, 0) if counter is not None else 0
        if counter is not None and one.terms.get(counter, 0) != slope:
            return False
        difference = other.plus(one, -1)
        atoms = {**one.terms, **other.terms}
        fixed = all(atom is counter or outermost not in self.home[atom] for atom in atoms)
        if difference.terms or not fixed:
            return False
        constant = difference.constant
        if constant * slope < 0 or (not constant and not (slope and write_is_first)):
            return False
        if counter is None or not slope or self.differ_exactly(read, written):
            return True
        reach = self.span_of(counter)
        if not constant:
            return reach * math.gcd(slope, 1 << one.bits) < 1 << one.bits
        return abs(slope) * reach + abs(constant) < 1 << one.bits
