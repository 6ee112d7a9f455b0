"""f16: 16 bits in memory, in a register an f32 that holds one of its values.

All by integers and f32: no machine needs to know the type, and all of them round alike.
"""

from __future__ import annotations

from octants.codegen.code import Code, Operand
from octants.types.scalars import f32, u32

_SIGN, _SIZE = 0x8000, 0x7FFFFFFF
_SMALLEST_NORMAL = 0x38800000  # 2**-14 as f32
_OVERFLOW = 0x477FF000  # from here on numbers round to infinity
_INFINITY = 0x7F800000


def round_float(code: Code, x: Operand) -> Operand:
    """The value of f16 nearest to an f32, even at a tie."""
    return from_bits(code, to_bits(code, x))


def to_bits(code: Code, x: Operand) -> Operand:
    """The 16 bits of the nearest f16, as u32."""
    return code.call("half.bits", [f32], u32, _narrow, [x])


def from_bits(code: Code, bits: Operand) -> Operand:
    """The f32 of 16 bits in a u32."""
    return code.call("half.value", [u32], f32, _widen, [bits])


def _u32(code: Code, fn: str, a: Operand, b: int) -> Operand:
    return code.apply(fn, u32, a, code.constant(b, u32))


def _narrow(code: Code, operands: list[Operand]) -> Operand:
    """Adding a half lets the machine round to 2**-24, for subnormals; else by integers."""
    bits = code.bitcast(operands[0], f32, u32)
    sign = _u32(code, "and", _u32(code, "ushr", bits, 16), _SIGN)
    size = _u32(code, "and", bits, _SIZE)
    half = code.constant(0.5, f32)
    shifted = code.apply("add", f32, code.bitcast(size, u32, f32), half)
    small = _u32(code, "sub", code.bitcast(shifted, f32, u32), 0x3F000000)
    odd = _u32(code, "and", _u32(code, "ushr", size, 13), 1)
    raised = _u32(code, "sub", size, 0x38000000 - 0xFFF)
    normal = _u32(code, "ushr", code.apply("add", u32, raised, odd), 13)
    is_small = code.compare("lt", u32, size, code.constant(_SMALLEST_NORMAL, u32))
    finite = code.choose(is_small, u32, small, normal)
    is_large = code.compare("ge", u32, size, code.constant(_OVERFLOW, u32))
    capped = code.choose(is_large, u32, code.constant(0x7C00, u32), finite)
    is_nan = code.compare("gt", u32, size, code.constant(_INFINITY, u32))
    payload = _u32(code, "or", _u32(code, "and", _u32(code, "ushr", size, 13), 0x3FF), 0x7E00)
    return code.apply("or", u32, sign, code.choose(is_nan, u32, payload, capped))


def _widen(code: Code, operands: list[Operand]) -> Operand:
    """Subnormals by way of an integer, since machines may take those of f32 for zero."""
    (bits,) = operands
    sign = _u32(code, "shl", _u32(code, "and", bits, _SIGN), 16)
    rest = _u32(code, "and", bits, 0x7FFF)
    moved = _u32(code, "shl", rest, 13)
    normal = _u32(code, "add", moved, 112 << 23)
    special = _u32(code, "or", moved, _INFINITY)
    scale = code.constant(2.0**-24, f32)
    tiny = code.bitcast(code.apply("mul", f32, code.convert(rest, u32, f32), scale), f32, u32)
    is_special = code.compare("ge", u32, rest, code.constant(0x7C00, u32))
    is_tiny = code.compare("lt", u32, rest, code.constant(0x400, u32))
    size = code.choose(is_tiny, u32, tiny, code.choose(is_special, u32, special, normal))
    return code.bitcast(code.apply("or", u32, size, sign), u32, f32)
