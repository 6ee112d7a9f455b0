"""Sorting by radix, eight bits a pass: the order is that of `numpy.sort`, and stable."""

from __future__ import annotations

from typing import Any

from octants.algorithms.chunks import count_of, last_of, size_of
from octants.lang.directives import static, static_assert
from octants.lang.library_function_marks import library_function
from octants.lang.scalar_functions import bit_cast
from octants.lang.scalar_functions import select as choose
from octants.types.parameter_annotations import CompileTime
from octants.types.scalars import f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64

_DIGITS = 256  # values of the eight bits by which a pass sorts
_FLOATS = {f16: u16, f32: u32, f64: u64}
_SIGNED = {i8: u8, i16: u16, i32: u32, i64: u64}
_UNSIGNED = {**_FLOATS, **_SIGNED, u8: u8, u16: u16, u32: u32, u64: u64}
_INFINITY = {f16: 0x7C00, f32: 0x7F800000, f64: 0x7FF0000000000000}
_TOP_BITS = {u8: 1 << 7, u16: 1 << 15, u32: 1 << 31, u64: 1 << 63}

BITS = {i8: 16, u8: 16, i16: 16, u16: 16, f16: 16, i32: 32, u32: 32, f32: 32} | dict.fromkeys(
    (i64, u64, f64), 64
)
"""The types of keys, and the ``end_bit`` by which all their bits decide."""


@library_function
def sort_scratch_slots(n: Any, log256_max_n: CompileTime = None) -> Any:  # noqa: ARG001
    """The length of the array of u32 that `sort` needs as its scratch for ``n`` keys.

    Args:
        n: the most keys that are sorted, at least 0.
        log256_max_n: accepted for Quadrants' sake; the need depends on ``n`` alone.
    """
    return _DIGITS * (count_of(n) + 1)


