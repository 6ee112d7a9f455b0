"""Sums and products with their rounding errors: numbers of twice the precision.

After T. J. Dekker, "A floating-point technique for extending the available precision", 1971, and
D. E. Knuth, "The Art of Computer Programming", volume 2. The error of a product is an operation by
itself, which machines with a fused multiply-add have as one instruction.
"""

from __future__ import annotations

from octants.lazy_dataclass import dataclass
from octants.mathlib.ir_number import Number, Operand


@dataclass(frozen=True, eq=False)
class Double:
    """The sum of a number and a correction of the size of its rounding error."""

    high: Number
    low: Number

    @property
    def single(self) -> Number:
        """Rounded to one number."""
        return self.high + self.low

    def scaled(self, factor: Operand) -> Double:
        """Times a power of two."""
        return Double(self.high * factor, self.low * factor)


def quick_sum(a: Number, b: Number) -> Double:
    """a + b, where a is zero or not less than b in size."""
    high = a + b
    return Double(high, b - (high - a))


def normalised(a: Double) -> Double:
    """The same sum, with a correction of at most half a unit of the last digit."""
    return quick_sum(a.high, a.low)


def exact_sum(a: Number, b: Number) -> Double:
    """a + b for any two."""
    high = a + b
    part = high - a
    return Double(high, (a - (high - part)) + (b - part))


def exact_product(a: Number, b: Number) -> Double:
    """a * b, unless it leaves the range of normal numbers."""
    return Double(a * b, a.apply("mul_error", b))


def product(a: Double, b: Double) -> Double:
    """a * b, not normalised, with an error of a few units of the last digit of the correction."""
    exact = exact_product(a.high, b.high)
    return Double(exact.high, exact.low + (a.high * b.low + a.low * b.high))


def times_pair(a: Double, high: float, low: float) -> Double:
    """Times the constant high + low, not normalised."""
    exact = exact_product(a.high, a.high.lift(high))
    return Double(exact.high, exact.low + (a.high * low + a.low * high))


def quotient(a: Double, b: Double) -> Double:
    """a / b, not normalised: the second step divides what the first one leaves."""
    high = a.high / b.high
    back = exact_product(high, b.high)
    rest = ((a.high - back.high) - back.low + a.low) - high * b.low
    return Double(high, rest / b.high)


def square_root(a: Double) -> Double:
    """The root of a positive number."""
    high = a.high.sqrt()
    back = exact_product(high, high)
    rest = ((a.high - back.high) - back.low) + a.low
    return quick_sum(high, rest / (high + high))


def polynomial(x: Number, coefficients: tuple[float, ...]) -> Number:
    """c[0] + c[1] x + ..., in pairs and pairs of pairs, which do not wait for each other."""
    terms: list[Number] = [x.lift(c) for c in coefficients]
    if len(terms) == 1:
        return terms[0]
    power = x
    while len(terms) > 2:
        pairs = [low + high * power for low, high in zip(terms[::2], terms[1::2], strict=False)]
        terms = pairs + terms[len(pairs) * 2 :]
        power = power * power
    return terms[0] if len(terms) == 1 else terms[0] + terms[1] * power
