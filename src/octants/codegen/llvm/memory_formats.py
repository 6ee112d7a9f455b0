"""Convert between the formats of values in memory and in registers."""

from __future__ import annotations

from octants.codegen.llvm import emulated_f16
from octants.codegen.llvm import types_and_literals as names
from octants.codegen.llvm.function_text import FunctionText
from octants.types.scalars import DType, f16, u1


def memory_type(f: FunctionText, dtype: DType) -> str:
    """Return the LLVM type of a value in memory."""
    return emulated_f16.stored_type(f) if dtype is f16 else names.MEMORY[dtype]


def from_memory(f: FunctionText, dtype: DType, stored: str) -> str:
    """Convert a stored value to its register format."""
    if dtype is u1:
        return f.apply("icmp ne", "i8", stored, "0")
    return emulated_f16.from_bits(f, stored) if dtype is f16 else stored


def to_memory(f: FunctionText, dtype: DType, value: str) -> str:
    """Convert a value to its memory format."""
    if dtype is u1:
        return f.convert("zext", "i1", value, "i8")
    return emulated_f16.to_bits(f, value) if dtype is f16 else value
