"""Packs the numbers of quantised types in words: as code, or at once, on the host.

All functions take a builder: that of the intermediate representation, or one that computes with
numpy arrays. A word is of an unsigned type of 32 or 64 bits.

- Integers wrap.
- Fixed-point numbers become the nearest multiple (halves away from zero) of those that there are.
- Floats lose digits by rounding (halves away from zero). One below the least positive number
  becomes zero, one above the greatest becomes that. Only an exponent of 8 bits has infinities and
  NaNs; elsewhere NaN becomes zero.
- Floats that share an exponent have that of the largest of them, and digits with the leading one.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from octants.types.quantised_types import BitPosition, Packing, QuantFixed, QuantFloat
from octants.types.scalars import DType, by_name, f32, i32, i64, u32

_MANTISSA = 23
_INFINITY = 0x7F800000


def load(build: Any, slot: BitPosition, word: Any) -> Any:
    """The number that a word has in a slot, of the type that the slot's kind loads as."""
    kind = slot.kind
    raw = _bits(build, word, slot.first, slot.width)
    if isinstance(kind, QuantFloat):
        exponent = build.cast(_bits(build, word, slot.exponent, kind.exponent), i32)
        digits = build.cast(raw, u32)
        decode = _shared_float if slot.group else _float
        return decode(build, kind, exponent, digits)
    number = _integer(build, raw, slot.width, kind.signed)
    if isinstance(kind, QuantFixed):
        whole = build.cast(number, kind.dtype)
        return build.binary("mul", whole, build.constant(kind.scale, kind.dtype))
    return build.cast(number, kind.dtype)


def store(
    build: Any, packing: Packing, slots: Sequence[BitPosition], word: Any, numbers: Sequence[Any]
) -> Any:
    """The word with other numbers in some slots, at once where they share an exponent."""
    groups: dict[int, dict[BitPosition, Any]] = {}
    for slot, number in zip(slots, numbers, strict=True):
        if slot.group:
            groups.setdefault(slot.group, {})[slot] = number
        else:
            word = _store_one(build, slot, word, number)
    for changed in groups.values():
        word = _store_shared(build, packing, changed, word)
    return word


def _store_one(build: Any, slot: BitPosition, word: Any, number: Any) -> Any:
    kind = slot.kind
    if isinstance(kind, QuantFloat):
        exponent, digits = _float_bits(build, kind, number)
        word = _with_bits(build, word, slot.exponent, kind.exponent, exponent)
        return _with_bits(build, word, slot.first, slot.width, digits)
    if isinstance(kind, QuantFixed):
        number = _clamped(build, _nearest(build, kind, number), *_range(kind))
    return _with_bits(build, word, slot.first, slot.width, number)


def add(build: Any, packing: Packing, slot: BitPosition, word: Any, number: Any) -> Any:
    """The word with a number added to that of a slot."""
    kind = slot.kind
    if not isinstance(kind, QuantFixed):
        total = build.binary("add", load(build, slot, word), number)
        return store(build, packing, [slot], word, [total])
    wide = i32 if kind.bits < 30 else i64
    old = _integer(build, _bits(build, word, slot.first, slot.width), slot.width, kind.signed)
    steps = build.cast(_nearest(build, kind, number), wide)
    steps = _clamped(build, steps, -(1 << kind.bits), 1 << kind.bits)
    total = build.binary("add", build.cast(old, wide), steps)
    new = _clamped(build, total, *_range(kind))
    return _with_bits(build, word, slot.first, slot.width, new)


# -- bits ------------------------------------------------------------------------------------------


def _bits(build: Any, word: Any, first: int, width: int) -> Any:
    """Some bits of a word, as an unsigned number of its type."""
    moved = build.binary("ushr", word, build.constant(first, word.type)) if first else word
    if first + width == word.type.bits:
        return moved
    return build.binary("and", moved, build.constant((1 << width) - 1, word.type))


def _with_bits(build: Any, word: Any, first: int, width: int, new: Any) -> Any:
    """The word with others at some of its bits: the lower ones of an integer."""
    dtype, mask = word.type, (1 << width) - 1
    new = build.binary("and", build.cast(new, dtype), build.constant(mask, dtype))
    if first:
        new = build.binary("shl", new, build.constant(first, dtype))
    others = ((1 << dtype.bits) - 1) ^ (mask << first)
    return build.binary("or", build.binary("and", word, build.constant(others, dtype)), new)


