"""The bits of f16 by integer instructions, for machines that need not convert exactly."""

from __future__ import annotations

from typing import Any

from octants.codegen.instruction_writer import Code, Operand
from octants.codegen.standalone_scalar_code import write_straight
from octants.mathlib.function_registry import function
from octants.types.scalars import DType


def call_half_function(
    code: Code, name: str, source: DType, target: DType, operand: Operand
) -> Operand:
    """Call "half_bits" or "half_value" of `mathlib`, a function of the module."""

    def make(inner: Code, operands: list[Any]) -> Any:
        return write_straight(inner, function(name, source).block, operands)[0]

    return code.call(name, [source], target, make, [operand])
