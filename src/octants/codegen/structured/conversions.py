"""From one scalar type to another, as `types.scalars.convert` defines it."""

from __future__ import annotations

from octants.codegen.code import Code, Operand
from octants.codegen.structured import halves
from octants.codegen.structured.body import register
from octants.types.scalars import DType, f16, f32, f64, i32, integer_range, u1, u32


def convert(code: Code, x: Operand, source: DType, target: DType) -> Operand:
    """A number as another type: integers wrap, floats are rounded, or saturate."""
    if source is target:
        return x
    if target is u1:
        kind = register(source)
        return code.compare("ne", kind, x, code.constant(0, kind))
    if source.is_float:
        return _from_float(code, x, source, target)
    if target.is_float:
        wide = _at_least_32(source)
        number = code.convert(code.convert(x, source, wide), wide, register(target))
        return halves.round_float(code, number) if target is f16 else number
    return code.convert(x, source, target)


def _at_least_32(dtype: DType) -> DType:
    if dtype.bits >= 32:
        return dtype
    return i32 if dtype.is_signed else u32


def _from_float(code: Code, x: Operand, source: DType, target: DType) -> Operand:
    if not target.is_float:
        return _saturate(code, x, register(source), target)
    if target is not f16:
        return code.convert(x, register(source), target)
    return halves.round_float(code, _round_to_odd(code, x) if source is f64 else x)


def _saturate(code: Code, x: Operand, source: DType, target: DType) -> Operand:
    """Truncated; the ends of the range beyond them, and 0 for a NaN."""
    least, greatest = integer_range(target)
    wide = _at_least_32(target)
    low, limit = code.constant(float(least), source), code.constant(float(greatest + 1), source)
    above_low = code.compare("gt", source, x, low)
    below_limit = code.compare("lt", source, x, limit)
    inside = code.apply("and", u1, above_low, below_limit)
    safe = code.choose(inside, source, x, code.constant(0.0, source))
    found = code.convert(code.convert(safe, source, wide), wide, target)
    is_low = code.compare("le", source, x, low)
    outside = code.choose(is_low, target, code.constant(least, target), code.constant(0, target))
    is_high = code.compare("ge", source, x, limit)
    outside = code.choose(is_high, target, code.constant(greatest, target), outside)
    return code.choose(inside, target, found, outside)


def _round_to_odd(code: Code, x: Operand) -> Operand:
    """An f32 that rounds to the f16 of an f64: truncated, its last bit says inexact.

    After Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", 2008.
    """
    near = code.convert(x, f64, f32)
    back = code.convert(near, f32, f64)
    below = code.compare("lt", f64, back, x)
    above = code.compare("gt", f64, back, x)
    beyond = code.compare("gt", f64, code.apply("abs", f64, back), code.apply("abs", f64, x))
    bits, one = code.bitcast(near, f32, u32), code.constant(1, u32)
    cut = code.choose(beyond, u32, code.apply("sub", u32, bits, one), bits)
    odd = code.apply("or", u32, cut, one)
    inexact = code.apply("or", u1, below, above)
    return code.bitcast(code.choose(inexact, u32, odd, bits), u32, f32)


def bitcast(code: Code, x: Operand, source: DType, target: DType) -> Operand:
    """An f16 goes through its 16 bits, because its register has 32."""
    if source is target or f16 not in (source, target):
        return x if source is target else code.bitcast(x, source, target)
    if source is f16:
        return code.convert(halves.to_bits(code, x), u32, target)
    wide = code.convert(x, source, u32)
    low = code.apply("and", u32, wide, code.constant(0xFFFF, u32))
    return halves.from_bits(code, low)
