"""Infers which values of two runs of some code are equal if two of their indices are."""

from __future__ import annotations

import math
from collections.abc import Hashable

from octants.analysis.indices.affine_analysis import INDEX_TYPES
from octants.analysis.indices.affine_arithmetic import Affine
from octants.analysis.indices.facts_from_valid_indices import InBounds
from octants.ir import ops
from octants.ir.core import Task, Value

_Split = tuple[Value, Hashable, Value]


class EqualIndices(InBounds):
    """The values of one task, in two of its work items or iterations."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._parts: dict[Value, list[tuple[Value, Value, Value]]] | None = None

    def agreeing(self, one: Value, other: Value) -> set[Value]:
        """The values that are equal whenever two values are, in two runs of the code."""
        return self._agreeing(one, other, exact=self.differ_exactly(one, other))

    def differ_exactly(self, one: Value, other: Value) -> bool:
        """Whether the difference of two indices is that of their expressions, and never wraps.

        That is so of steady indices (`facts_from_valid_indices`), if there are two runs whose
        difference is surely small.
        """
        if not (self.is_steady(one) and self.is_steady(other)) or one.type is not other.type:
            return False
        if one is other or not self.expression(one).plus(self.expression(other), -1).terms:
            return True
        first, second = self._split(one), self._split(other)
        if first is None or second is None or first[1] != second[1]:
            return False
        difference = self.expression(first[0]).plus(self.expression(second[0]), -1)
        return not difference.terms and abs(difference.constant) <= 1

    def _agreeing(self, one: Value, other: Value, *, exact: bool) -> set[Value]:
        found = {one} if one is other else set()
        first, second = self._split(one), self._split(other)
        if exact and first is not None and second is not None and first[1] == second[1]:
            (quotient, _, rest), (other_quotient, _, other_rest) = first, second
            is_split = self._split(quotient) is not None and self._split(other_quotient) is not None
            found |= self._agreeing(quotient, other_quotient, exact=is_split)
            return found | self._agreeing(rest, other_rest, exact=False)
        return found | self._peel(*self.together(one, other), exact=exact)

    def _peel(self, one: Affine, other: Affine, *, exact: bool) -> set[Value]:
        """The atoms whose coefficient exceeds everything that the other terms can make up for."""
        found: set[Value] = set()
        atoms = [
            atom
            for atom, coefficient in one.terms.items()
            if other.terms.get(atom) == coefficient and not self.is_uniform(atom)
        ]
        for atom in sorted(atoms, key=lambda atom: -abs(one.terms[atom])):
            rest, other_rest = one.without(atom), other.without(atom)
            gap = self._greatest_difference(rest, other_rest)
            if gap is None or not self._is_decided(atom, one.terms[atom], gap, one.bits, exact):
                break
            found.add(atom)
            if self.definitions.get(atom) is not None and atom not in self.expression(atom).terms:
                found |= self._peel(self.expression(atom), self.expression(atom), exact=False)
            found |= self._behind_remainder(atom)
            one, other = rest, other_rest
        return found

    def _behind_remainder(self, atom: Value) -> set[Value]:
        """The values that are equal if a remainder is: the dividend, if its range is shorter.

        So it is with an index that is taken modulo an extent, such as that of a neighbour.
        """
        op = self.definitions.get(atom)
        if not isinstance(op, ops.Binary) or op.fn != "mod" or op.lhs.type not in INDEX_TYPES:
            return set()
        dividend, divisor = self.expression(op.lhs), self.integer(op.rhs)
        low, high = self.value_range(op.lhs)
        is_shorter = not divisor.terms and high - low < divisor.constant
        if not is_shorter and not self._is_one_round(dividend, op):
            return set()
        return {op.lhs} | self._peel(dividend, dividend, exact=False)

    def _is_one_round(self, dividend: Affine, op: ops.Binary) -> bool:
        """Whether a dividend is a number from 0 up to the divisor plus a shift, and never wraps."""
        varying = [atom for atom in dividend.terms if not self.is_uniform(atom)]
        if len(varying) != 1 or abs(dividend.terms[varying[0]]) != 1:
            return False
        size = self.size_of(op.rhs)
        is_below = size is not None and self._is_below(varying[0], size)
        return is_below and self._fits(dividend, op.lhs.type)

    def _is_decided(self, atom: Value, coefficient: int, gap: int, bits: int, exact: bool) -> bool:
        """Whether an atom must be equal, given that the other terms differ by at most ``gap``."""
        factor, span = abs(coefficient), self.span_of(atom)
        if gap == 0 and not exact:  # then multiples of the factor that are 0 modulo 2^bits remain
            return span * math.gcd(factor, 1 << bits) < 1 << bits
        return gap < factor and (exact or factor * span + gap < 1 << bits)

    def _greatest_difference(self, one: Affine, other: Affine) -> int | None:
        """The greatest difference of two expressions, over all work items and iterations."""
        for atom in [atom for atom in one.terms if self.is_uniform(atom)]:
            if other.terms.get(atom) != one.terms[atom]:
                return None
            one, other = one.without(atom), other.without(atom)
        ends, other_ends = self.interval(one), self.interval(other)
        return max(ends[1] - other_ends[0], other_ends[1] - ends[0])

    # -- quotients and remainders ----------------------------------------------------------------

    def _split(self, value: Value) -> _Split | None:
        """``a * n + b`` with a uniform n and 0 <= b < n, as a, n and b.

        Besides uniform terms, a is one number with the coefficient 1 or -1, or can be split itself.
        """
        op = self.definitions.get(self.source(value))
        if not isinstance(op, ops.Binary) or op.fn != "add":
            return None
        for product, rest in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
            factors = self.definitions.get(self.source(product))
            if isinstance(factors, ops.Binary) and factors.fn == "mul":
                for quotient, size in (
                    (factors.lhs, factors.rhs),
                    (factors.rhs, factors.lhs),
                ):
                    key = self.size_of(size)
                    is_size = key is not None and not isinstance(key, int)
                    if is_size and self._is_below(rest, key) and self._is_plain(quotient):
                        return quotient, key, rest
        return None

    def _is_plain(self, quotient: Value) -> bool:
        """Whether the steps of a quotient, times a size, are those of one number, or known."""
        terms = self.expression(quotient).terms
        varying = [(atom, c) for atom, c in terms.items() if not self.is_uniform(atom)]
        if len(varying) == 1:
            ((atom, factor),) = varying
            return abs(factor) == 1 and (atom in self._counters or self._digit(atom) is not None)
        return self._split(quotient) is not None

    def _is_below(self, value: Value, size: Hashable) -> bool:
        """Whether 0 <= value < size: for a counter, in either direction, or a remainder.

        Only the remainders of digits of the work item's number count: by zero, others are the
        dividend.
        """
        value = self.source(value)
        digit = self._digit(value)
        if digit is not None:
            return digit.extent == size
        expression = self.expression(value)
        counters = [atom for atom in expression.terms if atom in self._counters]
        if len(counters) != 1:
            return False
        lower, upper = self._counters[counters[0]]
        least = self.integer(lower)
        if least.terms or least.constant != 0 or self.size_of(upper) != size:
            return False
        forwards = Affine(0, {counters[0]: 1}, expression.bits)
        last = self.integer(upper).within(expression.bits).plus(Affine(1), -1)
        return expression in (forwards, last.plus(forwards, -1))

    def determined(self, value: Value, by: set[Value]) -> bool:
        """Whether ``value`` follows from others: it, its atoms, or its quotient and remainder."""
        if value in by:
            return True
        expression = self.expression(value)
        if expression.terms and value not in expression.terms:
            varying = [atom for atom in expression.terms if not self.is_uniform(atom)]
            return all(self.determined(atom, by) for atom in varying)
        parts = self._quotients().get(value, ())
        return any(self.determined(q, by) and self.determined(r, by) for q, r, _ in parts)

    def _quotients(self) -> dict[Value, list[tuple[Value, Value, Value]]]:
        """For values that are divided outside of loops: quotient, remainder, divisor.

        They determine the value, also if the divisor is zero: then the remainder is the value.
        """
        if self._parts is None:
            self._parts = {}
            halves: dict[tuple[Value, Value], dict[str, Value]] = {}
            for result, op in self.definitions.items():
                if isinstance(op, ops.Binary) and self._divides_once(op):
                    halves.setdefault((op.lhs, op.rhs), {})[op.fn] = result
            for (value, divisor), found in halves.items():
                if len(found) == 2:
                    entry = found["floordiv"], found["mod"], divisor
                    self._parts.setdefault(value, []).append(entry)
        return self._parts

    def _divides_once(self, op: ops.Binary) -> bool:
        """Whether a work item computes a quotient or a remainder by a uniform divisor only once."""
        is_index = op.result.type in INDEX_TYPES
        return (
            is_index
            and op.fn in ("floordiv", "mod")
            and not self.loops[op]
            and self.is_uniform(op.rhs)
        )
