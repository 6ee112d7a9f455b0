"""erf: an odd polynomial near zero, 1 - exp(-x*x) Q(x) beyond."""

from __future__ import annotations

from octants.mathlib import coefficients as table
from octants.mathlib.double_word import polynomial
from octants.mathlib.exponential import exponential, reduced, scaled
from octants.mathlib.float_formats import format_of
from octants.mathlib.ir_number import Number, select


def erf(x: Number) -> Number:
    """The error function, odd to the bit; 1 where no number lies between it and 1."""
    float_format = format_of(x)
    size = abs(x)
    end = table.ERF_END[float_format.digits]
    size = select(size > end, x.lift(end), size)
    square = size * size
    near = size + size * polynomial(square, table.ERF[float_format.digits])
    position = (size - table.ERF_SHIFT) / (size + table.ERF_SHIFT)
    r, n = reduced(-square)
    falling = scaled(exponential(r).single, n)
    far = 1.0 - falling * polynomial(position, table.ERFCX[float_format.digits])
    return float_format.with_sign(
        select(size < table.ERF_JOINT, near, far), float_format.sign_of(x)
    )
