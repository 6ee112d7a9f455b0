"""Tables that lanes read, each at an index of its own."""

from __future__ import annotations

from octants.codegen.llvm import lookup_tables
from octants.codegen.llvm.lanes import memory
from octants.codegen.llvm.lanes.function_text import LaneText
from octants.codegen.llvm.lanes.memory import LaneAddress
from octants.codegen.llvm.memory_formats import from_memory, memory_type
from octants.ir import ops
from octants.types.scalars import f16, f32


def extract(f: LaneText, op: ops.Extract) -> None:
    """Load the components at the active lanes' indices; the table holds f16 as f32."""
    dtype = f32 if op.result.type is f16 else op.result.type
    element, values = memory_type(f, dtype), [f.use(value) for value in op.components]
    if dtype.is_bool:
        values = [str(int(value == "true")) for value in values]
    table, number = f.text.constants(element, values), lookup_tables.position(f, op)
    if f.is_vector(number):
        pointers = f"getelementptr {element}, ptr {table}, {f.vector('i64')} {number}"
        address = LaneAddress(f.assign_vector(pointers), None)
    else:
        address = LaneAddress(f.assign(f"getelementptr {element}, ptr {table}, i64 {number}"), 0)
    loaded = memory.load_from(f, address, element, dtype.size, "")
    f.bind(op.result, from_memory(f, dtype, loaded))
