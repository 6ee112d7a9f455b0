"""f32 functions for ``fast_math``, on machines that may round a product before they add to it.

They are right to a few units of the last digit, instead of to one, and take half the time. Their
polynomials are evaluated by parts that do not wait for each other (Estrin's scheme). Every angle
outside the range of the short function goes to the strict function.
"""

from __future__ import annotations

import math

from octants.lazy_dataclass import dataclass
from octants.mathlib import coefficients as table
from octants.mathlib import trigonometric
from octants.mathlib.argument_reduction import USUAL
from octants.mathlib.exponential import exp_bounds, limited, scaled
from octants.mathlib.float_formats import format_of
from octants.mathlib.ir_number import Branch, Number
from octants.mathlib.logarithm import decomposed, with_limits

_NOTHING = 2.0**-100

_SINE = (-0.16666658222675323, 0.008333032950758934, -0.0001980720116989687, 2.600458401502692e-06)
"""`SIN_HALF_TURN` but for the last digits. So the sine of a quarter turn is 1, and none is more."""


def _polynomial(x: Number, square: Number, coefficients: tuple[float, ...]) -> Number:
    """c[0] + c[1] x + ..., two coefficients at a time."""
    pairs = [coefficients[k : k + 2] for k in range(0, len(coefficients), 2)]
    terms = [x * pair[1] + pair[0] if len(pair) == 2 else x.lift(pair[0]) for pair in pairs]
    *rest, result = terms
    for term in reversed(rest):
        result = result * square + term
    return result


@dataclass(frozen=True, eq=False)
class Angle:
    """A reduced angle and its square; the word's lowest bit says whether to add half a turn."""

    rest: Number
    square: Number
    word: Number

    def signed(self, x: Number) -> Number:
        """A number, negated after half a turn."""
        float_format = format_of(x)
        return float_format.with_sign(x, self.word << (float_format.dtype.bits - 1))


def _less(x: Number, turns: Number, unit: float, shifted: Number) -> Angle:
    """x without ``turns`` of so many quarters, by products of which all but one are exact.

    The last part does not matter to the square.
    """
    *parts, last = table.HALF_PI_PARTS[24]
    r = x
    for part in parts:
        r = r - turns * (part * unit)
    return Angle(r - turns * (last * unit), r * r, shifted.read_as(format_of(x).word))


def reduced_by_half_turns(x: Number, quarters: int) -> Angle:
    """x and no or one quarter turn, without the nearest number of half turns."""
    shift, half_turns = format_of(x).round_constant, x * (1.0 / math.pi)
    if not quarters:
        shifted = half_turns + shift
        return _less(x, shifted - shift, 2.0, shifted)
    shifted = (half_turns + 0.5) + shift
    return _less(x, (shifted - shift) * 2.0 - 1.0, 1.0, shifted)


def sine_of(angle: Angle) -> Number:
    """The sine; for a zero it has the sign of the zero.

    The square is a little less than zero there, so that the correction has that sign, too.
    """
    z = angle.square
    signed = angle.signed(angle.rest)
    return signed * (z - _NOTHING) * _polynomial(z, z * z, _SINE) + signed


def _branch(x: Number) -> Branch:
    return Branch(~(abs(x) <= USUAL[24]))


def sin(x: Number) -> Number:
    """sin, odd to the bit."""
    branch = _branch(x)
    with x.build.into(branch.rare):
        rare = trigonometric.sin(x)
    with x.build.into(branch.usual):
        usual = sine_of(reduced_by_half_turns(x, 0))
    return branch.merge([rare], [usual])[0]


def cos(x: Number) -> Number:
    """cos as the sine of a quarter turn more, even to the bit."""
    branch = _branch(x)
    with x.build.into(branch.rare):
        rare = trigonometric.cos(x)
    with x.build.into(branch.usual):
        usual = sine_of(reduced_by_half_turns(abs(x), 1))
    return branch.merge([rare], [usual])[0]


def cos_beside_sin(x: Number) -> Number:
    """cos to 2e-7, which is no fraction of a small one; even to the bit.

    What it does at first `sin` does as well: beside that the machine has it for half the work.
    """
    branch = _branch(x)
    with x.build.into(branch.rare):
        rare = trigonometric.cos(x)
    with x.build.into(branch.usual):
        angle = reduced_by_half_turns(x, 0)
        z = angle.square
        usual = angle.signed(_polynomial(z, z * z, (1.0, *table.COS_HALF_TURN[24])))
    return branch.merge([rare], [usual])[0]


def exp(x: Number) -> Number:
    """exp, 0 and inf where the range ends."""
    float_format = format_of(x)
    whole, n = float_format.nearest(x * table.LOG2_E[24][0])
    r = x
    for part in table.LN2_SHORT[24]:
        r = r - whole * part
    square = r * r
    series = square * _polynomial(r, square, table.EXP[24]) + r
    return limited(x, scaled(series + 1.0, n), *exp_bounds(x))


def log(x: Number) -> Number:
    """log, -inf of zero, NaN of negative numbers."""
    m, e = decomposed(x)
    f, exponent = m - 1.0, e.to(x.type)
    square = f * f
    series = f * _polynomial(f, square, table.LOG_NEAR_ONE[24]) - 0.5
    high, low = table.LN2_SHORT[24]
    near_one = square * series + exponent * low
    return with_limits(x, exponent * high + (near_one + f))
