"""The handlers that write each operation."""

from __future__ import annotations

from octants.codegen import arithmetic, cooperation, operations
from octants.codegen.structured import (
    control_flow,
    math_functions,
    reductions,
    vector_loads,
)
from octants.codegen.structured.function_emitter import HandlerTable
from octants.codegen.vector_loads import load
from octants.ir import ops

TABLE: HandlerTable = {
    **operations.TABLE,
    arithmetic.LibraryCall: math_functions.call,
    ops.For: vector_loads.for_,
    ops.Load: load,
    ops.While: control_flow.while_,
    ops.If: control_flow.if_,
    ops.Yield: control_flow.yield_,
    ops.Atomic: reductions.atomic,
    **cooperation.TABLE,
}