def _integer(build: Any, raw: Any, width: int, signed: bool) -> Any:
    """Bits as an integer of the width of their word."""
    if not signed:
        return raw
    dtype = by_name(f"i{raw.type.bits}")
    rest = build.constant(dtype.bits - width, dtype)
    return build.binary("shr", build.binary("shl", build.cast(raw, dtype), rest), rest)


# -- fixed-point numbers ---------------------------------------------------------------------------


def _range(kind: QuantFixed) -> tuple[int, int]:
    if kind.signed:
        return -(1 << (kind.bits - 1)), (1 << (kind.bits - 1)) - 1
    return 0, (1 << kind.bits) - 1


def _nearest(build: Any, kind: QuantFixed, number: Any) -> Any:
    """How many times a float has the scale, rounded; limited to the range of an integer type."""
    dtype = kind.dtype
    factor = build.constant(1 / dtype(kind.scale), dtype)
    count = build.binary("mul", build.cast(number, dtype), factor)
    whole = build.unary("trunc", count)
    rest = build.binary("sub", count, whole)
    half, one, zero = (build.constant(x, dtype) for x in (0.5, 1.0, 0.0))
    is_up = build.compare("ge", rest, half)
    is_down = build.compare("le", rest, build.constant(-0.5, dtype))
    step = build.select(is_up, one, build.select(is_down, build.unary("neg", one), zero))
    return build.cast(build.binary("add", whole, step), i32 if kind.bits < 30 else i64)


def _clamped(build: Any, number: Any, low: int, high: int) -> Any:
    limited = build.binary("min", number, build.constant(high, number.type))
    return build.binary("max", limited, build.constant(low, number.type))


# -- floats ----------------------------------------------------------------------------------------


def _constants(build: Any, dtype: DType, *numbers: int) -> list[Any]:
    return [build.constant(number, dtype) for number in numbers]


def _parts(build: Any, kind: QuantFloat, number: Any) -> tuple[Any, Any]:
    """The sign bit of an f32 and its other bits: zero for NaN, and where no sign can be."""
    bits = build.bitcast(build.cast(number, f32), u32)
    low, zero, infinity = _constants(build, u32, 0x7FFFFFFF, 0, _INFINITY)
    sign = build.binary("ushr", bits, build.constant(31, u32))
    size = build.binary("and", bits, low)
    if kind.exponent < 8:
        size = build.select(build.compare("gt", size, infinity), zero, size)
    if not kind.signed:
        size = build.select(build.compare("ne", sign, zero), zero, size)
    return sign, size


def _float_bits(build: Any, kind: QuantFloat, number: Any) -> tuple[Any, Any]:
    """The exponent of a float, and its digits with the sign in front."""
    sign, size = _parts(build, kind, number)
    lost = _MANTISSA - kind.digits
    most, all_digits = (1 << kind.exponent) - 1, (1 << kind.digits) - 1
    rounded = size
    if lost:
        rounded = build.binary("add", size, build.constant(1 << (lost - 1), u32))
    biased = build.cast(build.binary("ushr", rounded, build.constant(_MANTISSA, u32)), i32)
    exponent = build.binary("sub", biased, build.constant(kind.offset, i32))
    digits = build.binary("ushr", rounded, build.constant(lost, u32)) if lost else rounded
    full = build.constant(all_digits, u32)
    digits = build.binary("and", digits, full)
    if kind.exponent < 8:
        is_large = build.compare("gt", exponent, build.constant(most, i32))
    else:
        is_large = build.compare("gt", size, build.constant(_INFINITY, u32))  # NaN
    exponent = build.select(is_large, build.constant(most, i32), exponent)
    digits = build.select(is_large, full, digits)
    is_zero = build.compare("le", exponent, build.constant(0, i32))
    if kind.signed:
        moved = build.binary("shl", sign, build.constant(kind.digits, u32))
        digits = build.binary("or", digits, moved)
    exponent = build.select(is_zero, build.constant(0, i32), exponent)
    return exponent, build.select(is_zero, build.constant(0, u32), digits)


def _float(build: Any, kind: QuantFloat, exponent: Any, digits: Any) -> Any:
    """The f32 of an exponent and digits."""
    biased = build.binary("add", exponent, build.constant(kind.offset, i32))
    bits = build.binary("shl", build.cast(biased, u32), build.constant(_MANTISSA, u32))
    fraction = build.binary("and", digits, build.constant((1 << kind.digits) - 1, u32))
    lost = build.constant(_MANTISSA - kind.digits, u32)
    bits = build.binary("or", bits, build.binary("shl", fraction, lost))
    bits = build.binary("or", bits, _sign_bit(build, kind, digits))
    is_zero = build.compare("eq", exponent, build.constant(0, i32))
    return build.bitcast(build.select(is_zero, build.constant(0, u32), bits), f32)


