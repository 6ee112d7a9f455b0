"""Loops whose turns do to a float what a line does: it is multiplied, and something is added."""

from __future__ import annotations

from octants.ir import ops
from octants.ir.core import Block, Operation, Value
from octants.types.scalars import f32, f64

_MOST = 32
"""Operations of a turn."""


def is_affine(loop: Operation) -> bool:
    """Whether this is a loop, and each value that it carries a float that goes along a line.

    The floats have 32 or 64 bits. What they are multiplied by, and what is added, comes from
    outside of the loop; nothing else happens there.
    """
    if not isinstance(loop, ops.For) or len(loop.body.ops) > _MOST:
        return False
    kinds = {value.type for value in loop.inits}
    if not kinds or not kinds <= {f32, f64}:
        return False
    origins = _origins(loop.body)
    if origins is None:
        return False
    pairs = zip(loop.body.args[1:], loop.body.yielded, strict=True)
    return all(origins.get(end) is arg is not end for arg, end in pairs)


def is_line(op: Operation, lines: set[Value]) -> bool:
    """Whether an operation makes a line of those that it is given, and of what does not change."""
    given = [value in lines for value in op.operands]
    if isinstance(op, ops.Unary):
        return op.fn == "neg"
    if isinstance(op, ops.Fma):
        return not (given[0] and given[1])
    if isinstance(op, ops.Binary):
        allowed = {"add": True, "sub": True, "mul": not all(given), "div": not given[1]}
        return allowed.get(op.fn, False)
    return False


def _origins(body: Block) -> dict[Value, Value] | None:
    """Which of the carried values each line of a turn comes from; None if there is other work."""
    counter, *carried = body.args
    origins = {arg: arg for arg in carried}
    for op in body.ops[:-1]:
        lines = {value for value in op.operands if value in origins}
        if counter in op.operands or op.regions or not op.is_pure:
            return None
        if not lines:
            continue
        sources = {origins[value] for value in lines}
        if len(sources) > 1 or not is_line(op, lines):
            return None
        origins[op.result] = sources.pop()
    return origins
