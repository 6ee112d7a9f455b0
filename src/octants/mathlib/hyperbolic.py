"""sinh, cosh, tanh and their inverses."""

from __future__ import annotations

import math

from octants.mathlib import coefficients as table
from octants.mathlib.double_word import (
    Double,
    exact_product,
    exact_sum,
    polynomial,
    quick_sum,
    quotient,
    square_root,
)
from octants.mathlib.exponential import clamped, exponential, reduced
from octants.mathlib.float_formats import format_of
from octants.mathlib.ir_number import Number, select
from octants.mathlib.logarithm import log_of_one_plus


def series(x: Number, coefficients: tuple[float, ...]) -> Number:
    """x + c[0] x**3 + ..."""
    z = x * x
    return x + x * z * polynomial(z, coefficients)


def _quarter_exponentials(size: Number) -> tuple[Double, Number]:
    """exp(size) / 4 and exp(-size) / 4 for size >= 0, as far as four times that may overflow."""
    float_format = format_of(size)
    r, n = reduced(clamped(size, 0.0, (float_format.bias + 2.2) * math.log(2.0)))
    growing = exponential(r).scaled(float_format.power_of_two(n - 2))
    return growing, 0.0625 / growing.single


def sinh(x: Number) -> Number:
    """Odd to the bit."""
    float_format = format_of(x)
    size = abs(x)
    growing, falling = _quarter_exponentials(size)
    large = (growing.high + (growing.low - falling)) * 2.0
    small = series(size, table.SINH[float_format.digits])
    return float_format.with_sign(select(size < 1.0, small, large), float_format.sign_of(x))


def cosh(x: Number) -> Number:
    """Even to the bit."""
    growing, falling = _quarter_exponentials(abs(x))
    return (growing.high + (growing.low + falling)) * 2.0


def tanh(x: Number) -> Number:
    """Odd to the bit; 1 - 2 / (exp(2 |x|) + 1) for the larger ones, corrected to first order."""
    float_format = format_of(x)
    size = abs(x)
    r, n = reduced(clamped(size, 0.0, float_format.digits * 0.4) * 2.0)
    power = exponential(r)
    grown = quick_sum(power.high, power.low).scaled(float_format.power_of_two(n))
    below = quick_sum(grown.high, x.lift(1.0))
    part = 2.0 / below.high
    head = quick_sum(x.lift(1.0), -part)
    large = head.high + (head.low + part * part * 0.5 * (below.low + grown.low))
    small = series(size, table.TANH[float_format.digits])
    return float_format.with_sign(select(size < 0.6, small, large), float_format.sign_of(x))


def asinh(x: Number) -> Number:
    """log(1 + a) for a = |x| + x*x / (1 + sqrt(1 + x*x)); log(2 |x|) where squares overflow."""
    float_format = format_of(x)
    size = abs(x)
    is_huge = size > 2.0**float_format.digits
    safe = select(is_huge, x.lift(1.0), size)
    square = exact_product(safe, safe)
    sum_ = exact_sum(square.high, x.lift(1.0))
    root = square_root(quick_sum(sum_.high, sum_.low + square.low))
    below = quick_sum(root.high + 1.0, root.low + (root.high - (root.high + 1.0) + 1.0))
    part = quotient(square, below)
    total = exact_sum(safe, part.high)
    a = quick_sum(total.high, total.low + part.low)
    none = x.lift(0.0)
    a = Double(select(is_huge, size, a.high), select(is_huge, none, a.low))
    doublings = is_huge.to(float_format.integer)
    result = float_format.with_sign(log_of_one_plus(a, doublings), float_format.sign_of(x))
    return select((size < 2.0 ** -(float_format.digits // 2 + 1)) | ~(size < math.inf), x, result)


def acosh(x: Number) -> Number:
    """log(1 + a) for a = t + sqrt(t (t + 2)), t = x - 1; NaN below 1."""
    float_format = format_of(x)
    is_huge = x > 2.0**float_format.digits
    safe = select(is_huge | (x < 1.0), x.lift(2.0), x)
    t = safe - 1.0
    square = exact_product(t, t)
    sum_ = exact_sum(t + t, square.high)
    root = square_root(quick_sum(sum_.high, sum_.low + square.low))
    total = exact_sum(t, root.high)
    a = quick_sum(total.high, total.low + root.low)
    none = x.lift(0.0)
    a = Double(select(is_huge, x, a.high), select(is_huge, none, a.low))
    result = log_of_one_plus(a, is_huge.to(float_format.integer))
    special = select(x < 1.0, x.lift(math.nan), x)
    special = select(x.equals(1.0), none, special)
    return select((x > 1.0) & (x < math.inf), result, special)


def atanh(x: Number) -> Number:
    """log(1 + 2 |x| / (1 - |x|)) / 2; infinite at 1, NaN beyond."""
    float_format = format_of(x)
    size = abs(x)
    safe = select(size < 1.0, size, 0.5)
    ratio = quotient(Double(safe + safe, x.lift(0.0)), quick_sum(x.lift(1.0), -safe))
    result = float_format.with_sign(log_of_one_plus(ratio) * 0.5, float_format.sign_of(x))
    special = select(
        size.equals(1.0),
        float_format.with_sign(x.lift(math.inf), float_format.sign_of(x)),
        math.nan,
    )
    result = select(size < 1.0, result, special)
    return select((size < 2.0 ** -(float_format.digits // 2 + 1)) | x.is_nan, x, result)
