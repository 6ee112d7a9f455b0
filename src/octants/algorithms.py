"""Algorithms over whole arrays, to be called at the top level of kernels.

Each is a sequence of parallel loops: called inside of another loop it still is right, but runs in
order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octants.diagnostics.absent_names import attribute_error
from octants.lang.functions import bit_cast
from octants.lang.functions import min as smaller
from octants.lang.functions import select as choose
from octants.lang.marker import library_function
from octants.lang.syntax import static, static_assert
from octants.types.annotations import CompileTime
from octants.types.scalars import f32, f64, i32, i64, u32, u64

__all__ = ["sort", "sort_scratch_slots"]

_DIGITS = 256  # values of the eight bits by which a pass sorts
_CHUNK = 1024  # keys that one work item counts and moves, in order
_UNSIGNED = {u32: u32, i32: u32, f32: u32, u64: u64, i64: u64, f64: u64}
_TOP_BITS = {u32: 1 << 31, u64: 1 << 63}


def sort_scratch_slots(n: int, log256_max_n: int | None = None) -> int:  # noqa: ARG001
    """The length of the array of u32 that `sort` needs as its scratch for ``n`` keys.

    Args:
        n: the most keys that are sorted, at least 0.
        log256_max_n: accepted for Quadrants' sake; the need depends on ``n`` alone.
    """
    return int(_DIGITS * (_chunks(n) + 1))


@library_function
def _chunks(n: Any) -> Any:
    """How many chunks hold ``n`` keys."""
    return (n + (_CHUNK - 1)) // _CHUNK


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

    A radix sort of eight bits a pass. Floats come in the order of `numpy.sort`, except that -0.0 is
    below 0.0, and a NaN with the sign bit below all numbers.

    Args:
        keys: a field or an array of ``key_dtype`` with one axis.
        tmp_keys: another one like ``keys``, which is overwritten.
        values: an array of one axis, whose elements are moved as the keys are; without
            ``has_values``, anything.
        tmp_values: another one like ``values``, which is overwritten.
        scratch: u32, of one axis, with at least `sort_scratch_slots` elements; overwritten.
        n: the number of keys, an array of i32 with shape ().
        key_dtype: u32, i32, f32, u64, i64 or f64.
        has_values: whether there are values.
        end_bit: how many of the lowest bits decide, a multiple of 16: all bits of a key, or fewer
            where it is known that unsigned keys differ in no others.
        log256_max_n: accepted for Quadrants' sake, and not needed.
    """
    static_assert(key_dtype in _UNSIGNED, "`key_dtype` is a type of 32 or 64 bits")
    static_assert(end_bit in (16, 32, 48, 64), "`end_bit` is a multiple of 16, up to 64")
    for double in static(range(end_bit // 16)):
        _pass(keys, tmp_keys, values, tmp_values, scratch, n, key_dtype, has_values, 16 * double)
        _pass(
            tmp_keys, keys, tmp_values, values, scratch, n, key_dtype, has_values, 16 * double + 8
        )


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
    shift: CompileTime,
) -> None:
    """Sort by eight bits: what has the same bits stays in order."""
    for chunk in range(_chunks(n[None])):
        first = chunk * _DIGITS
        for digit in range(_DIGITS):
            scratch[first + digit] = u32(0)
        for i in range(chunk * _CHUNK, smaller((chunk + 1) * _CHUNK, n[None])):
            digit = first + _digit(keys[i], key_dtype, shift)
            scratch[digit] = scratch[digit] + u32(1)
    for digit in range(_DIGITS):  # where the keys of each chunk begin among those of a digit
        total = u32(0)
        for chunk in range(_chunks(n[None])):
            count = scratch[chunk * _DIGITS + digit]
            scratch[chunk * _DIGITS + digit] = total
            total += count
        scratch[_chunks(n[None]) * _DIGITS + digit] = total
    for _ in range(1):  # and where those of a digit begin
        start = u32(0)
        for digit in range(_DIGITS):
            place = _chunks(n[None]) * _DIGITS + digit
            count = scratch[place]
            scratch[place] = start
            start += count
    for chunk in range(_chunks(n[None])):
        for i in range(chunk * _CHUNK, smaller((chunk + 1) * _CHUNK, n[None])):
            digit = _digit(keys[i], key_dtype, shift)
            count = scratch[chunk * _DIGITS + digit]
            scratch[chunk * _DIGITS + digit] = count + u32(1)
            target = int(scratch[_chunks(n[None]) * _DIGITS + digit] + count)
            sorted_keys[target] = keys[i]
            if static(has_values):
                sorted_values[target] = values[i]


@library_function
def _digit(key: Any, key_dtype: CompileTime, shift: CompileTime) -> Any:
    """Eight bits of a number that is unsigned and in the same order as the keys."""
    bits = bit_cast(key, _UNSIGNED[key_dtype])
    top = _UNSIGNED[key_dtype](_TOP_BITS[_UNSIGNED[key_dtype]])
    if static(key_dtype in (i32, i64)):
        bits ^= top
    if static(key_dtype in (f32, f64)):
        bits ^= choose((bits & top) != 0, ~_UNSIGNED[key_dtype](0), top)
    return int((bits >> shift) & 255)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        raise attribute_error(__name__, name)
