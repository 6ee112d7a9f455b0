"""sin, cos, tan of the angle that `argument_reduction.reduced` leaves, in its quadrant."""

from __future__ import annotations

from octants.mathlib import coefficients as table
from octants.mathlib.argument_reduction import reduced
from octants.mathlib.double_word import Double, polynomial, quick_sum, quotient
from octants.mathlib.float_formats import format_of
from octants.mathlib.ir_number import Number, select


def _sine(r: Double, z: Number) -> Double:
    """sin(r), not normalised."""
    series = r.high * (z * polynomial(z, table.SIN[format_of(z).digits]))
    return Double(r.high, series + r.low * (1.0 - z * 0.5))


def _cosine(r: Double, z: Number) -> Double:
    """cos(r), not normalised."""
    half = z * 0.5
    head = 1.0 - half
    rest = (1.0 - head) - half
    series = z * z * polynomial(z, table.COS[format_of(z).digits])
    return Double(head, rest + (series - r.high * r.low))


def _in_quadrant(x: Number, quarters: int) -> Number:
    """sin(|x| + quarters of a turn), but for the sign of x."""
    float_format = format_of(x)
    r, q = reduced(abs(x))
    if quarters:
        q = q + quarters
    z = r.high * r.high
    is_odd = (q & 1).differs(0)
    result = select(is_odd, _cosine(r, z).single, _sine(r, z).single)
    return float_format.with_sign(result, (q & 2) << (float_format.dtype.bits - 2))


def sin(x: Number) -> Number:
    """sin, odd to the bit; NaN for infinities."""
    float_format = format_of(x)
    return float_format.with_sign(_in_quadrant(x, 0), float_format.sign_of(x))


def cos(x: Number) -> Number:
    """cos, even to the bit; NaN for infinities."""
    return _in_quadrant(x, 1)


def tan(x: Number) -> Number:
    """The quotient of sin and cos as doubles, odd to the bit."""
    float_format = format_of(x)
    r, q = reduced(abs(x))
    z = r.high * r.high
    sine, cosine = _sine(r, z), _cosine(r, z)
    sine, cosine = quick_sum(sine.high, sine.low), quick_sum(cosine.high, cosine.low)
    is_odd = (q & 1).differs(0)
    above = Double(select(is_odd, cosine.high, sine.high), select(is_odd, cosine.low, sine.low))
    below = Double(select(is_odd, sine.high, cosine.high), select(is_odd, sine.low, cosine.low))
    sign = float_format.sign_of(x) ^ ((q & 1) << (float_format.dtype.bits - 1))
    result = float_format.with_sign(quotient(above, below).single, sign)
    return select(abs(x) < float_format.unit, x, result)
