"""Values of the intermediate representation with Python's operators: formulas read as such.

Each operator appends one operation, rounded by itself; nothing is contracted or reordered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Union

from octants.ir.builder import Builder
from octants.ir.core import Block, Value
from octants.types.scalars import DType

Operand = Union["Number", float, int]


def _operator(fn: str) -> Callable[[Number, Operand], Number]:
    return lambda self, other: self.apply(fn, other)


def _reflected(fn: str) -> Callable[[Number, Operand], Number]:
    return lambda self, other: self.lift(other).apply(fn, self)


def _comparison(fn: str) -> Callable[[Number, Operand], Number]:
    return lambda self, other: self.compare(fn, other)


class Number:
    """A value and the builder that its operators append to; Python numbers become constants."""

    __slots__ = ("build", "value")

    def __init__(self, build: Builder, value: Value) -> None:
        self.build = build
        self.value = value

    @property
    def type(self) -> DType:
        return self.value.type

    @property
    def known(self) -> Any:
        """The Python number that this is, None unless it is a constant of the builder's."""
        return self.build.constant_of(self.value)

    def lift(self, other: Operand) -> Number:
        """A Python number as a constant of this type."""
        if isinstance(other, Number):
            return other
        return Number(self.build, self.build.constant(other, self.type))

    def apply(self, fn: str, *others: Operand) -> Number:
        """A unary or binary function of the intermediate representation."""
        operands = [self.value, *(self.lift(other).value for other in others)]
        build = self.build.binary if others else self.build.unary
        return Number(self.build, build(fn, *operands))

    def compare(self, fn: str, other: Operand) -> Number:
        """A comparison, whose result is a `bool`."""
        return Number(self.build, self.build.compare(fn, self.value, self.lift(other).value))

    __add__, __radd__ = _operator("add"), _reflected("add")
    __sub__, __rsub__ = _operator("sub"), _reflected("sub")
    __mul__, __rmul__ = _operator("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _operator("div"), _reflected("div")
    __floordiv__ = _operator("floordiv")
    __and__, __or__, __xor__ = _operator("and"), _operator("or"), _operator("xor")
    __lshift__, __rshift__ = _operator("shl"), _operator("shr")
    __lt__, __le__ = _comparison("lt"), _comparison("le")
    __gt__, __ge__ = _comparison("gt"), _comparison("ge")
    equals, differs = _comparison("eq"), _comparison("ne")

    def __neg__(self) -> Number:
        return self.apply("neg")

    def __abs__(self) -> Number:
        return self.apply("abs")

    def __invert__(self) -> Number:
        return self.apply("not")

    def times_plus(self, factor: Operand, addend: Operand) -> Number:
        """self * factor + addend, rounded once."""
        others = (self.lift(other).value for other in (factor, addend))
        return Number(self.build, self.build.fma(self.value, *others))

    @property
    def is_nan(self) -> Number:
        return self.differs(self)

    def sqrt(self) -> Number:
        return self.apply("sqrt")

    def to(self, dtype: DType) -> Number:
        """Converted, as `ir.ops.Cast` does it."""
        return Number(self.build, self.build.cast(self.value, dtype))

    def read_as(self, dtype: DType) -> Number:
        """The same bits as another type."""
        return Number(self.build, self.build.bitcast(self.value, dtype))

    def where(self, condition: Number, otherwise: Operand) -> Number:
        """This one where the condition holds; both are computed."""
        other = self.lift(otherwise).value
        return Number(self.build, self.build.select(condition.value, self.value, other))


def select(condition: Number, on_true: Number, on_false: Operand) -> Number:
    """One of two numbers; both are computed."""
    return on_true.where(condition, on_false)


class Branch:
    """Numbers of one way, then of the other: for work that is seldom needed and long.

    `rare` and `usual` give blocks to build into; `merge` gives the results.
    """

    def __init__(self, condition: Number) -> None:
        self._condition = condition
        self._build = condition.build
        self.rare, self.usual = Block(), Block()

    def merge(self, rare: list[Number], usual: list[Number]) -> list[Number]:
        for block, numbers in ((self.rare, rare), (self.usual, usual)):
            with self._build.into(block):
                self._build.yield_([number.value for number in numbers])
        op = self._build.if_(self._condition.value, self.rare, self.usual)
        return [Number(self._build, value) for value in op.results]
