"""The handlers of operations that all targets write alike, over `codegen.instruction_writer`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from octants.codegen import arithmetic, atomics, memory, messages, record_buffer_access
from octants.ir import ops

TABLE: dict[type[Any], Callable[[Any, Any], Any]] = {
    **arithmetic.TABLE,
    **memory.TABLE,
    **messages.TABLE,
    **record_buffer_access.TABLE,
    ops.CompareExchange: atomics.compare_exchange,
}
