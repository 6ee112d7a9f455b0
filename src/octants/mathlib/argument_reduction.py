"""Reduction of an angle to a quadrant and what is left of it, as a double.

Angles of usual size lose n quarter turns in four parts, of which three have exact products (Cody
and Waite). Huge ones are multiplied, as integers, by those digits of 2 / pi that matter: M. H.
Payne and R. N. Hanek, "Radian reduction for trigonometric functions", 1983.
"""

from __future__ import annotations

import itertools

from octants.mathlib import coefficients as table
from octants.mathlib.double_word import Double, normalised, quick_sum, times_pair
from octants.mathlib.float_formats import Format, format_of
from octants.mathlib.ir_number import Branch, Number, select
from octants.types.scalars import DType, i64, u64

USUAL = {24: 6000.0, 53: 1.0e6}
"""Up to here the number of quarter turns leaves the products exact."""

_LOW = (1 << 32) - 1


def reduced(x: Number) -> tuple[Double, Number]:
    """r and q (a word) with x = r + q quarter turns, |r| <= pi / 4 and a little, for x >= 0.

    r is NaN for infinity.
    """
    float_format = format_of(x)
    branch = Branch(x > USUAL[float_format.digits])
    with x.build.into(branch.rare):
        huge, quarters = _reduced_huge(float_format, x)
    with x.build.into(branch.usual):
        usual, count = _reduced_usual(float_format, x)
    high, low, q = branch.merge([huge.high, huge.low, quarters], [usual.high, usual.low, count])
    return Double(high, low), q


def _reduced_usual(float_format: Format, x: Number) -> tuple[Double, Number]:
    whole, n = float_format.nearest(x * table.TWO_OVER_PI[float_format.digits][0])
    first, second, third, fourth = table.HALF_PI_PARTS[float_format.digits]
    left = (x - whole * first) - whole * second
    part = whole * third
    high = left - part
    low = ((left - high) - part) - whole * fourth
    return Double(high, low), n.read_as(float_format.word)


def _reduced_huge(float_format: Format, x: Number) -> tuple[Double, Number]:
    high, low = turns_f32(x) if float_format.digits == 24 else _turns_f64(*_parts(x))
    quarters = (high + (1 << 61)) >> 62
    high, low = (high << 2) | (low >> 62), low << 2
    fraction = _as_double(float_format, high, low)
    undefined = x - x  # zero, or NaN for infinity
    r = normalised(times_pair(fraction, *table.HALF_PI[float_format.digits]))
    return Double(r.high + undefined, r.low), quarters.to(float_format.word)


def _parts(x: Number) -> tuple[Number, Number]:
    """The significand, an integer, and the exponent of a positive number."""
    float_format = format_of(x)
    word, one = x.read_as(float_format.word), 1 << float_format.fraction
    return (word & (one - 1)) | one, word >> float_format.fraction


def _window(offset: Number, first: int, words: int, steps: int) -> list[Number]:
    """Words of 2 / pi from bit ``offset`` on; bit 0 stands ``first`` before the point.

    The words to begin with are found by halving: a selection for each bit of their number.
    """
    size = offset.type.bits
    total, digits = words + (1 << steps), size.bit_length() - 1
    bits = table.TWO_OVER_PI_WORD >> (table.TWO_OVER_PI_BITS + first - size * total)
    mask = (1 << size) - 1
    found = [offset.lift((bits >> size * k) & mask) for k in reversed(range(total))]
    for step in reversed(range(steps)):
        is_set = ((offset >> (digits + step)) & 1).differs(0)
        kept = words + (1 << step)
        found = [select(is_set, found[k + (1 << step)], found[k]) for k in range(kept)]
    shift = offset & (size - 1)
    rest, pairs = (shift ^ (size - 1)) & (size - 1), itertools.pairwise(found)
    return [(left << shift) | ((right >> 1) >> rest) for left, right in pairs]


def turns_f32(x: Number, word: DType = u64) -> tuple[Number, Number]:
    """The fraction of a turn of an f32 of 32 or more, as two words of 64 bits.

    Most of its integers have the type ``word``: u32 is for machines that take 64 bits by halves.
    """
    lead = 20
    significand, exponent = _parts(x)
    offset = exponent.to(word) - (152 - lead)
    if word is u64:
        head, tail = _window(offset, lead, 2, 1)
        limbs = [head >> 32, head & _LOW, tail >> 32]
    else:
        limbs = [limb.to(u64) for limb in _window(offset, lead, 3, 2)]
    first, second, third = (significand.to(u64) * limb for limb in limbs)
    product = (first << 32) + second + (third >> 32)
    return product, product.lift(0)


def _turns_f64(significand: Number, exponent: Number) -> tuple[Number, Number]:
    """The fraction of a turn of significand * 2**(exponent - 1075), as two words of 64 bits."""
    lead = 40
    words = _window(exponent - (1077 - lead), lead, 3, 4)
    limbs = [half for word in words for half in (word >> 32, word & _LOW)]
    low, high = significand & _LOW, significand >> 32
    lows = [low * limb for limb in limbs[:5]]
    highs = [high * limb for limb in limbs[1:]]
    columns = [
        (lows[c] & _LOW) + (lows[c + 1] >> 32) + (highs[c] & _LOW) + (highs[c + 1] >> 32)
        for c in range(4)
    ]
    second = columns[2] + (columns[3] >> 32)
    first = columns[0] + ((columns[1] + (second >> 32)) >> 32)
    upper = (first << 32) | ((columns[1] + (second >> 32)) & _LOW)
    return upper, (second << 32) | (columns[3] & _LOW)


def _as_double(float_format: Format, high: Number, low: Number) -> Double:
    """The signed fraction high:low * 2**-128 as a sum of floats, by three exact pieces."""
    signed = high.read_as(i64)
    if float_format.digits == 24:
        exponents = (22, 44, 64)
        pieces = [signed >> 42, (signed >> 20) & ((1 << 22) - 1), signed & ((1 << 20) - 1)]
    else:
        exponents = (53, 106, 128)
        middle = ((high & ((1 << 11) - 1)) << 42) | (low >> 22)
        pieces = [signed >> 11, middle.read_as(i64), (low & ((1 << 22) - 1)).read_as(i64)]
    first, second, third = (
        piece.to(float_format.dtype) * 2.0**-exponent
        for piece, exponent in zip(pieces, exponents, strict=True)
    )
    head = quick_sum(first, second)
    return quick_sum(head.high, head.low + third)
