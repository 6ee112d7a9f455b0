"""Finds what computes the indices of an access in a loop, so that it can be computed elsewhere."""

from __future__ import annotations

from collections.abc import Iterable

from octants.ir import ops
from octants.ir.core import Operation, Value


def pure_slice(loop: ops.For, values: Iterable[Value]) -> list[Operation] | None:
    """The operations of an iteration that some values follow from, in order.

    None if they read memory, or depend on what the loop carries besides its counter.
    """
    makers = {value: op for op in loop.body.ops for value in op.results}
    carried = set(loop.body.args[1:])
    needed, waiting = set[Operation](), list(values)
    while waiting:
        value = waiting.pop()
        op = makers.get(value)
        if value in carried or (op is not None and not op.is_pure):
            return None
        if op is not None and op not in needed:
            needed.add(op)
            waiting += op.operands
    return [op for op in loop.body.ops if op in needed]
