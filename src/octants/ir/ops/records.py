"""The record buffer of a work item: records of loops, on a stack, and logs of loads.

Offsets and positions are i64 bytes on the work item's stack, which grows when it must. A record's
slots may lose members while it is being built (`simplify.dead_code`); its stride is that of the
slots that remain, and so nothing here names a number of bytes. Each launch passes the *share* of a
work item, in bytes: `record_capacity` gives what a loop may use of it. Work items that run in step
share a record buffer, and agree on the positions of records.

A record may have a capacity, in iterations. A push past it writes nothing, a pop past it reads the
last iteration that fits; `record_check` reports it, and ends the work item.
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


class RecordOperation(Operation):
    """The base of operations in the record buffer of a work item."""

    __slots__ = ()
    is_tied = True


class RecordAccess(RecordOperation):
    """The base of those that write or read an iteration of a record."""

    __slots__ = ()
    record: Record
    base: Value
    index: Value


@operation("record_push")
class RecordPush(RecordAccess):
    """``record_push<#r>(%base, %k, %a, %b)`` writes iteration k of the record at base."""

    record: Record = attribute()
    base: Value = operand()
    index: Value = operand()
    values: list[Value] = operands()

    def verify(self) -> None:
        if [value.type for value in self.values] != self.record.slots:
            raise InvalidIR(f"record_push: {self.values} into {self.record.slots}")


@operation("record_pop")
class RecordPop(RecordAccess):
    """``%a: f32, %b: i32 = record_pop<#r>(%base, %k)`` reads iteration k back."""

    is_varying = True

    record: Record = attribute()
    base: Value = operand()
    index: Value = operand()

    def verify(self) -> None:
        if [value.type for value in self.results] != self.record.slots:
            raise InvalidIR(f"record_pop: {self.results} from {self.record.slots}")


@operation("record_end")
class RecordEnd(RecordOperation):
    """``%end: i64 = record_end<#r>(%base, %count)``: where the stack is free after them."""

    record: Record = attribute()
    base: Value = operand()
    count: Value = operand()


@operation("record_capacity")
class RecordCapacity(RecordOperation):
    """``%n: i64 = record_capacity<#r, 2>(%taken)``: the iterations of r that fit half of the share.

    The rest of the share beyond the bytes that are taken is divided into `parts` equal
    parts; the result is at least one iteration. Work items with one record buffer divide it.
    """

    record: Record = attribute()
    parts: int = attribute()
    taken: Value = operand()

    def verify(self) -> None:
        if self.parts < 1:
            raise InvalidIR("record_capacity: no parts")


@operation("longest")
class Longest(RecordOperation):
    """``%n: i64 = longest(%count)``: the greatest count of all work items that run in step.

    Where a work item runs alone it is its own. No count is negative.
    """

    count: Value = operand()


@operation("record_reserve")
class RecordReserve(RecordOperation):
    """``record_reserve<#r>(%end)``: reserve space for r up to a position that it will reach."""

    record: Record = attribute()
    end: Value = operand()


@operation("record_check")
class RecordCheck(RecordOperation):
    """``record_check<#r>(%count)`` ends the work item, as an overflow, unless r holds count."""

    record: Record = attribute()
    count: Value = operand()

    def verify(self) -> None:
        if self.record.capacity < 1:
            raise InvalidIR("record_check: the record has no capacity")
        if self.count.type is not i64:
            raise InvalidIR(f"record_check: a count of type {self.count.type}")
