"""The handlers that write each operation."""

from __future__ import annotations

from octants.codegen import arithmetic, atomics, cooperation, memory, messages, records
from octants.codegen.structured import (
    control,
    library,
    reductions,
    speculation,
)
from octants.codegen.structured.function import HandlerTable
from octants.ir import ops

TABLE: HandlerTable = {
    **arithmetic.TABLE,
    arithmetic.LibraryCall: library.call,
    ops.For: speculation.for_,
    ops.While: control.while_,
    ops.If: control.if_,
    ops.Yield: control.yield_,
    ops.Load: memory.load,
    ops.Store: memory.store,
    ops.Shape: memory.shape,
    ops.Atomic: reductions.atomic,
    ops.CompareExchange: atomics.compare_exchange,
    ops.Print: messages.print_,
    ops.Assert: messages.assert_,
    ops.ActAs: messages.act_as,
    **cooperation.TABLE,
    ops.RecordPush: records.push,
    ops.RecordPop: records.pop,
    ops.RecordEnd: records.end,
    ops.RecordCapacity: records.capacity,
    ops.Longest: records.longest,
    ops.RecordReserve: records.reserve_now,
    ops.RecordCheck: records.check,
}
