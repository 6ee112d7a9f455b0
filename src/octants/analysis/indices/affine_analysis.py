"""Writes the integers of a task as affine expressions, and finds the ranges of their values.

An expression is a constant plus multiples of atoms: the index of the work item, the counters of
loops, and values that are no sum, difference, or product with a constant. Integers wrap, so the
expression of an i32 equals it modulo 2^32. Only if ranges prove that nothing wraps does it equal
the integer (`AffineExpressions.integer`). Ranges follow from constants, extents, bounds of loops
and types. A quotient or remainder has no range if the divisor may be zero or negative.
"""

from __future__ import annotations

from collections.abc import Callable

from octants.analysis.indices.affine_arithmetic import Affine
from octants.ir import ops
from octants.ir.core import Block, Operation, Space, Task, Value
from octants.types.scalars import DType, i32, i64, integer_range, u1

Interval = tuple[int, int]
"""The least and the greatest value."""

INDEX_TYPES = (i32, i64)
LARGEST_EXTENT = (1 << 31) - 1


class AffineExpressions:
    """The affine expressions and ranges of the values of one task."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.definitions: dict[Value, Operation] = {}
        self.order: dict[Operation, int] = {}
        self.loops: dict[Operation, tuple[Operation, ...]] = {}
        self.home: dict[Value, tuple[Operation, ...]] = {}  # the loops around a definition
        self.constant_control: set[Operation] = set()  # under no `if` and in no `while`
        self._expressions: dict[Value, Affine] = {}
        self._uniform: dict[Value, bool] = {}
        self._intervals: dict[Value, Interval] = {}
        self._counters: dict[Value, tuple[Value, Value]] = {}
        if task.domain is not None:
            self._visit(task.domain, (), always=False)
            lower, upper = task.domain.yielded[:2]
            self._counters[task.body.args[0]] = lower, upper
        self._visit(task.body, (), always=True)
        self.item = task.body.args[0] if task.is_parallel else None

    def _visit(self, block: Block, loops: tuple[Operation, ...], *, always: bool) -> None:
        """Index the operations of a block.

        Args:
            block: The block.
            loops: The enclosing loops, outermost first.
            always: Whether the block is under no `if` and in no `while`.
        """
        self.home.update((arg, loops) for arg in block.args)
        for op in block.ops:
            self.order[op] = len(self.order)
            self.loops[op] = loops
            if always:
                self.constant_control.add(op)
            for value in op.results:
                self.definitions[value] = op
                self.home[value] = loops
            if not op.REGIONS:
                continue
            inner = (*loops, op) if isinstance(op, ops.Loop) else loops
            if isinstance(op, ops.For):
                self._counters[op.body.args[0]] = op.lower, op.upper
            for region in op.regions:
                self._visit(region, inner, always=always and isinstance(op, ops.For))

    def precedes(self, one: Operation, other: Operation) -> bool:
        """Whether in a work item one operation never runs after another."""
        return self.order[one] < self.order[other] and set(self.loops[one]).isdisjoint(
            self.loops[other]
        )

    # -- expressions -----------------------------------------------------------------------------

    def expression(self, value: Value) -> Affine:
        """The expression that equals an integer modulo the power of two of its type."""
        if value not in self._expressions:
            self._expressions[value] = self._compute(value)
        return self._expressions[value]

    def integer(self, value: Value) -> Affine:
        """An expression that equals an integer: the value itself if its own expression may wrap."""
        expression = self.expression(value)
        if value.type in INDEX_TYPES and self._fits(expression, value.type):
            return expression.within(0)
        return Affine(0, {value: 1})

    def together(self, one: Value, other: Value) -> tuple[Affine, Affine]:
        """The expressions of two integers modulo one power."""
        if one.type is other.type:
            return self.expression(one), self.expression(other)
        return self.integer(one).within(64), self.integer(other).within(64)

    def _fits(self, expression: Affine, dtype: DType) -> bool:
        """Whether the exact value of an expression is in the range of a type."""
        low, high = self.interval(expression)
        least, most = integer_range(dtype)
        return least <= low and high <= most

    def _compute(self, value: Value) -> Affine:
        """The expression of a value from those of its operands; one atom if it is not affine."""
        op, bits = self.definitions.get(value), value.type.bits
        if value.type not in INDEX_TYPES:
            return Affine(0, {value: 1}, bits)
        if isinstance(op, ops.Constant):
            return Affine(op.value, {}, bits)
        if isinstance(op, ops.Cast) and op.x.type.is_integer:
            narrows = op.x.type in INDEX_TYPES and op.x.type.bits >= bits
            return (self.expression(op.x) if narrows else self.integer(op.x)).within(bits)
        if isinstance(op, ops.Unary) and op.fn == "neg":
            return Affine(0, {}, bits).plus(self.expression(op.x), -1)
        if isinstance(op, ops.Binary) and op.fn in ("add", "sub"):
            return self.expression(op.lhs).plus(
                self.expression(op.rhs), 1 if op.fn == "add" else -1
            )
        if isinstance(op, ops.Binary) and op.fn in ("mul", "shl"):
            left, right = self.expression(op.lhs), self.expression(op.rhs)
            if not right.terms:
                factor = right.constant
                if op.fn == "shl":
                    factor = 1 << (factor & (bits - 1))
                return Affine(0, {}, bits).plus(left, factor)
            if not left.terms and op.fn == "mul":
                return Affine(0, {}, bits).plus(right, left.constant)
        return Affine(0, {value: 1}, bits)

    def element(self, op: ops.Access) -> object:
        """A key that is equal for two accesses to the same element at uniform indices."""
        definitions = [(index, self.definitions.get(index)) for index in op.indices]
        indices = [o.value if isinstance(o, ops.Constant) else index for index, o in definitions]
        return op.ref, tuple(indices)

    def is_uniform(self, value: Value) -> bool:
        """Whether all work items see the same value, wherever they use it."""
        if value not in self._uniform:
            op = self.definitions.get(value)
            if isinstance(op, ops.Load):
                is_argument = op.array.space is Space.ARGUMENT
                uniform = is_argument and all(map(self.is_uniform, op.indices))
            else:
                uniform = isinstance(op, ops.Shape) or (
                    op is not None and op.is_pure and all(map(self.is_uniform, op.operands))
                )
            self._uniform[value] = uniform
        return self._uniform[value]

    # -- ranges ----------------------------------------------------------------------------------

    def interval(self, expression: Affine) -> Interval:
        """The range of an expression as an integer that does not wrap."""
        for atom, coefficient in expression.terms.items():
            if coefficient < 0 and atom in self._counters:
                known = self._left_over(expression, atom, -coefficient)
                if known is not None:
                    return known
        low = high = expression.constant
        for atom, coefficient in expression.terms.items():
            known = self.range_of(atom)
            ends = coefficient * known[0], coefficient * known[1]
            low, high = low + min(ends), high + max(ends)
        return low, high

    def is_index(self, value: Value, extent: int) -> bool:
        """Whether a value is at least 0 and less than an extent."""
        low, high = self.value_range(value)
        return low >= 0 and high < extent

    def value_range(self, value: Value) -> Interval:
        """The range of a value."""
        expression = self.expression(value)
        if (
            value.type in INDEX_TYPES
            and value not in expression.terms
            and self._fits(expression, value.type)
        ):
            return self.interval(expression)
        return self.range_of(value)

    def span_of(self, atom: Value) -> int:
        """The greatest difference between two values of an atom."""
        low, high = self.range_of(atom)
        return max(0, high - low)

    def _left_over(self, expression: Affine, counter: Value, factor: int) -> Interval | None:
        """The range by the distance of a counter from its bound, if that is simpler."""
        lower, upper = (self.integer(bound) for bound in self._counters[counter])
        rest = expression.without(counter).within(0).plus(upper, -factor)
        if len(rest.terms) >= len(expression.terms) - 1:
            return None
        first, last, base = self.interval(lower), self.interval(upper), self.interval(rest)
        return base[0] + factor, base[1] + factor * (last[1] - first[0])

    def range_of(self, atom: Value) -> Interval:
        """The range of an atom, at most that of its type."""
        if atom not in self._intervals:
            least, most = (0, 1) if atom.type is u1 else integer_range(atom.type)
            low, high = self._find_range(atom) or (least, most)
            self._intervals[atom] = max(low, least), min(high, most)
        return self._intervals[atom]

    def _find_range(self, atom: Value) -> Interval | None:
        """The range that the definition of an atom implies; None if it implies none."""
        if atom in self._counters:
            lower, upper = (self.value_range(bound) for bound in self._counters[atom])
            return lower[0], upper[1] - 1
        op = self.definitions.get(atom)
        if isinstance(op, ops.Shape):
            extent = (
                LARGEST_EXTENT if op.array.fixed_shape is None else op.array.fixed_shape[op.axis]
            )
            return min(0, extent), extent
        if isinstance(op, ops.Cast) and op.x.type.is_integer and op.x.type not in INDEX_TYPES:
            return _converted(self.range_of(op.x), atom.type)
        if isinstance(op, (ops.Select, ops.Extract)):
            choices = [self.value_range(value) for value in op.operands[1:]]
            return min(a for a, _ in choices), max(b for _, b in choices)
        if isinstance(op, ops.Binary) and op.fn in _RANGES:
            return _RANGES[op.fn](self.value_range(op.lhs), self.value_range(op.rhs))
        return None


def _converted(known: Interval, dtype: DType) -> Interval | None:
    """A range after a conversion; None if the conversion wraps."""
    least, most = integer_range(dtype)
    return known if least <= known[0] and known[1] <= most else None


def _minimum(lhs: Interval, rhs: Interval) -> Interval | None:
    return min(lhs[0], rhs[0]), min(lhs[1], rhs[1])


def _maximum(lhs: Interval, rhs: Interval) -> Interval | None:
    return max(lhs[0], rhs[0]), max(lhs[1], rhs[1])


def _remainder(lhs: Interval, rhs: Interval) -> Interval | None:
    """0 <= a % b < b needs b > 0; by zero, the remainder is a."""
    if rhs[0] <= 0:
        return None
    return 0, min(rhs[1] - 1, lhs[1]) if lhs[0] >= 0 else rhs[1] - 1


def _quotient(lhs: Interval, rhs: Interval) -> Interval | None:
    if min(rhs) <= 0:  # the counter of a loop without iterations has an empty range, as 1 to 0
        return None
    ends = [a // b for a in lhs for b in rhs]
    return min(ends), max(ends)


def _bits_of_both(lhs: Interval, rhs: Interval) -> Interval | None:
    """The bits that two numbers share: at most the smaller number, if none is negative."""
    known = [side[1] for side in (lhs, rhs) if side[0] >= 0]
    return (0, min(known)) if known else None


_RANGES: dict[str, Callable[[Interval, Interval], Interval | None]] = {
    "min": _minimum,
    "max": _maximum,
    "mod": _remainder,
    "floordiv": _quotient,
    "and": _bits_of_both,
}
