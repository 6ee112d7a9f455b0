"""Finds ranges of floats: of sines, of random numbers, and of positions on a grid.

The index of a loop over an extent, divided by this extent, is between 0 and 1, whatever the extent
is. So is ``x - floor(x)``. What is computed from such floats by sums and products is in a range,
too, of which the angle of a sine may be known to be small::

    for i in range(n):
        x = (i + 0.5) / n       # between 0 and 1
        y = sin(6.28 * x)       # of at most 6.3

A range counts for numbers: a float in it may also be NaN, and infinite in place of NaN where a sine
is NaN either way. Ranges include what rounding adds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from octants.analysis.indices.affine_arithmetic import Affine
from octants.analysis.indices.facts_from_valid_indices import InBounds
from octants.cached_property import cached_property
from octants.ir import ops
from octants.ir.core import Block, Operation, Task, Value
from octants.ir.ops.arithmetic import ROUNDINGS, SINES
from octants.lazy_dataclass import dataclass
from octants.types.scalars import f32, f64

Range = tuple[float, float]
"""The least and the greatest value, which may be infinite."""

ANY: Range = (-math.inf, math.inf)

_AT_MOST_ONE = 1.001
"""A bound of sines and cosines of finite numbers, which may be rounded up."""

_QUARTER_TURN = 1.001 * math.pi / 2

_RESULTS: dict[str, Range] = {
    **dict.fromkeys((*SINES, "tanh", "erf", "sign"), (-_AT_MOST_ONE, _AT_MOST_ONE)),
    **dict.fromkeys(("atan", "asin"), (-_QUARTER_TURN, _QUARTER_TURN)),
    "acos": (0.0, 2 * _QUARTER_TURN),
    "atan2": (-2 * _QUARTER_TURN, 2 * _QUARTER_TURN),
}
"""The ranges of functions of any numbers."""

_ROUNDING, _TINY, _HUGE = 1e-6, 1e-30, 1e38
"""The margin of an end of a range, relative to it, and for subnormal numbers. Numbers from the last
one on may be infinite.
"""

RangeOf = Callable[[Value], Range]


def magnitude(known: Range) -> float:
    """The largest magnitude in a range."""
    return max(abs(known[0]), abs(known[1]))


def result_range(op: Operation | None, of: RangeOf) -> Range:
    """The range of the float that an operation computes.

    Args:
        op: The operation.
        of: Gives the ranges of operands; a range of one number is that of a constant.
    """
    found = _exact_range(op, of)
    return _rounded(found) if isinstance(op, (ops.Binary, ops.Fma, ops.Cast)) else found


def _rounded(exact: Range) -> Range:
    """A range of rounded results, of more than one number, since they may be NaN."""
    if exact is ANY:
        return ANY
    low, high = (math.copysign(math.inf, end) if abs(end) > _HUGE else end for end in exact)
    low, high = low - _ROUNDING * abs(low) - _TINY, high + _ROUNDING * abs(high) + _TINY
    return (low, high) if low < high else ANY


def _exact_range(op: Operation | None, of: RangeOf) -> Range:
    """The range of what an operation computes before it is rounded."""
    if isinstance(op, ops.Random):
        return (0.0, 1.0)
    if isinstance(op, (ops.Unary, ops.Binary)) and op.fn in _RESULTS:
        return _RESULTS[op.fn]
    if isinstance(op, ops.Unary):
        return _of_unary(op.fn, of(op.x))
    if isinstance(op, ops.Binary):
        return _of_binary(op.fn, of(op.lhs), of(op.rhs))
    if isinstance(op, ops.Fma):
        return _sum(_product(of(op.x), of(op.y)), of(op.z))
    if isinstance(op, ops.Select):
        return _union(of(op.on_true), of(op.on_false))
    if isinstance(op, ops.Cast) and op.x.type.is_float:
        return of(op.x)
    return ANY


def _of_unary(fn: str, x: Range) -> Range:
    if fn == "neg":
        return _negative(x)
    if fn == "abs":
        return 0.0, magnitude(x)
    if fn in ROUNDINGS:
        return x[0] - 1, x[1] + 1
    return ANY


def _of_binary(fn: str, lhs: Range, rhs: Range) -> Range:
    """The range of a binary operation; `mod` subtracts a rounded multiple of the divisor."""
    if fn == "add":
        return _sum(lhs, rhs)
    if fn == "sub":
        return _sum(lhs, _negative(rhs))
    if fn == "mul":
        return _product(lhs, rhs)
    if fn in ("min", "max"):
        return _extremum(fn, lhs, rhs)
    if fn in ("div", "approximate_div") and (rhs[0] > 0 or rhs[1] < 0):
        low, high = (1 / end for end in rhs)
        return _product(lhs, (min(low, high), max(low, high)))
    if fn in ("mod", "truncmod"):
        most = magnitude(rhs) + (_ROUNDING * magnitude(lhs) if fn == "mod" else 0)
        return -most, most
    return ANY


def _negative(x: Range) -> Range:
    return -x[1], -x[0]


def _sum(lhs: Range, rhs: Range) -> Range:
    if lhs is ANY or rhs is ANY:
        return ANY
    return lhs[0] + rhs[0], lhs[1] + rhs[1]


def _product(lhs: Range, rhs: Range) -> Range:
    """The range of a product; that of zero and infinity is NaN."""
    if lhs is ANY and rhs is ANY:
        return ANY
    ends = [0.0 if 0.0 in (a, b) else a * b for a in lhs for b in rhs]
    return min(ends), max(ends)


def _union(lhs: Range, rhs: Range) -> Range:
    return min(lhs[0], rhs[0]), max(lhs[1], rhs[1])


def _intersection(one: Range, other: Range) -> Range:
    return max(one[0], other[0]), min(one[1], other[1])


def _extremum(fn: str, lhs: Range, rhs: Range) -> Range:
    """The range of a minimum or maximum, which is one operand if the other one is NaN."""
    choose = min if fn == "min" else max
    low, high = choose(lhs[0], rhs[0]), choose(lhs[1], rhs[1])
    for this, other in ((lhs, rhs), (rhs, lhs)):
        if other[0] != other[1]:  # it may be NaN
            low, high = _union((low, high), this)
    return low, high


class FloatRanges:
    """The ranges of some floats of a task, and of all floats that they depend on.

    Args:
        task: The task.
        constants: The numbers of constants in its body.
        values: The floats.
    """

    def __init__(self, task: Task, constants: Mapping[Value, Any], values: Iterable[Value]) -> None:
        self._found: dict[Value, Range] = {}
        self._definitions: dict[Value, Operation] = {}
        self._loops: dict[Value, tuple[ops.For, int]] = {}
        for op in task.body.walk():
            for value in op.results:
                self._definitions[value] = op
            if isinstance(op, ops.For):
                self._loops.update((arg, (op, at)) for at, arg in enumerate(op.carried))
        self._relevant = self._with_sources(values)
        for value in self._relevant:
            constant = constants.get(value)
            if constant is not None and math.isfinite(constant):
                self._found[value] = float(constant), float(constant)
        self._grid = _Grid(task, self)
        self._carries = False
        self._visit(task.body)
        if self._carries:  # ranges that follow from nothing carried: others follow from them
            self._visit(task.body)

    def _with_sources(self, values: Iterable[Value]) -> set[Value]:
        """The values, and all floats that their ranges depend on."""
        relevant: set[Value] = set()
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            if value not in relevant and value.type.is_float:
                relevant.add(value)
                waiting += self._sources(value)
        return relevant

    def _sources(self, value: Value) -> Iterable[Value]:
        op = self._definitions.get(value)
        if isinstance(op, ops.For):
            return self._carried_from(op, op.results.index(value))
        if isinstance(op, ops.If):
            at = op.results.index(value)
            return op.then.yielded[at], op.orelse.yielded[at]
        if op is None:
            return self._carried_from(*self._loops[value]) if value in self._loops else ()
        return () if getattr(op, "fn", None) in _RESULTS else op.operands

    def _carried_from(self, op: ops.For, at: int) -> tuple[Value, Value]:
        return op.inits[at], op.body.yielded[at]

    def __getitem__(self, value: Value) -> Range:
        return self._found.get(value, ANY)

    def definition(self, value: Value) -> Operation | None:
        """The operation that computes a value."""
        return self._definitions.get(value)

    def _visit(self, block: Block) -> None:
        for op in block.ops:
            if isinstance(op, ops.For):
                self._visit_loop(op)
            else:
                for region in op.regions:
                    self._visit(region)
            if isinstance(op, ops.If):
                ends = zip(op.then.yielded, op.orelse.yielded, strict=True)
                for result, (one, other) in zip(op.results, ends, strict=True):
                    self._note(result, _union(self[one], self[other]))
            elif len(op.results) == 1 and op.results[0] in self._relevant:
                self._note(op.results[0], self._range(op))

    def _note(self, value: Value, known: Range) -> None:
        if known is not ANY and known != ANY and value.type in (f32, f64):
            self._found[value] = known

    def _visit_loop(self, op: ops.For) -> None:
        """Visit a body, and note the ranges of what it carries from one iteration to the next."""
        self._visit(op.body)
        for result, arg, init, end in zip(
            op.results, op.carried, op.inits, op.body.yielded, strict=True
        ):
            known = _union(self[init], self[end])
            self._note(arg, known)
            self._note(result, known)
        self._carries |= not self._found.keys().isdisjoint(op.carried)

    def _range(self, op: Operation) -> Range:
        if isinstance(op, ops.Cast) and not op.x.type.is_float:
            low, high = self._grid.integer_range(op.x)
            return float(low), float(high)
        known, by_index = result_range(op, self.__getitem__), self._by_index(op)
        return known if by_index is ANY else _intersection(known, by_index)

    def _by_index(self, op: Operation) -> Range:
        """The range of a quotient by an extent, or of the distance from a whole number."""
        if isinstance(op, ops.Fma):
            return _rounded(_sum(self._grid.product(op.x, op.y), self[op.z]))
        if isinstance(op, ops.Binary):
            if op.fn == "sub" and self._is_floor(op.rhs, op.lhs):
                return 0.0, 1.0
            if op.fn in _QUOTIENTS:
                return self._grid.quotient(op.lhs, op.rhs)
            if op.fn == "mul":
                return self._grid.product(op.lhs, op.rhs)
        return ANY

    def _is_floor(self, value: Value, x: Value) -> bool:
        op = self.definition(value)
        return isinstance(op, ops.Unary) and op.fn == "floor" and op.x is x


_QUOTIENTS = ("div", "approximate_div")


# -- relative to an extent ------------------------------------------------------------------------

_Line = tuple[float, float]
"""A slope and a constant: a linear function of an extent."""

_MOST_SLOPE, _MOST_CONSTANT, _DEPTH = 16, 1024, 16
"""Limits of lines, and of the operations that make one: so rounding stays within `_SLACK`."""

_LEAST_SLOPE, _STEP = 2**-10, 2**-4
"""The least slope of a divisor, and the step of its slope and constant if it may be zero: so it is
exactly zero, or not near zero.
"""

_SLACK = 0.002
"""The error of a rounded quotient, absolute and relative to its magnitude, at most."""


@dataclass(frozen=True, slots=True)
class _Span:
    """A range with ends that are linear functions of the extent ``key``; None: they are numbers.

    The extent is at least ``least``: one where the index of a loop over it is in the sum.
    """

    key: Hashable
    low: _Line
    high: _Line
    least: float = -math.inf

    def plus(self, other: _Span, factor: float = 1) -> _Span | None:
        """The span of a sum with a multiple; None if that has too large numbers, or two extents."""
        if None not in (self.key, other.key) and self.key != other.key:
            return None
        ends = (other.low, other.high) if factor >= 0 else (other.high, other.low)
        low, high = (
            (mine[0] + factor * its[0], mine[1] + factor * its[1])
            for mine, its in zip((self.low, self.high), ends, strict=True)
        )
        if max(abs(low[0]), abs(high[0])) > _MOST_SLOPE:
            return None
        if not max(abs(low[1]), abs(high[1])) <= _MOST_CONSTANT:
            return None
        key = other.key if self.key is None else self.key
        return _Span(key, low, high, max(self.least, other.least))


_ZERO = _Span(None, (0.0, 0.0), (0.0, 0.0))


def _number(known: Range) -> _Span | None:
    return _ZERO.plus(_Span(None, (0.0, known[0]), (0.0, known[1])))


class _Grid:
    """The integers of a task, and floats that are linear functions of an index and an extent."""

    def __init__(self, task: Task, ranges: FloatRanges) -> None:
        self._task = task
        self._ranges = ranges

    @cached_property
    def _integers(self) -> InBounds:
        return InBounds(self._task)

    def integer_range(self, value: Value) -> tuple[int, int]:
        """The range of an integer."""
        return self._integers.value_range(value)

    def product(self, lhs: Value, rhs: Value) -> Range:
        """The range of a product with a reciprocal of an extent, or a multiple of this."""
        for one, other in ((lhs, rhs), (rhs, lhs)):
            op = self._ranges.definition(other)
            if isinstance(op, ops.Binary) and op.fn in _QUOTIENTS:
                factor = self._ranges[op.lhs]
                if magnitude(factor) < math.inf:
                    return _product(self.quotient(one, op.rhs), factor)
        return ANY

    def quotient(self, lhs: Value, rhs: Value) -> Range:
        """The range of a quotient by a linear function of an extent.

        Where this is zero, the quotient is infinite or NaN.
        """
        divisor = self._span(rhs)
        if divisor is None or divisor.key is None or divisor.low != divisor.high:
            return ANY
        dividend = self._span(lhs)
        if dividend is None or dividend.key not in (None, divisor.key):
            return ANY
        slope, constant = divisor.low
        if abs(slope) < _LEAST_SLOPE:
            return ANY
        near = math.floor(-constant / slope)  # where the divisor is zero, or changes its sign
        least = max(dividend.least, divisor.least)
        if constant and near + 1 >= least and (slope % _STEP or constant % _STEP):
            return ANY
        extents = {near - 1, near, near + 1, near + 2, *([least] if least > -math.inf else ())}
        extents = {extent for extent in extents if extent >= least}
        ends = [dividend.low[0] / slope, dividend.high[0] / slope]
        for a, b in (dividend.low, dividend.high):
            divisors = ((each, slope * each + constant) for each in extents)
            ends += [(a * each + b) / by for each, by in divisors if by]
        slack = _SLACK * (1 + max(map(abs, ends)))
        return min(ends) - slack, max(ends) + slack

    def _span(self, value: Value, depth: int = _DEPTH) -> _Span | None:
        """The span of a float."""
        op = self._ranges.definition(value)
        if depth == 0 or value.type not in (f32, f64):
            return None
        if isinstance(op, ops.Cast):
            return self._span(op.x, depth - 1) if op.x.type.is_float else self._integer(op.x)
        if isinstance(op, ops.Unary) and op.fn == "neg":
            found = self._span(op.x, depth - 1)
            return found and _ZERO.plus(found, -1)
        if isinstance(op, ops.Binary) and op.fn in ("add", "sub"):
            one, other = self._span(op.lhs, depth - 1), self._span(op.rhs, depth - 1)
            return one and other and one.plus(other, 1 if op.fn == "add" else -1)
        if isinstance(op, ops.Binary) and op.fn == "mul":
            return self._multiple(op.lhs, op.rhs, depth)
        if isinstance(op, ops.Fma):
            one, other = self._multiple(op.x, op.y, depth), self._span(op.z, depth - 1)
            return one and other and one.plus(other)
        return _number(self._ranges[value])

    def _multiple(self, lhs: Value, rhs: Value, depth: int) -> _Span | None:
        for one, other in ((lhs, rhs), (rhs, lhs)):
            low, high = self._ranges[other]
            if low == high:
                found = self._span(one, depth - 1)
                return found and _ZERO.plus(found, low)
        return _number(_product(self._ranges[lhs], self._ranges[rhs]))

    def _integer(self, value: Value) -> _Span | None:
        """The span of an integer."""
        expression = self._integers.integer(value)
        found = _number((expression.constant, expression.constant))
        for atom, coefficient in expression.terms.items():
            other = self._atom(atom)
            found = found and other and found.plus(other, coefficient)
        return found

    def _bound(self, value: Value) -> _Span | None:
        """The span of the bound of a loop from zero on that has iterations."""
        expression = self._integers.integer(value)
        if expression == Affine(0, {value: 1}):
            return self._atom(value, is_positive=True)
        return self._integer(value)

    def _is_size(self, value: Value) -> bool:
        """Whether a value is a size itself, rather than the maximum of a size and 0."""
        source = self._integers.source(value)
        return isinstance(self._integers.definitions.get(source), (ops.Shape, ops.Load))

    def _atom(self, atom: Value, *, is_positive: bool = False) -> _Span | None:
        low, high = self._integers.value_range(atom)
        key = self._integers.size_of(atom)
        if key is not None and not isinstance(key, int) and (is_positive or self._is_size(atom)):
            return _Span(key, (1.0, 0.0), (1.0, 0.0), low)
        key = self._integers.extent_of(atom)
        if key is not None and not isinstance(key, int):
            return _Span(key, (0.0, 0.0), (1.0, -1.0), 1)
        upper = self._integers.upper_bound(atom)
        if upper is not None and low >= 0:
            top = self._bound(upper)
            if top is not None and top.key is not None:
                slope, constant = top.high
                if slope > 0:
                    least = max(top.least, math.ceil((low + 1 - constant) / slope))
                    return _Span(top.key, (0.0, low), (slope, constant - 1), least)
        return _number((low, high))