@library_function
def sort(
    keys: Any,
    tmp_keys: Any,
    values: Any,
    tmp_values: Any,
    scratch: Any,
    n: Any,
    key_dtype: CompileTime,
    has_values: CompileTime,
    end_bit: CompileTime,
    log256_max_n: CompileTime = None,  # noqa: ARG001
) -> None:
    """Sort the first ``n[None]`` keys in ascending order, and values along with them; stable.

    A radix sort of eight bits a pass. The order is that of `numpy.sort`: NaN comes last, and -0.0
    and 0.0 are equal.

    Example::

        n = 1000
        keys, tmp_keys = qd.ndarray(qd.f32, n), qd.ndarray(qd.f32, n)
        values, tmp_values = qd.ndarray(qd.i32, n), qd.ndarray(qd.i32, n)
        scratch = qd.ndarray(qd.u32, qd.algorithms.sort_scratch_slots(n))
        count = qd.ndarray(qd.i32, ())
        count[None] = n

        @qd.kernel
        def sort_all(
            keys: qd.types.ndarray(), tmp_keys: qd.types.ndarray(), values: qd.types.ndarray(),
            tmp_values: qd.types.ndarray(), scratch: qd.types.ndarray(), count: qd.types.ndarray(),
        ):
            qd.algorithms.sort(
                keys, tmp_keys, values, tmp_values, scratch, count, qd.f32, True, 32
            )

        sort_all(keys, tmp_keys, values, tmp_values, scratch, count)

    Args:
        keys: a field or an array of ``key_dtype`` with one axis.
        tmp_keys: another one like ``keys``, which is overwritten.
        values: an array of one axis, whose elements are moved as the keys are; without
            ``has_values``, anything.
        tmp_values: another one like ``values``, which is overwritten.
        scratch: u32, of one axis, with at least `sort_scratch_slots` elements; overwritten.
        n: the number of keys, an array of i32 with shape ().
        key_dtype: the type of the keys, an integer or a float.
        has_values: whether there are values.
        end_bit: how many of the lowest bits decide, a multiple of 16: all bits of a key, or fewer
            where it is known that unsigned keys differ in no others. Keys of 8 bits have 16.
        log256_max_n: accepted for Quadrants' sake, and not needed.
    """
    static_assert(key_dtype in BITS, "`key_dtype` is a type of integers or floats")
    static_assert(end_bit in (16, 32, 48, 64), "`end_bit` is a multiple of 16, up to 64")
    for double in static(range(end_bit // 16)):
        sort_by_16_bits(
            keys, tmp_keys, values, tmp_values, scratch, n, key_dtype, has_values, 16 * double
        )


@library_function
def sort_by_16_bits(
    keys: Any,
    tmp_keys: Any,
    values: Any,
    tmp_values: Any,
    scratch: Any,
    n: Any,
    key_dtype: CompileTime,
    has_values: CompileTime,
    bit: Any,
) -> None:
    """Sort by 16 bits from ``bit`` on, which may be known at run time only."""
    _pass(keys, tmp_keys, values, tmp_values, scratch, n, key_dtype, has_values, bit)
    _pass(tmp_keys, keys, tmp_values, values, scratch, n, key_dtype, has_values, bit + 8)


@library_function
def _pass(
    keys: Any,
    sorted_keys: Any,
    values: Any,
    sorted_values: Any,
    scratch: Any,
    n: Any,
    key_dtype: CompileTime,
    has_values: CompileTime,
    shift: Any,
) -> None:
    """Sort by eight bits: what has the same bits stays in order."""
    for chunk in range(count_of(n[None])):
        first = chunk * _DIGITS
        for digit in range(_DIGITS):
            scratch[first + digit] = u32(0)
        for i in range(chunk * size_of(n[None]), last_of(chunk, n[None])):
            digit = first + _digit(keys[i], key_dtype, shift)
            scratch[digit] = scratch[digit] + u32(1)
    for digit in range(_DIGITS):  # where the keys of each chunk begin among those of a digit
        total = u32(0)
        for chunk in range(count_of(n[None])):
            count = scratch[chunk * _DIGITS + digit]
            scratch[chunk * _DIGITS + digit] = total
            total += count
        scratch[count_of(n[None]) * _DIGITS + digit] = total
    for _ in range(1):  # and where those of a digit begin
        start = u32(0)
        for digit in range(_DIGITS):
            slot = count_of(n[None]) * _DIGITS + digit
            count = scratch[slot]
            scratch[slot] = start
            start += count
    for chunk in range(count_of(n[None])):
        for i in range(chunk * size_of(n[None]), last_of(chunk, n[None])):
            digit = _digit(keys[i], key_dtype, shift)
            count = scratch[chunk * _DIGITS + digit]
            scratch[chunk * _DIGITS + digit] = count + u32(1)
            target = int(scratch[count_of(n[None]) * _DIGITS + digit] + count)
            sorted_keys[target] = keys[i]
            if static(has_values):
                sorted_values[target] = values[i]


@library_function
def _digit(key: Any, key_dtype: CompileTime, shift: Any) -> Any:
    """Eight bits of a number that is unsigned and in the same order as the keys."""
    digit = int((_ordered_bits(key, key_dtype) >> shift) & 255)
    if static(key_dtype.bits < 16):  # the second pass by 16 bits has none
        digit = digit if shift == 0 else 0
    return digit


@library_function
def _ordered_bits(key: Any, key_dtype: CompileTime) -> Any:
    unsigned = static(_UNSIGNED[key_dtype])
    bits = bit_cast(key, unsigned)
    top = unsigned(_TOP_BITS[unsigned])
    if static(key_dtype in _SIGNED):
        bits ^= top
    if static(key_dtype in _FLOATS):
        magnitude = bits & ~top
        negative = (bits & top) != 0
        bits ^= choose(negative & (magnitude != 0), ~unsigned(0), top)
        bits = choose(negative & (magnitude == 0), top, bits)
        bits = choose(magnitude > unsigned(_INFINITY[key_dtype]), ~unsigned(0), bits)
    return bits
