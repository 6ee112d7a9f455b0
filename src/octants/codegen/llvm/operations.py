"""The handlers that write each operation."""

from __future__ import annotations

from octants.analysis.reductions import Collect, Deliver
from octants.codegen import arithmetic, operations, register_reductions
from octants.codegen.llvm import (
    atomics,
    control,
    library,
    outlined_arithmetic,
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
    **operations.TABLE,
    arithmetic.LibraryCall: library.call_by_name,
    ops.Select: select_tables.select,
    ops.For: control.for_,
    ops.While: outlined_arithmetic.once(control.while_),
    ops.If: outlined_arithmetic.once(control.if_),
    ops.Yield: control.yield_,
    ops.Atomic: atomics.atomic,
}
