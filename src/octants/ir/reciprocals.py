"""Reciprocals of constants, to multiply by in place of dividing."""

from __future__ import annotations

import math

from octants.types.scalars import DType, convert, f16, f32, f64

_DIGITS = {f16: 11, f32: 24, f64: 53}
_LEAST = {f16: -14, f32: -126, f64: -1022}
"""The precisions of floats, and the exponents of their least normal numbers."""


def is_exact(divisor: float, dtype: DType) -> bool:
    """Whether a constant is a power of two: then a product with its reciprocal is the quotient."""
    return abs(math.frexp(divisor)[0]) == 0.5 and is_normal(divisor, dtype)


def is_normal(divisor: float, dtype: DType) -> bool:
    """Whether a constant and its reciprocal are normal numbers of a type."""
    least = 2.0 ** _LEAST[dtype]
    return least <= abs(divisor) < math.inf and abs(1.0 / divisor) >= least


def in_two_parts(divisor: float, dtype: DType) -> tuple[float, float] | None:
    """The reciprocal of a constant as a number of a type, towards zero, and what is left of it.

    Both have the sign of the divisor. So the products of both with an infinity or a zero have the
    sum that the quotient is. The result is None if a part would not be normal.
    """
    _, exponent = math.frexp(divisor)
    digits = _DIGITS[dtype]
    if not is_normal(divisor, dtype) or exponent > -_LEAST[dtype] - 3 * digits:
        return None
    numerator, denominator = abs(divisor).as_integer_ratio()
    shift = exponent + digits - 1
    whole, rest = divmod(denominator << max(shift, 0), numerator << max(-shift, 0))
    parts = math.ldexp(whole, -shift), math.ldexp(rest / (numerator << max(-shift, 0)), -shift)
    large, small = (math.copysign(convert(part, dtype), divisor) for part in parts)
    return large, small
