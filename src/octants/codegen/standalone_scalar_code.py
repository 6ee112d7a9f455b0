"""Write a block of scalar operations through `Code` alone, outside of any kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from octants.codegen import arithmetic
from octants.codegen.instruction_writer import Code, Operand
from octants.ir.core import Block, Value
from octants.ir.ops import Yield
from octants.types.scalars import DType


def write_straight(code: Code, block: Block, operands: Sequence[Operand]) -> list[Operand]:
    """Write a block's operations for given arguments, and return the operands that it yields."""
    return _Straight(code).inlined(block, operands)


class _Straight:
    """The operands of values. There is no control flow, no launch, and no library."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self.writers: dict[tuple[str, DType], Callable[..., Operand]] = {}
        self._operands: dict[Value, Operand] = {}

    def use(self, value: Value) -> Operand:
        return self._operands[value]

    def bind(self, value: Value, operand: Operand) -> None:
        self._operands[value] = operand

    def inlined(self, block: Block, operands: Sequence[Operand]) -> list[Operand]:
        self._operands.update(zip(block.args, operands, strict=True))
        for op in block.ops:
            if not isinstance(op, Yield):
                arithmetic.TABLE[type(op)](self, op)
        return [self._operands[value] for value in block.yielded]
