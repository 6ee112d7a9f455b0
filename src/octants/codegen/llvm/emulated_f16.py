"""Emulate f16: 16 bits in memory, a `float` with the same value in a register.

Machines with conversion instructions convert through LLVM's `half`. For others LLVM would call the
compiler's run-time library, which a process may lack, so they call functions of Octants.
"""

from __future__ import annotations

from octants.codegen.llvm import math_functions
from octants.codegen.llvm.function_text import FunctionText
from octants.mathlib.function_registry import function
from octants.types.scalars import f32, u32


def to_bits(f: FunctionText, x: str) -> str:
    """Return the memory format of a `float`: `half`, or i16 on machines without it."""
    if f.machine.has_half:
        return f.convert("fptrunc", "float", x, "half")
    bits = math_functions.call_function(f, function("half_bits", f32), [x])
    return f.convert("trunc", "i32", bits, "i16")


def from_bits(f: FunctionText, bits: str) -> str:
    """Return the `float` of a number in memory format."""
    if f.machine.has_half:
        return f.convert("fpext", "half", bits, "float")
    wide = f.convert("zext", "i16", bits, "i32")
    return math_functions.call_function(f, function("half_value", u32), [wide])


def stored_type(f: FunctionText) -> str:
    """Return the LLVM type of an f16 in memory."""
    return "half" if f.machine.has_half else "i16"


def to_integer(f: FunctionText, x: str) -> str:
    """Return the 16 bits as an i16."""
    bits = to_bits(f, x)
    return f.convert("bitcast", "half", bits, "i16") if f.machine.has_half else bits


def from_integer(f: FunctionText, x: str) -> str:
    """Return the `float` of 16 bits in an i16."""
    return from_bits(f, f.convert("bitcast", "i16", x, "half") if f.machine.has_half else x)
