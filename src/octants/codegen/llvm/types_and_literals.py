"""LLVM's names of types, and literals.

In a register a u1 is an `i1`, and an f16 is a `float` with the same value; in memory they are a
byte and a `half`.
"""

from __future__ import annotations

import struct
from typing import Any

from octants.types import scalars
from octants.types.scalars import DType

REGISTER = {dtype: f"i{dtype.bits}" for dtype in scalars.ALL} | {
    scalars.f16: "float",
    scalars.f32: "float",
    scalars.f64: "double",
}
MEMORY = REGISTER | {scalars.u1: "i8", scalars.f16: "half"}


def literal(value: Any, dtype: DType) -> str:
    """Return LLVM's literal for a Python number that ``dtype`` can hold."""
    if dtype.is_float:
        return float_literal(value)
    if dtype.is_bool:
        return "true" if value else "false"
    half = 1 << (dtype.bits - 1)
    return str((value + half) % (2 * half) - half)


def known(operand: str) -> int | None:
    """Return the number of an integer literal; None for other operands."""
    return None if operand[0] == "%" else int(operand)


def float_literal(value: float) -> str:
    """Return the bits of the number as f64, which is how LLVM writes `float` as well."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def suffix(type: str) -> str:
    """Return a type's suffix in names of intrinsics."""
    return {"float": "f32", "double": "f64"}.get(type, type)


def identifier(name: str) -> str:
    """Replace the characters of a name that would need quotes."""
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name)
