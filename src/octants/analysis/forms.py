"""Indices as affine forms, what range they have, and what must be equal where they are.

A form is a constant plus multiples of atoms, which are the counters of loops, the index of the work
item, and values that no arithmetic explains. Index arithmetic is taken not to wrap: an index that
did would be out of bounds.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import field

from octants.ir import ops
from octants.ir.core import Block, Operation, Space, Task, Value
from octants.lazy_dataclass import dataclass
from octants.types.scalars import i32, i64

Interval = tuple[int, int]
"""The least and the greatest value."""

_INDEX_TYPES = (i32, i64)
_PURE = (ops.Binary, ops.Unary, ops.Cast, ops.Compare, ops.Select)


@dataclass(slots=True)
class Affine:
    """``constant + sum(coefficient * atom)``"""

    constant: int = 0
    terms: dict[Value, int] = field(default_factory=dict)

    def plus(self, other: Affine, factor: int = 1) -> Affine:
        terms = dict(self.terms)
        for atom, coefficient in other.terms.items():
            terms[atom] = terms.get(atom, 0) + factor * coefficient
        kept = {atom: c for atom, c in terms.items() if c}
        return Affine(self.constant + factor * other.constant, kept)

    def without(self, atom: Value) -> Affine:
        return Affine(self.constant, {a: c for a, c in self.terms.items() if a is not atom})


class Forms:
    """The values of one task."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.definitions: dict[Value, Operation] = {}
        self.order: dict[Operation, int] = {}
        self.loops: dict[Operation, tuple[Operation, ...]] = {}
        self.home: dict[Value, tuple[Operation, ...]] = {}  # the loops around a definition
        self._forms: dict[Value, Affine] = {}
        self._uniform: dict[Value, bool] = {}
        self._counters: dict[Value, tuple[Value, Value]] = {}
        self._parts: dict[Value, list[tuple[Value, Value, Value]]] | None = None
        if task.domain is not None:
            self._visit(task.domain, ())
            lower, upper = task.domain.yielded[:2]
            self._counters[task.body.args[0]] = lower, upper
        self._visit(task.body, ())
        self.item = task.body.args[0] if task.is_parallel else None

    def _visit(self, block: Block, loops: tuple[Operation, ...]) -> None:
        self.home.update((arg, loops) for arg in block.args)
        for op in block.ops:
            self.order[op] = len(self.order)
            self.loops[op] = loops
            for value in op.results:
                self.definitions[value] = op
                self.home[value] = loops
            inner = (*loops, op) if isinstance(op, (ops.For, ops.While)) else loops
            if isinstance(op, ops.For):
                self._counters[op.body.args[0]] = op.lower, op.upper
            for region in op.regions:
                self._visit(region, inner)

    def precedes(self, one: Operation, other: Operation) -> bool:
        """Whether in a work item one operation never runs after another."""
        return self.order[one] < self.order[other] and set(self.loops[one]).isdisjoint(
            self.loops[other]
        )

    # -- forms -------------------------------------------------------------------------------------

    def form(self, value: Value) -> Affine:
        if value not in self._forms:
            self._forms[value] = self._compute(value)
        return self._forms[value]

    def _compute(self, value: Value) -> Affine:
        op = self.definitions.get(value)
        if value.type not in _INDEX_TYPES:  # others may wrap, and mean it
            return Affine(0, {value: 1})
        if isinstance(op, ops.Constant):
            return Affine(op.value)
        if isinstance(op, ops.Cast) and op.x.type.is_integer:
            return self.form(op.x)
        if isinstance(op, ops.Binary) and op.fn in ("add", "sub"):
            return self.form(op.lhs).plus(self.form(op.rhs), 1 if op.fn == "add" else -1)
        if isinstance(op, ops.Binary) and op.fn == "mul":
            left, right = self.form(op.lhs), self.form(op.rhs)
            if not left.terms:
                return Affine().plus(right, left.constant)
            if not right.terms:
                return Affine().plus(left, right.constant)
        return Affine(0, {value: 1})

    def is_uniform(self, value: Value) -> bool:
        """Whether all work items see the same value, wherever they do."""
        if value not in self._uniform:
            op = self.definitions.get(value)
            if isinstance(op, ops.Load):
                is_argument = op.array.space is Space.ARGUMENT
                uniform = is_argument and all(map(self.is_uniform, op.indices))
            elif isinstance(op, _PURE):
                uniform = all(map(self.is_uniform, op.operands))
            else:
                uniform = isinstance(op, (ops.Constant, ops.Shape))
            self._uniform[value] = uniform
        return self._uniform[value]

    # -- ranges ------------------------------------------------------------------------------------

    def interval(self, form: Affine) -> Interval | None:
        """The range of a form, if that of each atom is known."""
        for atom, coefficient in form.terms.items():
            if coefficient < 0 and atom in self._counters:
                known = self._left_over(form, atom, -coefficient)
                if known is not None:
                    return known
        low = high = form.constant
        for atom, coefficient in form.terms.items():
            known = self._range(atom)
            if known is None:
                return None
            ends = coefficient * known[0], coefficient * known[1]
            low, high = low + min(ends), high + max(ends)
        return low, high

    def _left_over(self, form: Affine, counter: Value, factor: int) -> Interval | None:
        """The range by how far a counter is from its bound, where that makes the form simpler."""
        lower, upper = (self.form(bound) for bound in self._counters[counter])
        rest = form.without(counter).plus(upper, -factor)
        if len(rest.terms) >= len(form.terms) - 1:
            return None
        first, last, base = self.interval(lower), self.interval(upper), self.interval(rest)
        if first is None or last is None or base is None:
            return None
        return base[0] + factor, base[1] + factor * (last[1] - first[0])

    def _range(self, atom: Value) -> Interval | None:
        if atom in self._counters:
            ends = [self.interval(self.form(bound)) for bound in self._counters[atom]]
            lower, upper = ends
            return None if lower is None or upper is None else (lower[0], upper[1] - 1)
        op = self.definitions.get(atom)
        if isinstance(op, ops.Binary) and op.fn in ("min", "max"):
            sides = [self.interval(self.form(side)) for side in (op.lhs, op.rhs)]
            left, right = sides
            if left is None or right is None:
                return None
            choose = min if op.fn == "min" else max
            return choose(left[0], right[0]), choose(left[1], right[1])
        if isinstance(op, ops.Binary):
            divisor = self.form(op.rhs)
            if divisor.terms or divisor.constant <= 0:
                return None
            if op.fn == "mod":
                return 0, divisor.constant - 1
            dividend = self.interval(self.form(op.lhs)) if op.fn == "floordiv" else None
            if dividend is not None:
                return dividend[0] // divisor.constant, dividend[1] // divisor.constant
        return None

    # -- what follows from equal indices -----------------------------------------------------------

    def agreeing(self, one: Value, other: Value) -> set[Value]:
        """The values that are equal whenever these two are, in two runs of the code."""
        found = {one} if one is other else set()
        first, second = self._split(one), self._split(other)
        if first is not None and second is not None and first[1] == second[1]:
            (quotient, _, rest), (other_quotient, _, other_rest) = first, second
            return found | self.agreeing(quotient, other_quotient) | self.agreeing(rest, other_rest)
        return found | self._peel(self.form(one), self.form(other))

    def _peel(self, one: Affine, other: Affine) -> set[Value]:
        """Atoms whose coefficient is larger than all that the rest can make up for."""
        found: set[Value] = set()
        atoms = [
            atom
            for atom, coefficient in one.terms.items()
            if other.terms.get(atom) == coefficient and not self.is_uniform(atom)
        ]
        for atom in sorted(atoms, key=lambda atom: -abs(one.terms[atom])):
            rest, other_rest = one.without(atom), other.without(atom)
            gap = self._gap(rest, other_rest)
            if gap is None or gap >= abs(one.terms[atom]):
                break
            found.add(atom)
            one, other = rest, other_rest
        return found

    def _gap(self, one: Affine, other: Affine) -> int | None:
        """The greatest difference of two forms, whichever work items and iterations they are of."""
        for atom in [atom for atom in one.terms if self.is_uniform(atom)]:
            if other.terms.get(atom) != one.terms[atom]:
                return None
            one, other = one.without(atom), other.without(atom)
        ends, other_ends = self.interval(one), self.interval(other)
        if ends is None or other_ends is None:
            return None
        return max(ends[1] - other_ends[0], other_ends[1] - ends[0])

    def _split(self, value: Value) -> tuple[Value, Hashable, Value] | None:
        """``a * n + b`` with a uniform n and 0 <= b < n as a, n and b."""
        op = self._uncast(value)
        if not isinstance(op, ops.Binary) or op.fn != "add":
            return None
        for product, rest in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
            factors = self._uncast(product)
            if isinstance(factors, ops.Binary) and factors.fn == "mul":
                for quotient, size in (
                    (factors.lhs, factors.rhs),
                    (factors.rhs, factors.lhs),
                ):
                    key = self._size(size)
                    if key is not None and self._is_below(rest, key):
                        return quotient, key, rest
        return None

    def _uncast(self, value: Value) -> Operation | None:
        """What defines a value, behind conversions of integers."""
        op = self.definitions.get(value)
        while isinstance(op, ops.Cast) and op.x.type in _INDEX_TYPES:
            op = self.definitions.get(op.x)
        return op

    def _size(self, value: Value) -> Hashable:
        """What tells equal uniform sizes; the maximum of a size and 0 is taken for the size."""
        op = self._uncast(value)
        if isinstance(op, ops.Binary) and op.fn == "max":
            sides = [self.form(side) for side in (op.lhs, op.rhs)]
            for side, inner in zip(sides, (op.rhs, op.lhs), strict=True):
                if not side.terms and side.constant == 0:
                    return self._size(inner)
        if isinstance(op, ops.Shape):
            return "shape", op.array, op.axis
        if isinstance(op, ops.Load) and op.array.space is Space.ARGUMENT and not op.indices:
            return "argument", op.array
        return None

    def _is_below(self, value: Value, size: Hashable) -> bool:
        """Whether 0 <= value < size: a counter, also one that runs backwards, or a remainder."""
        op = self._uncast(value)
        if isinstance(op, ops.Binary) and op.fn == "mod":
            return self._size(op.rhs) == size
        form = self.form(value)
        counters = [atom for atom in form.terms if atom in self._counters]
        if len(counters) != 1:
            return False
        lower, upper = self._counters[counters[0]]
        least = self.form(lower)
        if least.terms or least.constant != 0 or self._size(upper) != size:
            return False
        forwards = Affine(0, {counters[0]: 1})
        backwards = self.form(upper).plus(forwards, -1).plus(Affine(1), -1)
        return form in (forwards, backwards)

    def determined(self, value: Value, by: set[Value]) -> bool:
        """Whether ``value`` follows from others: it is one, or its quotient and remainder do."""
        if value in by:
            return True
        form = self.form(value)
        if form.terms and value not in form.terms:
            varying = [atom for atom in form.terms if not self.is_uniform(atom)]
            return all(self.determined(atom, by) for atom in varying)
        parts = self._quotients().get(value, ())
        return any(self.determined(q, by) and self.determined(r, by) for q, r, _ in parts)

    def _quotients(self) -> dict[Value, list[tuple[Value, Value, Value]]]:
        """For values that are divided outside of loops: quotient, remainder, divisor."""
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
        return op.fn in ("floordiv", "mod") and not self.loops[op] and self.is_uniform(op.rhs)
