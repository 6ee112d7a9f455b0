"""LLVM's names of types, and literals.

In registers u1 is `i1` and f16 is a `float` that holds a value of f16; in memory they are a byte
and a `half`.
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
    """A Python number that ``dtype`` can hold, as LLVM writes it."""
    if dtype.is_float:
        return float_literal(value)
    if dtype.is_bool:
        return "true" if value else "false"
    half = 1 << (dtype.bits - 1)
    return str((value + half) % (2 * half) - half)


def known(operand: str) -> int | None:
    """The number that an operand of an integer type is, if it is a literal."""
    return None if operand[0] == "%" else int(operand)


def float_literal(value: float) -> str:
    """The bits of the f64, which is how LLVM writes `float` as well."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def suffix(type: str) -> str:
    """A type as the names of intrinsics have it."""
    return {"float": "f32", "double": "f64"}.get(type, type)


def identifier(name: str) -> str:
    """A name with nothing in it that would need quotes."""
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name)
