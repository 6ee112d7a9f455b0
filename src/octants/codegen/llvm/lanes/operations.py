"""The handlers that write each operation for lanes."""

from __future__ import annotations

from octants.analysis.sums.reductions import Collect, Deliver
from octants.codegen import arithmetic
from octants.codegen.llvm import operations
from octants.codegen.llvm.function_text import HandlerTable
from octants.codegen.llvm.lanes import (
    additions_to_private_sums,
    atomics,
    control_flow,
    lookup_tables,
    math_functions,
    memory,
    record_buffer_access,
    rsqrt_estimates,
)
from octants.codegen.llvm.math_functions import MathCall
from octants.codegen.llvm.rsqrt_estimates import ReciprocalRoot
from octants.ir import ops

_SAME = (*arithmetic.TABLE, arithmetic.LibraryCall, ops.Yield, ops.Shape)

TABLE: HandlerTable = {op: operations.TABLE[op] for op in _SAME} | {
    MathCall: math_functions.call,
    ReciprocalRoot: rsqrt_estimates.reciprocal_root,
    ops.Binary: control_flow.binary,
    ops.Cast: control_flow.cast,
    Collect: atomics.collect,
    Deliver: atomics.deliver,
    ops.Extract: lookup_tables.extract,
    ops.For: control_flow.for_,
    ops.While: control_flow.while_,
    ops.If: control_flow.if_,
    ops.Load: memory.load,
    ops.Store: memory.store,
    ops.Atomic: additions_to_private_sums.atomic,
    ops.CompareExchange: atomics.compare_exchange,
    ops.RecordPush: record_buffer_access.push,
    ops.RecordPop: record_buffer_access.pop,
    ops.RecordEnd: record_buffer_access.end,
    ops.RecordCapacity: record_buffer_access.capacity,
    ops.Longest: record_buffer_access.longest,
    ops.RecordReserve: record_buffer_access.reserve_now,
}
