"""f32 functions for ``fast_math``, on machines that multiply and add in one instruction.

They are right to a few units of the last digit, instead of to one, and take half the time. Every
angle and every argument outside the range of the short function go to the strict function.
"""

from __future__ import annotations

import math

from octants.mathlib import coefficients as table
from octants.mathlib import trigonometric
from octants.mathlib.exponential import exp_bounds, limited, scaled
from octants.mathlib.float_formats import format_of
from octants.mathlib.ir_number import Branch, Number
from octants.mathlib.logarithm import decomposed, with_limits

USUAL = 1.0e5
"""Up to here half turns are taken away by three products."""


_NOTHING = 2.0**-100


def horner(x: Number, coefficients: tuple[float, ...]) -> Number:
    """c[0] + c[1] x + ..., one operation a coefficient."""
    *rest, last = coefficients
    result = x.lift(last)
    for coefficient in reversed(rest):
        result = result.times_plus(x, coefficient)
    return result


def _less_half_turns(x: Number, half_turns: Number) -> Number:
    r = x
    for part in table.PI_PARTS[24]:
        r = half_turns.times_plus(-part, r)
    return r


def _sine(x: Number, half_turns: Number, shifted: Number) -> Number:
    """sin(x - half_turns * pi), negated if the last digit of ``shifted`` is set.

    x is nearly half_turns * pi, but for pi / 2 and a little. The coefficients are such that the
    result is nowhere beyond 1. The square is less than it should be by next to nothing, so that of
    a zero the correction has the sign of the zero, and so has the sum.
    """
    r = _less_half_turns(x, half_turns)
    z = r.times_plus(r, -_NOTHING)
    float_format = format_of(x)
    signed = float_format.with_sign(
        r, shifted.read_as(float_format.word) << (float_format.dtype.bits - 1)
    )
    return (signed * z).times_plus(horner(z, table.SIN_HALF_TURN[24]), signed)


def sin(x: Number) -> Number:
    """sin, odd to the bit."""
    shift = format_of(x).round_constant
    branch = Branch(~(abs(x) <= USUAL))
    with x.build.into(branch.rare):
        rare = trigonometric.sin(x)
    with x.build.into(branch.usual):
        shifted = x.times_plus(1.0 / math.pi, shift)
        usual = _sine(x, shifted - shift, shifted)
    return branch.merge([rare], [usual])[0]


def cos(x: Number) -> Number:
    """cos as the sine of a quarter turn more, even to the bit."""
    shift = format_of(x).round_constant
    size = abs(x)
    branch = Branch(~(size <= USUAL))
    with x.build.into(branch.rare):
        rare = trigonometric.cos(x)
    with x.build.into(branch.usual):
        shifted = size.times_plus(1.0 / math.pi, 0.5) + shift
        usual = _sine(size, (shifted - shift) - 0.5, shifted)
    return branch.merge([rare], [usual])[0]


def cos_beside_sin(x: Number) -> Number:
    """cos to 2e-7, which is no fraction of a small one; even to the bit.

    What it does at first `sin` does as well: beside that the machine has it for half the work.
    """
    float_format = format_of(x)
    branch = Branch(~(abs(x) <= USUAL))
    with x.build.into(branch.rare):
        rare = trigonometric.cos(x)
    with x.build.into(branch.usual):
        shifted = x.times_plus(1.0 / math.pi, float_format.round_constant)
        r = _less_half_turns(x, shifted - float_format.round_constant)
        z = r.times_plus(r, -_NOTHING)
        cosine = z.times_plus(horner(z, table.COS_HALF_TURN[24]), 1.0)
        sign = shifted.read_as(float_format.word) << (float_format.dtype.bits - 1)
        usual = float_format.with_sign(cosine, sign)
    return branch.merge([rare], [usual])[0]


def exp(x: Number) -> Number:
    """exp, 0 and inf where the range ends."""
    float_format = format_of(x)
    shift = float_format.round_constant
    shifted = x.times_plus(table.LOG2_E[24][0], shift)
    whole, n = shifted - shift, shifted.read_as(float_format.integer) - float_format.round_word
    r = x
    for part in table.LN2[24]:
        r = whole.times_plus(-part, r)
    series = (r * r).times_plus(horner(r, table.EXP[24]), r)
    return limited(x, scaled(series + 1.0, n), *exp_bounds(x))


def log(x: Number) -> Number:
    """log, -inf of zero, NaN of negative numbers."""
    m, e = decomposed(x)
    f, exponent = m - 1.0, e.to(x.type)
    series = f.times_plus(horner(f, table.LOG_NEAR_ONE[24]), -0.5)
    high, low = table.LN2[24]
    near_one = (f * f).times_plus(series, exponent * low)
    return with_limits(x, exponent.times_plus(high, near_one + f))
