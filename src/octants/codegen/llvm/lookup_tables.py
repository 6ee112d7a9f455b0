"""Write tables of values that are read by a run-time index; see `selects_to_lookup_tables`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from octants.codegen import arithmetic
from octants.codegen.llvm.function_text import FunctionText
from octants.codegen.llvm.selects_to_lookup_tables import Table, TableRead
from octants.ir import ops
from octants.ir.core import Value


def select(f: FunctionText, op: ops.Select) -> None:
    """Write a select without a branch, unless it is in a long chain."""
    select_by(read, f, op)


def select_by(read: Callable[[Any, TableRead], str], f: FunctionText, op: ops.Select) -> None:
    """Write a select; ``read`` returns the table entry for the last one of a chain."""
    if op not in f.chains.reads:
        arithmetic.select(f, op)
        return
    found = f.chains.reads[op]
    if found is not None:
        f.bind(op.result, read(f, found))


def fill(f: FunctionText, table: Table) -> None:
    """Store the values of a table, the last of which is defined here."""
    memory, element = _table(f, table)
    for number, value in enumerate(table.values):
        address = f.assign(f"getelementptr inbounds {element}, ptr {memory}, i64 {number}")
        f.emit(f"store {element} {operand(f, table, value)}, ptr {address}")


def read(f: FunctionText, read: TableRead) -> str:
    """Return the value of a table at an index."""
    index = clamped(f, read)
    memory, element = _table(f, read.table)
    address = f.assign(f"getelementptr inbounds {element}, ptr {memory}, i64 {index}")
    return f.assign(f"load {element}, ptr {address}")


def clamped(f: FunctionText, read: TableRead) -> str:
    """Return the number of the entry to read, i64."""
    register, last = f.type(read.index.type), len(read.table.values) - 1
    index = f.use(read.index)
    is_inside = f.apply("icmp ult", register, index, last)
    index = f.choose(is_inside, register, index, last)
    return f.convert("zext", register, index, "i64") if read.index.type.bits < 64 else index


def _table(f: FunctionText, table: Table) -> tuple[str, str]:
    """Return the memory of a table, and the type of its elements."""
    element = f.type(table.values[0].type)
    if all(value in table.constants for value in table.values):
        return f.text.constants(
            element, [operand(f, table, value) for value in table.values]
        ), element
    kind = f"[{len(table.values)} x {element}]"
    return f.on_stack(("table", table), kind, table.values[0].type.size), element


def operand(f: FunctionText, table: Table, value: Value) -> str:
    """Return the operand of a table's value."""
    if value in table.constants:
        return f.literal(table.constants[value], value.type)
    return f.use(value)
