"""Finds arrays without a gradient at which a gradient ends: written from an input, and read back.

`simplify` forwards stores to loads; the bitcast that it leaves, with the location of the store,
shows that a value was read back.
"""

from __future__ import annotations

from octants.autodiff.facts.activity import ActivityFlow, propagate_activity
from octants.ir import ops
from octants.ir.core import Array, Companion, Module, Space, Value

_OUTER = (Space.FIELD, Space.NDARRAY)


def ends_within(module: Module, companion: Companion = Companion.ADJOINT) -> list[Array]:
    """The arrays without adjoints between an input with an adjoint and an output with one.

    Args:
        module: the kernel.
        companion: the adjoint, or the tangent.
    """
    flows = [ActivityFlow(task.body) for task in module.tasks]
    varied = _dependent_values(flows, companion, backward=False)
    useful = _dependent_values(flows, companion, backward=True)
    writes = (ops.Store, ops.Atomic)
    written = [op for flow in flows for op in flow.operations if isinstance(op, writes)]
    loaded = {
        op.array
        for flow in flows
        for op in flow.operations
        if isinstance(op, ops.Load) and op.result in useful
    }
    read_back = _forwarded(flows, useful)
    return list(
        dict.fromkeys(
            op.array
            for op in written
            if _ends_at(op.array, companion)
            and op.value in varied
            and (op.array in loaded or (op.value, op.location) in read_back)
        )
    )


def _ends_at(array: Array, companion: Companion) -> bool:
    return array.space in _OUTER and array.dtype.is_float and not array.has(companion)


def _forwarded(flows: list[ActivityFlow], useful: set[Value]) -> set[object]:
    """The values, with the locations of their stores, that are read back through bitcasts."""
    casts = [op for flow in flows for op in flow.operations if isinstance(op, ops.Bitcast)]
    last = {op.x for op in casts if op.result in useful}
    return {(op.x, op.location) for op in casts if op.result in last}


def _dependent_values(
    flows: list[ActivityFlow], companion: Companion, *, backward: bool
) -> set[Value]:
    """The values that depend on arrays with a companion, or those that such arrays depend on."""

    def is_active(array: Array) -> bool:
        if _passes_on(array):
            return False
        return array.has(companion) or (backward and array.space is Space.RETURN)

    return propagate_activity(flows, is_active, _passes_on, backward=backward)[0]


def _passes_on(array: Array) -> bool:
    return array.space is Space.TEMPORARY
