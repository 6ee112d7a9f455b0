"""pow: the logarithm to base two as a double, times the exponent, and 2 to the power of that.

Powers of integers are products.
"""

from __future__ import annotations

import math

from octants.ir.core import Block, Value
from octants.mathlib import coefficients as table
from octants.mathlib.double_word import (
    Double,
    exact_product,
    polynomial,
    product,
    quick_sum,
    times_pair,
)
from octants.mathlib.exponential import exp2_of
from octants.mathlib.float_formats import format_of
from octants.mathlib.ir_number import Number, select
from octants.mathlib.logarithm import decomposed
from octants.types.scalars import i32


def _log2(x: Number) -> Double:
    """log2 of a positive finite number, with ten digits more than the type has, or better.

    2 atanh(s) = 2 s (1 + s**2 / 3 + ...), where s = f / (2 + f) is a double.
    """
    float_format = format_of(x)
    m, e = decomposed(x)
    f, below = m - 1.0, quick_sum(m.lift(1.0), m)
    inverse = 1.0 / below.high
    s = f * inverse
    back = exact_product(s, below.high)
    rest = ((f - back.high) - back.low) - s * below.low
    ratio = quick_sum(s, rest * inverse)
    square = product(ratio, ratio)
    third = times_pair(square, *table.THIRD[float_format.digits])
    tail = square.high * square.high * polynomial(square.high, table.LOG_TAIL[float_format.digits])
    curve = product(ratio, quick_sum(third.high, third.low + tail))
    first = quick_sum(ratio.high, curve.high)
    atanh = quick_sum(first.high, first.low + (ratio.low + curve.low))
    mantissa = times_pair(atanh, *table.TWICE_LOG2_E[float_format.digits])
    head = quick_sum(e.to(float_format.dtype), mantissa.high)
    return quick_sum(head.high, head.low + mantissa.low)


def _positive_power(x: Number, y: Number) -> Number:
    """x**y for positive finite x; a huge y gives what its neighbours give."""
    float_format = format_of(x)
    logarithm = _log2(x)
    largest = 2.0 ** (float_format.digits + float_format.dtype.bits // 4 + 8)
    y = select(y > largest, y.lift(largest), y)
    y = select(y < -largest, y.lift(-largest), y)
    exponent = exact_product(logarithm.high, y)
    low = exponent.low + logarithm.low * y
    bound = 2.0 * float_format.bias
    is_inside = abs(exponent.high) < bound
    high = select(exponent.high > 0.0, y.lift(bound), -bound)
    return exp2_of(
        Double(select(is_inside, exponent.high, high), select(is_inside, low, y.lift(0.0)))
    )


def pow(x: Number, y: Number) -> Number:  # noqa: A001
    """x**y with the special cases of C99: pow(x, 0) and pow(1, y) are 1 even for NaN."""
    float_format = format_of(x)
    size, half = abs(x), y * 0.5
    is_whole = y.apply("trunc").equals(y)
    is_odd = is_whole & half.apply("trunc").differs(half)
    is_limit = size.equals(0.0) | size.equals(math.inf)
    grows = ~(size.equals(0.0) ^ (y < 0.0))
    limit = select(grows, x.lift(math.inf), 0.0)
    result = select(is_limit, limit, _positive_power(size, y))
    sign = select(is_odd, float_format.sign_of(x), 0)
    result = float_format.with_sign(result, sign)
    is_undefined = (x < 0.0) & ~is_limit & ~is_whole
    result = select(is_undefined, x.lift(math.nan), result)
    result = select(x.is_nan | y.is_nan, x + y, result)
    return select(y.equals(0.0) | x.equals(1.0), x.lift(1.0), result)


def integer_power(a: Number, b: Number) -> Number:
    """By squaring; a negative exponent leaves 1 and -1, up to the sign, and gives 0 otherwise."""
    square, rest = a, b
    if a.type.is_signed:
        keeps = a.equals(1) | a.equals(-1)
        negative = b < 0
        square = select(negative & ~keeps, a.lift(0), a)
        rest = select(negative, select(keeps, b & 1, 1), b)
    iterations = a.type.bits - rest.apply("clz").to(i32)
    build = a.build
    body = Block([Value(i32), *(Value(a.type) for _ in range(3))])
    with build.into(body):
        result, square_, rest_ = (Number(build, arg) for arg in body.args[1:])
        factor = select((rest_ & 1).differs(0), square_, 1)
        values = result * factor, square_ * square_, rest_.apply("ushr", 1)
        build.yield_([value.value for value in values])
    inits = [a.lift(1).value, square.value, rest.value]
    loop = build.for_(iterations.lift(0).value, iterations.value, inits, body)
    return Number(build, loop.results[0])
