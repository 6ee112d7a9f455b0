"""exp, exp2, expm1: a power of two times a polynomial.

The reduction subtracts n log(2) in two parts, after W. J. Cody and W. Waite, "Software manual for
the elementary functions", 1980. What is left over is carried along as a correction.
"""

from __future__ import annotations

import math

from octants.mathlib import coefficients as table
from octants.mathlib.double_word import (
    Double,
    exact_sum,
    normalised,
    polynomial,
    quick_sum,
    times_pair,
)
from octants.mathlib.float_formats import format_of
from octants.mathlib.ir_number import Number, select


def clamped(x: Number, low: float, high: float) -> Number:
    """The number, not beyond the bounds; a NaN stays."""
    x = select(x > high, x.lift(high), x)
    return select(x < low, x.lift(low), x)


def exponential(r: Double) -> Double:
    """exp(r) for |r| <= log(2) / 2, as 1 + r and the rest."""
    series = polynomial(r.high, table.EXP[format_of(r.high).digits])
    head = quick_sum(r.high.lift(1.0), r.high)
    return Double(head.high, (head.low + r.low) + r.high * r.high * series)


def reduced(x: Number) -> tuple[Double, Number]:
    """r and n with x = r + n log(2)."""
    float_format = format_of(x)
    whole, n = float_format.nearest(x * table.LOG2_E[float_format.digits][0])
    high_part, low_part = table.LN2_SHORT[float_format.digits]
    first = x - whole * high_part
    second = whole * low_part
    r = first - second
    return Double(r, (first - r) - second), n


def scaled(x: Number, n: Number) -> Number:
    """x * 2**n, rounded once, for n up to twice the largest exponent in size."""
    float_format = format_of(x)
    half = n >> 1
    return x * float_format.power_of_two(half) * float_format.power_of_two(n - half)


def exp_bounds(x: Number) -> tuple[float, float]:
    """Beyond these exp(x) is zero or infinity."""
    float_format = format_of(x)
    least = -(float_format.bias + float_format.digits + 1) * math.log(2.0)
    return least, (float_format.bias + 1.5) * math.log(2.0)


def limited(x: Number, result: Number, low: float, high: float) -> Number:
    """A result that is zero for x below, and infinite for x above; NaN stays."""
    result = select(x < low, x.lift(0.0), result)
    return select(x > high, x.lift(math.inf), result)


def exp(x: Number) -> Number:
    """exp, 0 and inf where the range ends."""
    r, n = reduced(x)
    return limited(x, scaled(exponential(r).single, n), *exp_bounds(x))


def exp2_of(x: Double) -> Number:
    """2**x for a sum that is not normalised beyond the range of exponents."""
    float_format = format_of(x.high)
    whole, n = float_format.nearest(x.high)
    r = times_pair(quick_sum(x.high - whole, x.low), *table.LN2[float_format.digits])
    return scaled(exponential(normalised(r)).single, n)


def exp2(x: Number) -> Number:
    """2**x: exact for integers."""
    float_format = format_of(x)
    result = exp2_of(Double(x, x.lift(0.0)))
    return limited(
        x, result, -(float_format.bias + float_format.digits + 1.0), float_format.bias + 1.5
    )


def expm1(x: Number) -> Number:
    """exp(x) - 1 = 2**n - 1 + 2**n (exp(r) - 1), each term with its error; -0.0 stays."""
    float_format = format_of(x)
    r, n = reduced(clamped(x, -(float_format.digits + 4) * math.log(2.0), exp_bounds(x)[1]))
    tail = r.low + r.high * r.high * polynomial(r.high, table.EXP[float_format.digits])
    scale = float_format.power_of_two(n - 1)
    head = exact_sum(scale, scale.lift(-0.5))
    total = exact_sum(head.high, scale * r.high)
    result = (total.high + (total.low + (head.low + scale * tail))) * 2.0
    return select(abs(x) < float_format.unit, x, result)
