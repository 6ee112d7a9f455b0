"""Choose the loops that speculate that no function in them needs its slow path.

A function with a fast path for most operands has a test in front of it and a slow path for the
others. In a loop that does little else the tests take most of the time. So the loop runs without
them, checks a guard afterwards, and runs again with all tests if the guard fails. To be invisible,
such a loop changes no memory, and no speculated value is an index or a loop bound.
"""

from __future__ import annotations

from typing import TypeGuard

from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Block, Operation, Value
from octants.ir.ops.arithmetic import BOUNDED, SINES
from octants.mathlib.fast_by_estimates import FAR
from octants.types.scalars import f32

ESTIMATES = {"sin": "sin_estimate", "cos": "cos_estimate", "cos_beside_sin": "cos_estimate"}
ESTIMATES |= {name: ESTIMATES[fn] for name, fn in BOUNDED.items() if fn in ESTIMATES}
"""The estimates of sines and cosines, for small angles."""

_UNROLLED = 4
"""The least number of iterations of an unrolled block."""

_AT_PLACES = (ops.Load, ops.RecordPush, ops.RecordPop)


def is_sine(op: Operation) -> TypeGuard[ops.Unary]:
    """Whether an operation is a sine or a cosine, which machines estimate for small angles."""
    return isinstance(op, ops.Unary) and op.fn in SINES and op.x.type is f32


def is_unbounded_sine(op: Operation) -> TypeGuard[ops.Unary]:
    """Whether an operation is a sine or a cosine whose angle may be too large for an estimate."""
    return is_sine(op) and op.fn not in BOUNDED


def is_small(builder: Builder, x: Value) -> Value:
    """Write the test whether an angle has an estimate."""
    return builder.compare("lt", builder.unary("abs", x), builder.constant(FAR, f32))


def repeats_iterations(op: ops.If) -> bool:
    """Return whether a branch repeats iterations with tests: see `passes.loops.unroll_loops`."""
    if len(op.then.ops) > 1 or not op.results:
        return False
    again = list(op.orelse.walk())
    if any(isinstance(each, ops.Write) for each in again):
        return False
    sines = sum(map(is_sine, again))
    return sines >= _UNROLLED or (sines > 0 and any(isinstance(o, ops.For) for o in op.orelse.ops))


def is_shared(op: Operation) -> bool:
    """Return whether a branch has slow paths of a group (`passes.arithmetic.share_slow_paths`)."""
    if not isinstance(op, ops.If) or len(op.then.ops) > 1 or len(op.results) < 2:
        return False
    *inside, _ = op.orelse.ops
    return all(map(is_sine, inside)) and [each.result for each in inside] == op.orelse.yielded


def can_speculate(loop: ops.For, most: int) -> bool:
    """Return whether a loop has sines or cosines, does little else, and can be repeated.

    It has at most ``most`` operations: pure ones, reads of records, and pushes to local records,
    which are written again when the loop is repeated.
    """
    inside = [each for each in loop.body.walk() if not isinstance(each, ops.Constant)]
    if len(inside) > most or not any(map(is_sine, inside)):
        return False
    if not all(map(_can_be_repeated, inside)):
        return False
    speculated = _speculated(loop.body)
    return all(speculated.isdisjoint(_decisive(each)) for each in inside)


def _can_be_repeated(op: Operation) -> bool:
    if isinstance(op, ops.RecordPush):
        return bool(op.record.local)
    return op.is_speculatable or isinstance(op, ops.RecordPop)


def inside(op: Operation) -> list[Operation]:
    """Return the operations in the regions of another one."""
    return [each for region in op.regions for each in region.walk()]


def _decisive(op: Operation) -> list[Value]:
    """Return the operands of an operation that are indices, loop bounds, or checks of indices."""
    if isinstance(op, ops.Load):
        return op.indices
    if isinstance(op, ops.RecordAccess):
        return [op.base, op.index]
    if isinstance(op, ops.If) and any(isinstance(each, _AT_PLACES) for each in inside(op)):
        return [op.condition]
    return [op.lower, op.upper] if isinstance(op, ops.For) else []


def _speculated(body: Block) -> set[Value]:
    """Return the values of an iteration that may be wrong.

    These are results of sines and cosines, and everything computed from them, also through
    the values that loops carry.
    """
    wrong = set(body.args[1:])
    for op in body.walk():
        if isinstance(op, ops.For):
            wrong.update([*op.body.args[1:], *op.results])
        needed = [value for each in (op, *inside(op)) for value in each.operands]
        if is_sine(op) or not wrong.isdisjoint(needed):
            wrong.update(op.results)
    return wrong
