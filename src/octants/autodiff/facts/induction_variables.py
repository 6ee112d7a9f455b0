"""Finds the carried integers of a loop that are affine in the iteration number.

The replay computes them from the number, so that no record holds them: for example the counter of a
`while`, or the position in a log of reads.
"""

from __future__ import annotations

from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Operation, Value
from octants.types.scalars import i64

Steps = list[tuple[str, Value]]
"""The step of each iteration: ("add" or "sub", a loop-invariant value)."""


def inductions(op: ops.Loop) -> dict[int, Steps]:
    """The steps of each carried integer that changes by loop-invariant values only, by position."""
    updates = {result: inner for inner in op.body.ops for result in inner.results}
    changing = {*op.body.args, *(v for v, o in updates.items() if not isinstance(o, ops.Constant))}
    found = {}
    for k, (arg, yielded) in enumerate(zip(op.carried, op.body.yielded, strict=True)):
        if not (arg.type.is_float or arg.type.is_bool):
            steps = _steps(arg, yielded, updates, changing)
            if steps is not None:
                found[k] = steps
    return found


def _steps(
    arg: Value, yielded: Value, updates: dict[Value, Operation], changing: set[Value]
) -> Steps | None:
    """How an iteration computes one value from another, if by loop-invariant steps."""
    steps: Steps = []
    value = yielded
    while value is not arg:
        update = updates.get(value)
        if not isinstance(update, ops.Binary) or update.fn not in ("add", "sub"):
            return None
        value, step = update.lhs, update.rhs
        if step in changing and update.fn == "add":
            value, step = step, value
        if step in changing:
            return None
        steps.append((update.fn, step))
    return steps


def advanced(builder: Builder, start: Value, iteration: Value, steps: Steps) -> Value:
    """The value of a carried integer in an iteration; wrapping arithmetic makes this exact.

    Args:
        builder: where it is computed.
        start: the initial value.
        iteration: the number of the iteration (i64).
        steps: what each iteration adds.

    Returns:
        The value, of the type of ``start``.
    """
    total = builder.constant(0, start.type)
    for fn, step in steps:
        total = builder.binary(fn, total, step)
    factor = iteration if start.type is i64 else builder.cast(iteration, start.type)
    return builder.binary("add", start, builder.binary("mul", factor, total))
