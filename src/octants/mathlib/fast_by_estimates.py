"""Functions of f32 for ``fast_math``, on machines with instructions that estimate them.

The instructions of NVIDIA's GPUs for sine and cosine have an error of 2**-20.9 or less near zero,
growing with the angle: beyond `FAR` the functions of `fast_without_fma` take their place. That for
powers of two is within two units of the last digit. Through Vulkan, subnormal powers are zero.

Their compilers take long for 64-bit integers, and copy a slow path to wherever it is called.
So huge angles are reduced by integers of 32 bits, and share one series with all beyond `FAR`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from octants.mathlib import coefficients as table
from octants.mathlib.argument_reduction import USUAL, turns_f32
from octants.mathlib.fast_with_fma import horner
from octants.mathlib.fast_without_fma import Angle, reduced_by_half_turns, sine_of
from octants.mathlib.float_formats import format_of
from octants.mathlib.hyperbolic import series
from octants.mathlib.ir_number import Branch, Number, select
from octants.types.scalars import convert, f32, i64, u32

FAR = 64.0
"""The angle from which on the instructions are not used."""


def _estimated(x: Number, fn: str, otherwise: Callable[[Number], Number]) -> Number:
    branch = Branch(~(abs(x) < FAR))
    with x.build.into(branch.rare):
        rare = otherwise(x)
    with x.build.into(branch.usual):
        usual = x.apply(fn)
    return branch.merge([rare], [usual])[0]


def _beyond(x: Number, quarters: int) -> Number:
    """The sine of |x| and so many quarter turns, right to a few units of the last digit."""
    size = abs(x)
    branch = Branch(~(size <= USUAL[24]))
    with x.build.into(branch.rare):
        turns, _ = turns_f32(size, u32)
        turns = turns + (quarters << 62)
        half_turns = (turns + (1 << 62)) >> 63
        r = (turns << 1).read_as(i64).to(x.type) * (math.pi * 2.0**-64)
        huge = [r + (x - x), half_turns.to(u32)]  # NaN for infinity
    with x.build.into(branch.usual):
        angle = reduced_by_half_turns(size, quarters)
        usual = [angle.rest, angle.word]
    r, word = branch.merge(huge, usual)
    return sine_of(Angle(r, r * r, word))


def sin(x: Number) -> Number:
    """sin, to 5e-7 for small angles and to 9e-6 for those before `FAR`."""
    float_format = format_of(x)

    def beyond(x: Number) -> Number:
        return float_format.with_sign(_beyond(x, 0), float_format.sign_of(x))

    return _estimated(x, "sin_estimate", beyond)


def cos(x: Number) -> Number:
    """cos, as `sin`."""
    return _estimated(x, "cos_estimate", lambda x: _beyond(x, 1))


_TO_BINARY = math.log2(math.e)
_HIGH = convert(_TO_BINARY, f32)
_LEAST, _SHIFT = -125.0, 64.0
"""An exponent below which results may be subnormal, and how much is added to it then."""


def exp(x: Number, flushes: bool = True) -> Number:
    """2**(x log2(e)), and to first order the rounding error of that product.

    A machine ``flushes`` that gives zero for subnormal estimates and fused sums.
    """
    power = x * _HIGH
    excess = x.times_plus(_HIGH - _TO_BINARY, x.times_plus(-_HIGH, power))

    def corrected(found: Number) -> Number:
        better = found.times_plus(excess * -math.log(2), found)
        return select(better.is_nan, found, better)  # of zero times infinity, and of infinities

    return _power_of_two(power, corrected, flushes)


def tanh(x: Number, flushes: bool = True) -> Number:
    """1 - 2 / (exp(2 |x|) + 1), and a polynomial for small |x|; odd to the bit; see `exp`."""
    size = abs(x)
    power = (size * (2.0 * _TO_BINARY)).apply("exp2_estimate")
    large = 1.0 - x.lift(2.0).apply("approximate_div", power + 1.0)
    if flushes:
        small = series(size, table.TANH[24])
    else:
        square = x * x
        small = (size * square).times_plus(horner(square, table.TANH[24]), size)
    float_format = format_of(x)
    return float_format.with_sign(select(size < 0.6, small, large), float_format.sign_of(x))


def exp2(x: Number, flushes: bool = True) -> Number:
    """2**x, also where that is subnormal; see `exp`."""
    return _power_of_two(x, lambda found: found, flushes)


def _power_of_two(x: Number, corrected: Callable[[Number], Number], flushes: bool) -> Number:
    """A function of 2**x. Subnormal results are products: NVIDIA flushes fused ones."""
    if not flushes:
        return corrected(x.apply("exp2_estimate"))
    is_small = x < _LEAST
    found = corrected(select(is_small, x + _SHIFT, x).apply("exp2_estimate"))
    return select(is_small, found * 2.0**-_SHIFT, found)
