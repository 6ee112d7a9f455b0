"""The handlers that write each operation."""

from __future__ import annotations

from octants.analysis.reductions import Collect, Deliver
from octants.codegen import arithmetic, memory, messages, records, register_reductions
from octants.codegen.atomics import compare_exchange
from octants.codegen.llvm import (
    atomics,
    control,
    library,
    outlined_functions,
    rsqrt_estimates,
    select_tables,
)
from octants.codegen.llvm.function import HandlerTable
from octants.codegen.llvm.select_chains import Table
from octants.ir import ops

TABLE: HandlerTable = {
    Table: select_tables.fill,
    library.Call: library.call_scalar,
    rsqrt_estimates.ReciprocalRoot: rsqrt_estimates.root_of_one,
    Collect: register_reductions.collect,
    Deliver: register_reductions.deliver,
    **arithmetic.TABLE,
    arithmetic.LibraryCall: library.call_by_name,
    ops.Select: select_tables.select,
    ops.For: control.for_,
    ops.While: outlined_functions.once(control.while_),
    ops.If: outlined_functions.once(control.if_),
    ops.Yield: control.yield_,
    ops.Load: memory.load,
    ops.Store: memory.store,
    ops.Shape: memory.shape,
    ops.Atomic: atomics.atomic,
    ops.CompareExchange: compare_exchange,
    ops.Print: messages.print_,
    ops.Assert: messages.assert_,
    ops.ActAs: messages.act_as,
    ops.RecordPush: records.push,
    ops.RecordPop: records.pop,
    ops.RecordEnd: records.end,
    ops.RecordCapacity: records.capacity,
    ops.Longest: records.longest,
    ops.RecordReserve: records.reserve_now,
    ops.RecordCheck: records.check,
}
