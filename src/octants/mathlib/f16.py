"""f16 as an f32 that holds one of its values, and as 16 bits in a u32.

All by integers and f32: no machine needs to know the type, and all of them round alike.
"""

from __future__ import annotations

from octants.mathlib.ir_number import Number, select
from octants.types.scalars import f32, u32

_SIGN, _SIZE = 0x8000, 0x7FFFFFFF
_SMALLEST_NORMAL = 0x38800000  # 2**-14 as f32
_OVERFLOW = 0x477FF000  # from here on numbers round to infinity
_INFINITY = 0x7F800000


def bits(x: Number) -> Number:
    """The 16 bits of the f16 nearest to an f32, even at a tie.

    Adding a half lets the machine round to 2**-24, for subnormals; else by integers.
    """
    word = x.read_as(u32)
    sign = (word >> 16) & _SIGN
    size = word & _SIZE
    small = (size.read_as(f32) + 0.5).read_as(u32) - 0x3F000000
    odd = (size >> 13) & 1
    normal = ((size - (0x38000000 - 0xFFF)) + odd) >> 13
    finite = select(size < _SMALLEST_NORMAL, small, normal)
    capped = select(size >= _OVERFLOW, size.lift(0x7C00), finite)
    payload = ((size >> 13) & 0x3FF) | 0x7E00
    return sign | select(size > _INFINITY, payload, capped)


def value(word: Number) -> Number:
    """The f32 of 16 bits.

    Subnormals by way of an integer, since machines may take those of f32 for zero.
    """
    sign = (word & _SIGN) << 16
    rest = word & 0x7FFF
    moved = rest << 13
    tiny = (rest.to(f32) * 2.0**-24).read_as(u32)
    size = select(rest >= 0x7C00, moved | _INFINITY, moved + (112 << 23))
    return (select(rest < 0x400, tiny, size) | sign).read_as(f32)
