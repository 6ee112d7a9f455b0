"""The tape of a work item: records of loops, on a stack, and logs of loads.

Offsets and positions are i64 bytes on the work item's stack, which grows when it must. A record's
slots may lose members while it is being built (`autodiff.prune`); its stride is that of the slots
that remain, and so nothing here names a number of bytes.
"""

from __future__ import annotations

from octants.ir.core import (
    InvalidIR,
    Operation,
    Record,
    Value,
    attribute,
    operand,
    operands,
    operation,
)


@operation("record_push")
class RecordPush(Operation):
    """``record_push<#r>(%base, %k, %a, %b)`` writes iteration k of the record at base."""

    record: Record = attribute()
    base: Value = operand()
    index: Value = operand()
    values: list[Value] = operands()

    def verify(self) -> None:
        if [value.type for value in self.values] != self.record.slots:
            raise InvalidIR(f"record_push: {self.values} into {self.record.slots}")


@operation("record_pop")
class RecordPop(Operation):
    """``%a: f32, %b: i32 = record_pop<#r>(%base, %k)`` reads iteration k back."""

    record: Record = attribute()
    base: Value = operand()
    index: Value = operand()

    def verify(self) -> None:
        if [value.type for value in self.results] != self.record.slots:
            raise InvalidIR(f"record_pop: {self.results} from {self.record.slots}")


@operation("record_end")
class RecordEnd(Operation):
    """``%end: i64 = record_end<#r>(%base, %count)``: where the stack is free after them."""

    record: Record = attribute()
    base: Value = operand()
    count: Value = operand()
