"""From one scalar type to another, as `types.scalars.convert` defines it."""

from __future__ import annotations

from octants.mathlib.ir_number import Number, select
from octants.types.scalars import DType, f16, f32, f64, i32, integer_range, u1, u32


def convert(x: Number, target: DType) -> Number:
    """A number as another type, by casts that machines have: integers wrap, floats saturate."""
    source = x.type
    if target is u1:
        return x.differs(0)
    if f16 in (source, target):
        return (to_odd(x) if source is f64 else x.to(f32)).to(target)
    if source.is_float:
        return saturated(x, target)
    return x.to(_at_least_32(source)).to(target)


def _at_least_32(dtype: DType) -> DType:
    if dtype.bits >= 32:
        return dtype
    return i32 if dtype.is_signed else u32


def saturated(x: Number, target: DType) -> Number:
    """Truncated; the ends of the range beyond them, and 0 for a NaN."""
    least, greatest = integer_range(target)
    low, limit = float(least), float(greatest + 1)
    inside = (x > low) & (x < limit)
    safe = select(inside, x, 0.0)
    found = Number(x.build, x.build.float_to_int(safe.value, _at_least_32(target))).to(target)
    outside = select(x <= low, found.lift(least), 0)
    outside = select(x >= limit, found.lift(greatest), outside)
    return select(inside, found, outside)


def to_odd(x: Number) -> Number:
    """An f32 that rounds to the f16 of an f64: truncated, its last bit says inexact.

    After Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", 2008.
    """
    near = x.to(f32)
    back = near.to(f64)
    bits = near.read_as(u32)
    cut = select(abs(back) > abs(x), bits - 1, bits)
    is_inexact = (back < x) | (back > x)
    return select(is_inexact, cut | 1, bits).read_as(f32)
