"""Warns of an index that leaves its array in some iteration of a loop, whatever the data is.

Such as the last iteration of this one, for a field of ten elements::

    for i in range(10):
        y[i] = x[i + 1] - x[i]

Only indices whose smallest and largest value are known, and reached, are judged: sums and products
of constants and of different loop counters, where no condition and no loop of unknown length stands
around the access.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from octants.diagnostics.errors import IndexLeavesArray
from octants.diagnostics.render import Diagnostic
from octants.ir import ops
from octants.ir.core import Array, Block, Operation, Space, Value
from octants.types.scalars import DType, holds


class _Reached(NamedTuple):
    """The smallest and the largest value of an integer, and the counters that it depends on.

    If it `is_dense`, it takes all values in between, too.
    """

    low: int
    high: int
    counters: frozenset[Value] = frozenset()
    is_dense: bool = True


_Known = dict[Value, _Reached]


def find(body: Block) -> list[Diagnostic]:
    """A warning for each access of a kernel that surely leaves a field."""
    found: list[Diagnostic] = []
    _in_block(body, {}, found)
    return found


def _in_block(block: Block, known: _Known, found: list[Diagnostic]) -> None:
    for op in block.ops:
        note = _TABLE.get(type(op))
        if note is not None:
            note(op, known, found)


def _note_constant(op: ops.Constant, known: _Known, _found: list[Diagnostic]) -> None:
    if op.result.type.is_integer:
        known[op.result] = _Reached(int(op.value), int(op.value))


def _note_loop(op: ops.For | ops.ParallelFor, known: _Known, found: list[Diagnostic]) -> None:
    lower, upper = known.get(op.lower), known.get(op.upper)
    if lower is None or upper is None or lower.counters or upper.counters:
        return
    if lower.low < upper.low:
        counter = op.body.args[0]
        known[counter] = _Reached(lower.low, upper.low - 1, frozenset((counter,)))
        _in_block(op.body, known, found)


def _note_cast(op: ops.Cast, known: _Known, _found: list[Diagnostic]) -> None:
    reached = known.get(op.x)
    if reached is not None and _fits(reached, op.result.type):
        known[op.result] = reached


def _fits(reached: _Reached, dtype: DType) -> bool:
    if not dtype.is_integer or dtype.is_bool:
        return False
    return holds(dtype, reached.low) and holds(dtype, reached.high)


def _note_binary(op: ops.Binary, known: _Known, _found: list[Diagnostic]) -> None:
    reached = _of_binary(op, known)
    if reached is not None:
        known[op.result] = reached


def _of_binary(op: ops.Binary, known: _Known) -> _Reached | None:
    a = known.get(op.lhs)
    b = known.get(op.rhs) if a is not None else None
    if a is None or b is None or a.counters & b.counters:
        return None
    counters, is_dense = a.counters | b.counters, a.is_dense and b.is_dense
    if op.fn == "add":
        reached = _Reached(a.low + b.low, a.high + b.high, counters, is_dense)
    elif op.fn == "sub":
        reached = _Reached(a.low - b.high, a.high - b.low, counters, is_dense)
    elif op.fn == "mul" and not (a.counters and b.counters):
        ends = (a.low * b.low, a.high * b.high)
        reached = _Reached(min(ends), max(ends), counters, is_dense=False)
    elif op.fn == "floordiv" and not b.counters and b.low > 0:
        reached = _Reached(a.low // b.low, a.high // b.low, counters, is_dense)
    elif op.fn == "mod" and is_dense and not b.counters and 0 < b.low <= a.high - a.low + 1:
        reached = _Reached(0, b.low - 1, counters)
    else:
        return None
    return reached if _fits(reached, op.result.type) else None


def _check_access(op: Operation, known: _Known, found: list[Diagnostic]) -> None:
    array: Array = op.array  # type: ignore[attr-defined]
    if array.space is not Space.FIELD or array.fixed_shape is None or op.location is None:
        return
    extents = (*array.fixed_shape, *array.element_shape)
    for axis, index in enumerate(op.indices):  # type: ignore[attr-defined]
        reached, last = known.get(index), extents[axis] - 1
        if reached is None or 0 <= reached.low <= reached.high <= last:
            continue
        is_high = reached.high > last
        side = (
            f"{reached.high - last} beyond the last"
            if is_high
            else f"{-reached.low} before the first"
        )
        which = f"axis {axis}" if axis < array.rank else f"component axis {axis - array.rank}"
        problem = IndexLeavesArray(which, array.name, side, extents[axis])
        found.append(problem.diagnostic(span=op.location))


_TABLE: dict[type[Operation], Callable[..., None]] = {
    ops.Constant: _note_constant,
    ops.Binary: _note_binary,
    ops.Cast: _note_cast,
    ops.For: _note_loop,
    ops.ParallelFor: _note_loop,
    **dict.fromkeys((ops.Load, ops.Store, ops.Atomic), _check_access),
}
