"""Tables that lanes read by run-time indices: each entry has a number for each lane."""

from __future__ import annotations

from octants.codegen.llvm import lookup_tables
from octants.codegen.llvm.lanes import memory
from octants.codegen.llvm.lanes.function_text import LaneText
from octants.codegen.llvm.lanes.memory import LaneAddress
from octants.codegen.llvm.memory_formats import from_memory, memory_type, to_memory
from octants.codegen.llvm.selects_to_lookup_tables import Table, TableRead
from octants.ir import ops
from octants.types.scalars import DType, f16, f32


def _stored(table: Table) -> DType:
    """Return the type of an entry; an f16 is stored in its register type."""
    dtype = table.values[0].type
    return f32 if dtype is f16 else dtype


def _memory(f: LaneText, table: Table) -> str:
    vector = f.vector(memory_type(f, _stored(table)))
    return f.once(("table", table), f"alloca [{len(table.values)} x {vector}], align 64")


def fill(f: LaneText, table: Table) -> None:
    """Store the values of a table, the last of which is defined here."""
    dtype, start = _stored(table), _memory(f, table)
    element = memory_type(f, dtype)
    for number, value in enumerate(table.values):
        operand = to_memory(f, dtype, lookup_tables.operand(f, table, value))
        address = f.assign(f"getelementptr i8, ptr {start}, i64 {number * dtype.size * f.lanes}")
        wide = f.spread(element, operand)
        f.emit(f"store {f.vector(element)} {wide}, ptr {address}, align {dtype.size}")


def select(f: LaneText, op: ops.Select) -> None:
    """Write a select, unless it is inside a chain; the last one of a chain reads its table."""
    lookup_tables.select_by(_read, f, op)


def _read(f: LaneText, read: TableRead) -> str:
    """Return the entries at the active lanes' indices."""
    dtype = _stored(read.table)
    index = lookup_tables.clamped(f, read)
    if all(value in read.table.constants for value in read.table.values):
        element = memory_type(f, dtype)
        values = [lookup_tables.operand(f, read.table, value) for value in read.table.values]
        if dtype.is_bool:
            values = [str(int(value == "true")) for value in values]
        start, stride, step = f.text.constants(element, values), dtype.size, 0
    else:
        start, stride, step = _memory(f, read.table), dtype.size * f.lanes, 0
        if any(map(f.varies, read.table.values)):
            step = dtype.size
    offset = f.apply("mul", "i64", index, stride)
    if f.is_vector(offset):
        numbers = ", ".join(f"i64 {lane * step}" for lane in range(f.lanes))
        offset = f.assign_vector(f"add {f.vector('i64')} {offset}, <{numbers}>")
        pointers = f"getelementptr i8, ptr {start}, {f.vector('i64')} {offset}"
        address = LaneAddress(f.assign_vector(pointers), None)
    else:
        address = LaneAddress(f.assign(f"getelementptr i8, ptr {start}, i64 {offset}"), step)
    stored = memory.load_from(f, address, memory_type(f, dtype), dtype.size, "")
    return from_memory(f, dtype, stored)
