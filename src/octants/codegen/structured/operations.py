"""The handlers that write each operation."""

from __future__ import annotations

from octants.codegen import arithmetic, cooperation, operations
from octants.codegen.structured import (
    control,
    library,
    reductions,
    speculation,
)
from octants.codegen.structured.function import HandlerTable
from octants.ir import ops

TABLE: HandlerTable = {
    **operations.TABLE,
    arithmetic.LibraryCall: library.call,
    ops.For: speculation.for_,
    ops.While: control.while_,
    ops.If: control.if_,
    ops.Yield: control.yield_,
    ops.Atomic: reductions.atomic,
    **cooperation.TABLE,
}
