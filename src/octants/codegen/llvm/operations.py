"""Which function writes which operation."""

from __future__ import annotations

from octants.analysis.reductions import Collect, Deliver
from octants.codegen import arithmetic, collecting, memory, messages, records
from octants.codegen.atomics import compare_exchange
from octants.codegen.llvm import (
    atomics,
    control,
    estimates,
    library,
    outlined,
    tables,
)
from octants.codegen.llvm.chains import Table
from octants.codegen.llvm.function import HandlerTable
from octants.ir import ops

TABLE: HandlerTable = {
    Table: tables.fill,
    library.Call: library.call_scalar,
    estimates.ReciprocalRoot: estimates.root_of_one,
    Collect: collecting.collect,
    Deliver: collecting.deliver,
    **arithmetic.TABLE,
    arithmetic.LibraryCall: library.call_by_name,
    ops.Select: tables.select,
    ops.For: control.for_,
    ops.While: outlined.once(control.while_),
    ops.If: outlined.once(control.if_),
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
    ops.RecordRoom: records.room,
    ops.Longest: records.longest,
    ops.RecordReserve: records.reserve_now,
    ops.RecordCheck: records.check,
}
