"""Random draws as functions of random bits."""

from __future__ import annotations

from octants.ir.philox import digits
from octants.mathlib.number import Number
from octants.types.scalars import DType, f16, f32, f64, u1, u32, u64


def drawn(bits: Number, dtype: DType) -> Number:
    """The uniform number of a type that 64 random bits stand for, as `ir.philox.draw` has it.

    The low word leads: its highest bits are the first digits of a float.
    """
    low = bits.to(u32)
    if dtype is u1:
        return (low & 1).differs(0)
    if not dtype.is_float:
        return bits.to(dtype)
    if dtype is f64:
        leading = ((bits & 0xFFFFFFFF) << 21) ^ bits.apply("ushr", 43)
        return leading.to(f64) * 2.0**-53
    number = low.apply("ushr", 32 - digits(dtype)).to(f32) * 2.0 ** -digits(dtype)
    return number.to(f16) if dtype is f16 else number


def bits_at(draw: Number, item: Number, task: int, seed: Number, launch: Number) -> Number:
    """The random bits of a position."""
    build = draw.build
    given = [draw.to(u32), item.to(u64), draw.to(u32).lift(task & 0xFFFFFFFF), seed, launch]
    return Number(build, build.call("random_bits", [each.value for each in given], u64))
