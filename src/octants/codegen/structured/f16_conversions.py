"""The bits of f16 by integer instructions, for machines that need not convert exactly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from octants.codegen import arithmetic
from octants.codegen.instruction_writer import Code, Operand
from octants.ir.core import Block, Value
from octants.ir.ops import Yield
from octants.mathlib.function_registry import function
from octants.types.scalars import DType


def call_half_function(
    code: Code, name: str, source: DType, target: DType, operand: Operand
) -> Operand:
    """Call "half_bits" or "half_value" of `mathlib`, a function of the module."""

    def make(inner: Code, operands: list[Any]) -> Any:
        return _StraightCode(inner).inlined(function(name, source).block, operands)[0]

    return code.call(name, [source], target, make, [operand])


class _StraightCode:
    """The operands of values in scalar code. There is no control flow, launch, or library."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self.writers: dict[tuple[str, DType], Callable[..., Operand]] = {}
        self._operands: dict[Value, Operand] = {}

    def use(self, value: Value) -> Operand:
        return self._operands[value]

    def bind(self, value: Value, operand: Operand) -> None:
        self._operands[value] = operand

    def inlined(self, block: Block, operands: Sequence[Operand]) -> list[Operand]:
        """Write a block's operations for given arguments, and return the operands it yields."""
        self._operands.update(zip(block.args, operands, strict=True))
        for op in block.ops:
            if not isinstance(op, Yield):
                arithmetic.TABLE[type(op)](self, op)
        return [self._operands[value] for value in block.yielded]
