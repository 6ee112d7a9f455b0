"""The handlers that write each operation."""

from __future__ import annotations

from octants.analysis.sums.reductions import Collect, Deliver
from octants.codegen import arithmetic, operations, per_thread_reductions
from octants.codegen.llvm import (
    control_flow,
    lookup_tables,
    math_functions,
    rsqrt_estimates,
    worker_atomics,
)
from octants.codegen.llvm.function_text import HandlerTable
from octants.ir import ops

TABLE: HandlerTable = {
    math_functions.MathCall: math_functions.call_scalar,
    rsqrt_estimates.ReciprocalRoot: rsqrt_estimates.root_of_one,
    Collect: per_thread_reductions.collect,
    Deliver: per_thread_reductions.deliver,
    **operations.TABLE,
    arithmetic.LibraryCall: math_functions.call_by_name,
    ops.Unary: rsqrt_estimates.unary,
    ops.Extract: lookup_tables.extract,
    ops.For: control_flow.for_,
    ops.While: control_flow.while_,
    ops.If: control_flow.if_,
    ops.Yield: control_flow.yield_,
    ops.Atomic: worker_atomics.atomic,
}
