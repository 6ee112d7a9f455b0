"""What turns of an affine loop do to a number, as operations outside of the loop."""

from __future__ import annotations

from octants.ir import semantics
from octants.lazy_dataclass import dataclass
from octants.mathlib.double import Double, exact_product, exact_sum, quotient
from octants.mathlib.number import Number


@dataclass(frozen=True, slots=True)
class Line:
    """Times a slope, plus an offset.

    The slope has twice the precision, so that its powers are right to the last digit. Lines of
    lines lose none where slopes are next to minus one, either, as all other powers are positive.
    """

    slope: Double
    offset: Number

    @property
    def is_flat(self) -> bool:
        """Whether the slope is a constant zero."""
        return _constant(self.slope.high) == 0

    @property
    def is_constant(self) -> bool:
        """Whether slope and offset are constants."""
        numbers = (self.slope.high, self.slope.low, self.offset)
        return None not in [_constant(each) for each in numbers]

    def at(self, x: Number) -> Number:
        """What it makes of a number."""
        return _fused(x, self.slope.high, _fused(x, self.slope.low, self.offset))

    def twice(self) -> Line:
        """The line of the line."""
        high, low = self.slope.high, self.slope.low
        square = _product(high, high)
        offset = self.offset * _sum(high + 1.0, low)  # exact next to minus one, fused or not
        return Line(Double(square.high, _fused(high + high, low, square.low)), offset)

    def times(self, factor: Number) -> Line:
        """The line times a number."""
        exact = _product(self.slope.high, factor)
        low = _fused(self.slope.low, factor, exact.low)
        return Line(Double(exact.high, low), _fused(self.offset, factor, factor.lift(0.0)))

    def over(self, divisor: Number) -> Line:
        """The line divided by a number."""
        slope = quotient(self.slope, Double(divisor, divisor.lift(0.0)))
        return Line(slope, self.offset / divisor)

    def plus(self, other: Line) -> Line:
        """The sum of two lines."""
        offset = _sum(self.offset, other.offset)
        if self.is_flat or other.is_flat:
            return Line(other.slope if self.is_flat else self.slope, offset)
        exact = exact_sum(self.slope.high, other.slope.high)
        low = exact.low + (self.slope.low + other.slope.low)
        return Line(Double(exact.high, low), offset)

    def negated(self) -> Line:
        """The line times minus one."""
        return Line(Double(-self.slope.high, -self.slope.low), -self.offset)


def _constant(x: Number) -> float | None:
    """The number that a constant is."""
    found: float | None = x.build.constant_of(x.value)
    return found


def _fused(x: Number, y: Number, z: Number) -> Number:
    """x * y + z, rounded once; what is multiplied by a constant zero is zero."""
    one, other, third = _constant(x), _constant(y), _constant(z)
    if one is not None and other is not None and third is not None:
        return x.lift(semantics.fma(x.type, one, other, third))
    return z if 0 in (one, other) else x.times_plus(y, z)


def _sum(x: Number, y: Number) -> Number:
    """x + y; zero is nothing."""
    return y if _constant(x) == 0 else x if _constant(y) == 0 else x + y


def _product(x: Number, y: Number) -> Double:
    """x * y and its error."""
    one, other = _constant(x), _constant(y)
    if one is not None and other is not None:
        high = semantics.evaluate("mul", x.type, one, other)
        return Double(x.lift(high), x.lift(semantics.fma(x.type, one, other, -high)))
    return Double(x * y, x.lift(0.0)) if 1 in (one, other) else exact_product(x, y)
