"""asin, acos, atan, atan2: angles of numbers."""

from __future__ import annotations

import math

from octants.mathlib import coefficients as table
from octants.mathlib.double_word import Double, exact_product, polynomial, quick_sum, quotient
from octants.mathlib.float_formats import Format, format_of
from octants.mathlib.ir_number import Number, select

_JOINT = math.tan(math.pi / 8)


def _choose(condition: Number, a: Double, b: Double) -> Double:
    return Double(select(condition, a.high, b.high), select(condition, a.low, b.low))


def _multiple_of_eighth_turn(float_format: Format, count: Number) -> Double:
    """count * pi / 4 for a count up to 4."""
    high, low = table.QUARTER_PI_SHORT[float_format.digits]
    return Double(count * high, count * low)


def _angle(y: Number, x: Number, is_left: Number | None = None) -> Number:
    """atan(y / x) for numbers >= 0 that are neither both zero nor infinite; or pi less that.

    The smaller is divided by the larger one; above tan(pi / 8) the angle to pi / 4 is taken.
    """
    float_format = format_of(x)
    is_steep = y > x
    small, large = select(is_steep, x, y), select(is_steep, y, x)
    is_middle = small > large * _JOINT
    none = x.lift(0.0)
    above = _choose(is_middle, quick_sum(-large, small), Double(small, none))
    below = _choose(is_middle, quick_sum(large, small), Double(large, none))
    t = quotient(above, below)
    z = t.high * t.high
    correction = select(
        abs(t.high) < float_format.unit, none, t.low
    )  # its product may have underflowed
    tail = correction + t.high * z * polynomial(z, table.ATAN[float_format.digits])
    count = select(is_middle, x.lift(1.0), 0.0)
    count = select(is_steep, 2.0 - count, count)
    flips = is_steep
    if is_left is not None:
        count = select(is_left, 4.0 - count, count)
        flips = is_steep ^ is_left
    sign = select(flips, t.high.read_as(float_format.word).lift(float_format.sign), 0)
    base = _multiple_of_eighth_turn(float_format, count)
    head = quick_sum(base.high, float_format.with_sign(t.high, sign))
    return head.high + (head.low + (base.low + float_format.with_sign(tail, sign)))


def atan(x: Number) -> Number:
    """Odd to the bit."""
    float_format = format_of(x)
    size = abs(x)
    size = select(size > 2.0**60, x.lift(2.0**60), size)
    return float_format.with_sign(_angle(size, x.lift(1.0)), float_format.sign_of(x))


def atan2(y: Number, x: Number) -> Number:
    """The angle of the point (x, y), with the signs of zeros and the infinities of C99."""
    float_format = format_of(x)
    a, b = abs(y), abs(x)
    is_infinite = a.equals(math.inf) | b.equals(math.inf)
    a = select(is_infinite, select(a.equals(math.inf), a.lift(1.0), 0.0), a)
    b = select(is_infinite, select(b.equals(math.inf), b.lift(1.0), 0.0), b)
    b = select(a.equals(0.0) & b.equals(0.0), b.lift(1.0), b)
    reach = float_format.bias // 2
    larger = select(a > b, a, b)
    scale = select(larger < 2.0**-reach, a.lift(2.0 ** (reach + float_format.fraction)), 1.0)
    scale = select(larger > 2.0**reach, a.lift(2.0 ** -(reach + 1)), scale)
    is_left = float_format.sign_of(x).differs(0)
    result = float_format.with_sign(_angle(a * scale, b * scale, is_left), float_format.sign_of(y))
    return select(x.is_nan | y.is_nan, x + y, result)


def _half_chord(x: Number) -> tuple[Number, Number, Number]:
    """Whether |x| < 1/2, then s and its correction: asin(|x|) is asin(s), or pi / 2 - 2 asin(s)."""
    size = abs(x)
    is_small = size < 0.5
    square = select(is_small, size * size, (1.0 - size) * 0.5)
    s = select(is_small, size, square.sqrt())
    back = exact_product(s, s)
    rest = ((square - back.high) - back.low) / (s + s)
    rest = select(is_small | square.equals(0.0), x.lift(0.0), rest)
    series = s * square * polynomial(square, table.ASIN[format_of(x).digits])
    return is_small, s, rest + series


def asin(x: Number) -> Number:
    """Odd to the bit; NaN beyond 1."""
    float_format = format_of(x)
    is_small, s, tail = _half_chord(x)
    high, low = table.HALF_PI[float_format.digits]
    head = quick_sum(x.lift(high), s * -2.0)
    result = select(is_small, s + tail, head.high + (head.low + (low - tail * 2.0)))
    return float_format.with_sign(result, float_format.sign_of(x))


def acos(x: Number) -> Number:
    """Between 0 and pi; NaN beyond 1."""
    float_format = format_of(x)
    is_small, s, tail = _half_chord(x)
    is_negative = x < 0.0
    high, low = table.HALF_PI[float_format.digits]
    turned = select(
        is_small, float_format.with_sign(s, ~float_format.sign_of(x) & float_format.sign), s * -2.0
    )
    turned_tail = select(
        is_small,
        float_format.with_sign(tail, ~float_format.sign_of(x) & float_format.sign),
        tail * -2.0,
    )
    base = select(is_small, x.lift(high), 2.0 * high)
    head = quick_sum(base, turned)
    rest = head.low + (select(is_small, x.lift(low), 2.0 * low) + turned_tail)
    near_one = (s + tail) * 2.0
    return select(is_small | is_negative, head.high + rest, near_one)
