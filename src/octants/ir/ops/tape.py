"""The tape of a work item: records of loops, on a stack, and logs of loads.

Offsets and positions are i64 bytes on the work item's stack, which grows when it must. A record's
slots may lose members while it is being built (`simplify.prune`); its stride is that of the slots
that remain, and so nothing here names a number of bytes.

A record may have a capacity, in iterations. A push past it writes nothing, a pop past it reads the
last iteration that there is room for; `record_check` tells, and ends the work item.
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
from octants.types.scalars import i64


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


@operation("record_share")
class RecordShare(Operation):
    """``%n: i64 = record_share<1000>()``: the iterations that a work item may record, of so many.

    All of them where a worker's tape is one work item's, a part of them, and at least one, where
    work items share it.
    """

    room: int = attribute()

    def verify(self) -> None:
        if self.room < 1:
            raise InvalidIR("record_share: no room")


@operation("record_check")
class RecordCheck(Operation):
    """``record_check<#r>(%count)`` ends the work item, as an overflow, unless r holds count."""

    record: Record = attribute()
    count: Value = operand()

    def verify(self) -> None:
        if self.record.capacity < 1:
            raise InvalidIR("record_check: the record has no capacity")
        if self.count.type is not i64:
            raise InvalidIR(f"record_check: a count of type {self.count.type}")
