"""C's `fmod`: exact, by long division of the mantissas.

A number is m * 2**(e - bias - fraction) with m of all digits; those of subnormal ones have e < 1.
Integers alone are used, so that it does not matter whether machines know subnormal numbers.
"""

from __future__ import annotations

import math

from octants.ir.core import Block, Value
from octants.mathlib.float_formats import Format, format_of
from octants.mathlib.ir_number import Number, select
from octants.types.scalars import i32


def remainder(a: Number, b: Number) -> Number:
    """a less the multiple of b next to it towards zero; NaN if a is infinite or b is zero."""
    float_format = format_of(a)
    sign = float_format.sign_of(a)
    x, y = (
        a.read_as(float_format.word) ^ sign,
        b.read_as(float_format.word) & (float_format.sign - 1),
    )
    infinity = ((2 * float_format.bias) + 1) << float_format.fraction
    is_defined = ~(y.equals(0) | (x >= infinity) | (y > infinity))
    divides = is_defined & (x >= y)
    (m, e), (divisor, end) = _split(float_format, x), _split(float_format, y)
    iterations = select(divides, e - end, 0)
    rest = _less(_divided(m, divisor, iterations), divisor)
    found = _joined(float_format, rest, end) | sign
    result = select(divides, found.read_as(float_format.dtype), a)
    return select(is_defined, result, math.nan)


def _leading(float_format: Format, word: Number) -> Number:
    """By how much a word can move up until it is a mantissa, i32."""
    return word.apply("clz").to(i32) - (float_format.dtype.bits - float_format.digits)


def _split(float_format: Format, word: Number) -> tuple[Number, Number]:
    """The mantissa and the exponent (i32) of the bits of a number."""
    one = 1 << float_format.fraction
    raw, part = (word >> float_format.fraction).to(i32), word & (one - 1)
    up = _leading(float_format, part)
    is_normal = raw.differs(0)
    m = select(is_normal, part | one, part << up.to(float_format.word))
    return m, select(is_normal, raw, 1 - up)


def _less(m: Number, divisor: Number) -> Number:
    return select(m >= divisor, m - divisor, m)


def _divided(m: Number, divisor: Number, iterations: Number) -> Number:
    """The remainder after so many steps of the division, each of which doubles it."""
    build = m.build
    body = Block([Value(i32), Value(m.type)])
    with build.into(body):
        left = Number(build, body.args[1])
        build.yield_([(_less(left, divisor) << 1).value])
    loop = build.for_(iterations.lift(0).value, iterations.value, [m.value], body)
    return Number(build, loop.result)


def _joined(float_format: Format, rest: Number, e: Number) -> Number:
    """The bits of a number of a mantissa that need not have all digits; of zero, zero."""
    up = _leading(float_format, rest)
    e = e - up
    lifted = rest << up.to(float_format.word)
    normal = (lifted & ((1 << float_format.fraction) - 1)) | (
        e.to(float_format.word) << float_format.fraction
    )
    found = select(e > 0, normal, lifted >> (1 - e).to(float_format.word))
    return select(rest.equals(0), rest, found)
