"""The handlers that write each operation for lanes."""

from __future__ import annotations

from octants.analysis.reductions import Collect, Deliver
from octants.codegen import arithmetic
from octants.codegen.llvm import operations, outlined_arithmetic
from octants.codegen.llvm.function import HandlerTable
from octants.codegen.llvm.lanes import (
    atomics,
    control,
    library,
    memory,
    privatised_sums,
    records,
    rsqrt_estimates,
    select_tables,
)
from octants.codegen.llvm.library import Call
from octants.codegen.llvm.rsqrt_estimates import ReciprocalRoot
from octants.codegen.llvm.select_chains import Table
from octants.ir import ops

_SAME = (*arithmetic.TABLE, arithmetic.LibraryCall, ops.Yield, ops.Shape)

TABLE: HandlerTable = {op: operations.TABLE[op] for op in _SAME} | {
    Call: library.call,
    ReciprocalRoot: rsqrt_estimates.reciprocal_root,
    ops.Binary: control.binary,
    ops.Cast: control.cast,
    Table: select_tables.fill,
    Collect: atomics.collect,
    Deliver: atomics.deliver,
    ops.Select: select_tables.select,
    ops.For: control.for_,
    ops.While: outlined_arithmetic.once(control.while_),
    ops.If: outlined_arithmetic.once(control.if_),
    ops.Load: memory.load,
    ops.Store: memory.store,
    ops.Atomic: privatised_sums.atomic,
    ops.CompareExchange: atomics.compare_exchange,
    ops.RecordPush: records.push,
    ops.RecordPop: records.pop,
    ops.RecordEnd: records.end,
    ops.RecordCapacity: records.capacity,
    ops.Longest: records.longest,
    ops.RecordReserve: records.reserve_now,
}
