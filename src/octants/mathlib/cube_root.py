"""cbrt: a polynomial and one step of Newton's iteration with an exact residual."""

from __future__ import annotations

import math

from octants.mathlib import coefficients as table
from octants.mathlib.double_word import exact_product, polynomial
from octants.mathlib.float_formats import format_of
from octants.mathlib.ir_number import Number, select


def cbrt(x: Number) -> Number:
    """The cube root, also of negative numbers; odd to the bit.

    The exponent is divided by three by a multiplication; bias - 1 or bias is a multiple of three.
    """
    float_format = format_of(x)
    size = abs(x)
    is_small = size < float_format.tiny
    lift = 24 if float_format.digits == 24 else 54
    word = select(is_small, size * 2.0**lift, size).read_as(float_format.word)
    exponent = (word >> float_format.fraction) - float_format.bias % 3
    third = (exponent * 0xAAAB) >> 17
    rest = exponent - third * 3
    m = (
        (word & ((1 << float_format.fraction) - 1)) | (float_format.bias << float_format.fraction)
    ).read_as(float_format.dtype)
    start = polynomial(m, table.CBRT[float_format.digits])
    is_one, is_two = rest.equals(1), rest.equals(2)
    factor = select(is_one, x.lift(table.CBRT_2[float_format.digits][0]), 1.0)
    start = start * select(is_two, x.lift(table.CBRT_4[float_format.digits][0]), factor)
    wanted = m * select(is_two, x.lift(4.0), select(is_one, x.lift(2.0), 1.0))
    square = exact_product(start, start)
    cube = exact_product(start, square.high)
    error = ((wanted - cube.high) - cube.low) - start * square.low
    root = start + error / (square.high * 3.0)
    lost = select(is_small, third.read_as(float_format.integer).lift(lift // 3), 0)
    scale = float_format.power_of_two(
        third.read_as(float_format.integer) - float_format.bias // 3 - lost
    )
    result = float_format.with_sign(root * scale, float_format.sign_of(x))
    return select((size > 0.0) & (size < math.inf), result, x)
