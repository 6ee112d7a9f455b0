"""Numbers as bits in words: u64 for 64 bits, else u32. Narrow ones are the low bits."""

from __future__ import annotations

from octants.codegen.instruction_writer import Code, Operand
from octants.types.scalars import DType, f16, u1, u32, u64


def word_of(dtype: DType) -> DType:
    """Return the type of the word that holds a number."""
    return u64 if dtype.bits == 64 else u32


def to_word(code: Code, dtype: DType, number: Operand) -> Operand:
    """Return a number's bits, zero-extended to a word."""
    if dtype.bits >= 32:
        return code.bitcast(number, dtype, word_of(dtype))
    if dtype is f16:
        return code.half_bits(number)
    wide = code.convert(number, dtype, u32)
    return code.apply("and", u32, wide, code.constant((1 << max(8, dtype.bits)) - 1, u32))


def from_word(code: Code, dtype: DType, word: Operand) -> Operand:
    """Return the number in the low bits of a word."""
    if dtype.bits >= 32:
        return code.bitcast(word, word_of(dtype), dtype)
    if dtype is f16:
        mask = code.constant(0xFFFF, u32)
        return code.half_value(code.apply("and", u32, word, mask))
    if dtype is u1:
        byte = code.apply("and", u32, word, code.constant(0xFF, u32))
        return code.compare("ne", u32, byte, code.constant(0, u32))
    return code.convert(word, u32, dtype)
