"""log, log2, log10, log1p: an exponent and the logarithm of a number near one.

With s = f / (2 + f), log(1 + f) is 2 atanh(s), an odd series in s. It is written as
f - f*f/2 + s (f*f/2 + R(s*s)), so that the leading term is exact.
"""

from __future__ import annotations

import math

from octants.lazy_dataclass import dataclass
from octants.mathlib import coefficients as table
from octants.mathlib.double_word import Double, exact_sum, polynomial, quick_sum
from octants.mathlib.float_formats import Format, format_of
from octants.mathlib.ir_number import Number, select


def _root_half(float_format: Format) -> int:
    """The word of sqrt(1/2)."""
    return int(float_format.dtype.numpy.type(math.sqrt(0.5)).view(float_format.word.numpy))


def decomposed(x: Number) -> tuple[Number, Number]:
    """m in [sqrt(1/2), sqrt(2)) and e, signed, with x = m * 2**e, for positive finite x."""
    float_format = format_of(x)
    is_small = x < float_format.tiny
    word = select(is_small, x * 2.0**float_format.digits, x).read_as(float_format.integer)
    e = (word - _root_half(float_format)) >> float_format.fraction
    m = (word - (e << float_format.fraction)).read_as(float_format.dtype)
    return m, e - select(is_small, e.lift(float_format.digits), 0)


@dataclass(frozen=True, eq=False)
class LogParts:
    """log(1 + f) = f - half + tail, with half = f * f / 2."""

    f: Number
    half: Number
    tail: Number


def parts_of(f: Number) -> LogParts:
    """The parts for sqrt(1/2) <= 1 + f < sqrt(2)."""
    s = f / (f + 2.0)
    z = s * s
    half = f * f * 0.5
    series = z * polynomial(z, table.LOG[format_of(f).digits])
    return LogParts(f, half, s * (half + series))


def natural(parts: LogParts, e: Number, correction: Number | None = None) -> Number:
    """The logarithm from its parts and the exponent."""
    float_format = format_of(parts.f)
    high_part, low_part = table.LN2_SHORT[float_format.digits]
    exponent = e.to(float_format.dtype)
    head = quick_sum(exponent * high_part, parts.f)
    tail = parts.tail + exponent * low_part
    if correction is not None:
        tail = tail + correction
    return head.high + (head.low - (parts.half - tail))


def with_limits(x: Number, result: Number) -> Number:
    """Logarithms of zero, infinity, negative numbers and NaN."""
    special = select(x < 0.0, x.lift(math.nan), x)
    special = select(x.equals(0.0), x.lift(-math.inf), special)
    return select((x > 0.0) & (x < math.inf), result, special)


def log(x: Number) -> Number:
    """log, -inf of zero, NaN of negative numbers."""
    m, e = decomposed(x)
    return with_limits(x, natural(parts_of(m - 1.0), e))


def _in_base(x: Number, factor: tuple[float, ...], unit: tuple[float, ...]) -> Number:
    """log(x) times a factor whose head is short, where two has the logarithm ``unit``."""
    float_format = format_of(x)
    m, e = decomposed(x)
    parts = parts_of(m - 1.0)
    high = float_format.truncated(parts.f - parts.half)
    low = ((parts.f - high) - parts.half) + parts.tail
    exponent = e.to(float_format.dtype)
    head = quick_sum(exponent * unit[0], high * factor[0])
    tail = (low + high) * factor[1] + low * factor[0]
    if unit[1]:
        tail = tail + exponent * unit[1]
    return with_limits(x, head.high + (head.low + tail))


def log2(x: Number) -> Number:
    """Exact for powers of two."""
    return _in_base(x, table.LOG2_E_SHORT[format_of(x).digits], (1.0, 0.0))


def log10(x: Number) -> Number:
    """The logarithm to the base ten."""
    digits = format_of(x).digits
    return _in_base(x, table.LOG10_E_SHORT[digits], table.LOG10_2_SHORT[digits])


def log_of_one_plus(a: Double, doublings: Number | None = None) -> Number:
    """log((1 + a) * 2**doublings) for a > -1; the rounding of the sum is made good."""
    float_format = format_of(a.high)
    one_plus = exact_sum(a.high.lift(1.0), a.high)
    m, e = decomposed(one_plus.high)
    is_near = e.equals(0)
    f = select(is_near, a.high, m - 1.0)
    rest = (one_plus.low + a.low) * float_format.power_of_two(
        -e.apply("min", float_format.bias - 1)
    )
    rest = select(is_near, a.low, rest)
    exponent = e if doublings is None else e + doublings
    return natural(parts_of(f), exponent, rest / (f + 1.0))


def log1p(x: Number) -> Number:
    """log(1 + x); -0.0 stays, -inf of -1."""
    float_format = format_of(x)
    result = log_of_one_plus(Double(x, x.lift(0.0)))
    special = select(x < -1.0, x.lift(math.nan), x)
    special = select(x.equals(-1.0), x.lift(-math.inf), special)
    usual = (x > -1.0) & (x < math.inf) & (abs(x) >= float_format.unit)
    return select(usual, result, special)