def _sign_bit(build: Any, kind: QuantFloat, digits: Any) -> Any:
    """The sign in front of digits as the first bit of an f32."""
    if not kind.signed:
        return build.constant(0, u32)
    sign = build.binary("ushr", digits, build.constant(kind.digits, u32))
    return build.binary("shl", sign, build.constant(31, u32))


# -- shared exponents ------------------------------------------------------------------------------


def _shared_float(build: Any, kind: QuantFloat, exponent: Any, digits: Any) -> Any:
    """The f32 of digits with their leading one, where that is, and an exponent.

    Its power of two is a product of two: a single one may be too small for an f32.
    """
    fraction = build.binary("and", digits, build.constant((1 << kind.digits) - 1, u32))
    power = build.constant(kind.offset - 127 - (kind.digits - 1), i32)
    power = build.binary("add", exponent, power)
    first = build.binary("shr", power, build.constant(1, i32))
    size = build.cast(fraction, f32)
    for half in (first, build.binary("sub", power, first)):
        size = build.binary("mul", size, _power_of_two(build, half))
    bits = build.binary("or", build.bitcast(size, u32), _sign_bit(build, kind, digits))
    is_zero = build.compare("eq", fraction, build.constant(0, u32))
    return build.bitcast(build.select(is_zero, build.constant(0, u32), bits), f32)


def _power_of_two(build: Any, power: Any) -> Any:
    biased = build.cast(build.binary("add", power, build.constant(127, i32)), u32)
    return build.bitcast(build.binary("shl", biased, build.constant(_MANTISSA, u32)), f32)


def _store_shared(build: Any, packing: Packing, changed: dict[BitPosition, Any], word: Any) -> Any:
    """The word with other numbers in slots of a group: all numbers of the group change digits."""
    slot = next(iter(changed))
    group, kind = packing.group(slot), slot.kind
    assert isinstance(kind, QuantFloat)
    numbers = [changed[each] if each in changed else load(build, each, word) for each in group]
    parts = [_parts(build, _float_kind(each), x) for each, x in zip(group, numbers, strict=True)]
    exponents = [_exponent(build, kind, size) for _, size in parts]
    most = (1 << kind.exponent) - 1 - (kind.exponent == 8)
    largest = functools.reduce(functools.partial(build.binary, "max"), exponents)
    shared = _clamped(build, largest, 0, most)
    word = _with_bits(build, word, slot.exponent, kind.exponent, shared)
    for each, part, exponent in zip(group, parts, exponents, strict=True):
        digits = _shared_digits(build, _float_kind(each), part, exponent, shared)
        word = _with_bits(build, word, each.first, each.width, digits)
    return word


def _float_kind(slot: BitPosition) -> QuantFloat:
    assert isinstance(slot.kind, QuantFloat)
    return slot.kind


def _exponent(build: Any, kind: QuantFloat, size: Any) -> Any:
    """The exponent of a number as the group has it; not positive for zero."""
    biased = build.cast(build.binary("ushr", size, build.constant(_MANTISSA, u32)), i32)
    return build.binary("sub", biased, build.constant(kind.offset, i32))


def _shared_digits(build: Any, kind: QuantFloat, part: Any, exponent: Any, shared: Any) -> Any:
    """The sign and the digits of a number for the exponent of its group."""
    sign, size = part
    zero, full = _constants(build, u32, 0, (1 << kind.digits) - 1)
    fraction = build.binary("and", size, build.constant((1 << _MANTISSA) - 1, u32))
    fraction = build.binary("or", fraction, build.constant(1 << _MANTISSA, u32))
    doubled = build.binary("shl", fraction, build.constant(1, u32))
    shift = build.binary("sub", shared, exponent)
    shift = build.binary("add", shift, build.constant(_MANTISSA + 1 - kind.digits, i32))
    shift = build.cast(_clamped(build, shift, 0, 31), u32)
    halves = build.binary("ushr", doubled, shift)
    rounded = build.binary("add", halves, build.constant(1, u32))
    digits = build.binary("ushr", rounded, build.constant(1, u32))
    digits = build.binary("min", digits, full)
    digits = build.select(build.compare("gt", exponent, shared), full, digits)
    if kind.signed:
        moved = build.binary("shl", sign, build.constant(kind.digits, u32))
        digits = build.binary("or", digits, moved)
    tiny = build.compare("le", exponent, build.constant(-kind.offset, i32))
    none = build.compare("le", shared, build.constant(0, i32))
    return build.select(build.binary("or", tiny, none), zero, digits)
