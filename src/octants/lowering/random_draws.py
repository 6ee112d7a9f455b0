"""Random streams, and draws as functions of random bits; see `ir.random_draws`."""

from __future__ import annotations

from octants.ir.random_draws import GAMMA, LAST_SHIFT, MIXING, digits
from octants.mathlib.ir_number import Number
from octants.types.scalars import DType, f16, f32, f64, u1, u32, u64


def stream(item: Number, task: int, seed: Number, launch: Number) -> Number:
    """The stream of a work item."""
    given = [item.to(u64), seed.lift(task & 0xFFFFFFFF), seed, launch]
    build = seed.build
    return Number(build, build.call("random_stream", [each.value for each in given], u64))


def drawn(stream: Number, draw: Number, dtype: DType) -> Number:
    """The uniform random number of a type at position ``draw`` of a stream."""
    bits = _bits(stream, draw)
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


def _bits(stream: Number, draw: Number) -> Number:
    mixed = stream + draw.to(u32).to(u64) * GAMMA
    for shift, factor in MIXING:
        mixed = (mixed ^ mixed.apply("ushr", shift)) * factor
    return mixed ^ mixed.apply("ushr", LAST_SHIFT)
