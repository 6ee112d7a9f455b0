"""Write work items that may end early inside a function that continues.

It continues for other items, or to reach a barrier. A variable says whether the item is `active`;
the code behind an operation that may end it is predicated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from octants.codegen.instruction_writer import Operand
from octants.codegen.recording_facts import may_exceed_record_buffer
from octants.codegen.structured.function_emitter import StructuredFunction
from octants.ir import ops
from octants.ir.core import Block, Operation, Value
from octants.types.scalars import u1


def can_end(op: Operation) -> bool:
    """Return whether an operation may end its work item."""
    return isinstance(op, (ops.Assert, ops.RecordCheck)) or may_exceed_record_buffer(op)


class EarlyExitFunction(StructuredFunction):
    """The work item of a thread, which has ended where it is not `active`."""

    def begin(self, block: Block, active: Operand) -> None:
        """Begin the code of a work item."""
        self.active = self.code.variable(u1)
        self.code.write(self.active, active)
        self._leaving: set[Operation] = set()
        self._find_leaving(block)

    def _find_leaving(self, block: Block) -> bool:
        """Record the operations that may end the item, or contain such operations."""
        found = False
        for op in block.ops:
            inside = [self._find_leaving(region) for region in op.regions]
            if can_end(op) or any(inside):
                self._leaving.add(op)
                found = True
        return found

    def leave(self) -> None:
        self.code.write(self.active, self.number(False, u1))

    def may_end_in(self, op: Operation) -> bool:
        return op in self._leaving

    def condition(self, op: Operation, make: Callable[[], Operand]) -> Operand:
        """Return a loop's condition, which is false once its item has ended."""
        if not self.may_end_in(op):
            return make()
        goes_on = self.code.variable(u1)
        self.code.write(goes_on, self.number(False, u1))
        self.if_active(lambda: self.code.write(goes_on, make()))
        # If computing it ends the item, the condition of the iteration before remains.
        return self.code.apply("and", u1, self.code.read(goes_on), self.code.read(self.active))

    def if_active(self, write: Callable[[], object]) -> None:
        self.code.branch(self.code.read(self.active), write)

    def block(self, block: Block) -> list[Operand]:
        """Write the operations of a block, predicated behind those that may end the item."""
        if self._leaving.isdisjoint(block.ops):
            return super().block(block)
        results = [self.variable(value) for value in block.yielded]
        self.write(block.ops, lambda: self.hand(results, block.yielded))
        return [self.code.read(result) for result in results]

    def write(self, given: Sequence[Operation], finish: Callable[[], None]) -> None:
        """Write operations while the item has not ended; ``finish`` writes the code behind them."""
        for number, op in enumerate(given):
            self.operation(op)
            if op in self._leaving:
                rest = given[number + 1 :]
                self.if_active(lambda: self.write(rest, finish))
                return
        finish()

    def hand(self, variables: Sequence[Any], values: Sequence[Value]) -> None:
        """Write values to variables."""
        for variable, value in zip(variables, values, strict=True):
            self.code.write(variable, self.use(value))
