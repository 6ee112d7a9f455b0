"""A Metal that has f64, and atomic operations on 64 bits, so that tests with these can run on it.

No GPU has it. What is not about these types is the same as without them: control flow, adjoints,
record buffers, cooperation, the driver.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest

from octants.codegen.instruction_writer import Pointer, UnaddressedElement
from octants.codegen.metal import compile as compiling
from octants.codegen.metal.instruction_writer import MetalCode
from octants.codegen.metal.library_text import LibraryText, Literal
from octants.runtime.metal.context import Hardware
from octants.types.scalars import DType, f64

FEATURES = ("float64", "atomic64", "shared64")


class WiderText(LibraryText):
    """Text with `double` in it."""

    def type(self, dtype: DType) -> str:
        return "double" if dtype is f64 else super().type(dtype)

    def constant(self, value: Any, dtype: DType) -> Literal:
        if dtype is not f64:
            return super().constant(value, dtype)
        text = f"({float(value)!r})"
        if not math.isfinite(value):
            bits = int.from_bytes(struct.pack("<d", value), "little")
            text = f"as_type<double>({bits}ul)"
        made = Literal(text)
        made.value = value
        return made


class WiderCode(MetalCode):
    """Code with atomic operations of the names that wider types would have."""

    has_f64 = True

    def convert(self, x: str, source: DType, target: DType) -> str:
        if source.is_float and target.is_float and f64 in (source, target):
            kind = self.library.type(target)
            return x if source is target else self._assign(kind, f"{kind}({x})")
        return super().convert(x, source, target)

    def has_atomic(self, fn: str, dtype: DType) -> bool:
        return dtype.bits == 64 and not dtype.is_float or super().has_atomic(fn, dtype)

    def _atomic(self, fn: str, dtype: DType, address: Pointer, *operands: str) -> str:
        if dtype.bits != 64:
            return super()._atomic(fn, dtype, address, *operands)
        is_signed = dtype.is_signed and fn in ("fetch_min", "fetch_max")
        kind = "long" if is_signed else "ulong"
        given = [f"{kind}({each})" for each in operands]
        arguments = ", ".join([self._pointer(address, f"atomic_{kind}"), *given])
        return f"atomic_{fn}_explicit({arguments}, memory_order_relaxed)"

    def atomic_load(self, address: Pointer, dtype: DType) -> str:
        return self._assign(self.library.type(dtype), self._atomic("load", dtype, address))

    def exchange_if(self, dtype: DType, address: Pointer, expected: str, value: str) -> str:
        if dtype.bits != 64 or isinstance(address, UnaddressedElement) and dtype.bits != 64:
            return super().exchange_if(dtype, address, expected, value)
        pointer = self._pointer(address, "atomic_ulong")
        return self._assign("ulong", f"exchange_if({pointer}, {expected}, {value})")


def install(patch: pytest.MonkeyPatch) -> None:
    """Have code be generated for a wider Metal."""
    given = Hardware.__init__

    def begin(hardware: Hardware, *arguments: Any) -> None:
        given(hardware, *arguments)
        hardware.features |= set(FEATURES)

    patch.setattr(Hardware, "__init__", begin)
    patch.setattr(compiling, "MetalCode", WiderCode)
    patch.setattr(compiling, "LibraryText", WiderText)
