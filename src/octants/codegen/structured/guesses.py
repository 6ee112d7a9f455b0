"""Loops that run on the guess that no function in them needs its rare way: see `codegen.guesses`.

That is for machines that run both sides of a branch. A loop whose turns are none costs there as
much as one turn::

    usual = true
    for lower to upper: the turns without rare ways, which have ``usual`` be false where one lacks
    for (usual ? upper : lower) to upper: the turns with them, from the start
"""

from __future__ import annotations

from octants.codegen import guesses
from octants.codegen.structured import control, library, records
from octants.codegen.structured.body import Body, register
from octants.ir import ops
from octants.ir.core import Operation
from octants.types.scalars import u1

_MOST_WORK = 128
"""Operations of a turn, which is there twice."""

_FEW_TURNS = 3
"""So many are hardly more than the one that it costs to have guessed right."""


def for_(body: Body, op: ops.For) -> None:
    """A loop as it is, or first without rare ways. What it records in all its turns finds room."""
    records.reserve(body, op)
    if body.usual is None and body.code.masks and _is_worth_it(body, op):
        _guess(body, op)
    else:
        control.write_for(body, op, body.block, body.condition)


def _is_worth_it(body: Body, op: ops.For) -> bool:
    lower, upper = (body.code.known(body.use(bound)) for bound in (op.lower, op.upper))
    if None not in (lower, upper) and upper - lower <= _FEW_TURNS:
        return False

    def may_be_rare(each: Operation) -> bool:
        is_fast = body.kernel.fast_math
        return isinstance(each, ops.Unary) and library.has_rare_way(each.fn, each.x.type, is_fast)

    return guesses.can_be_guessed(op, may_be_rare, _can_be_repeated, _MOST_WORK)


def _can_be_repeated(op: Operation) -> bool:
    """Whether an operation reads a record, overwrites what it has written, or repeats the like."""
    if isinstance(op, ops.RecordPush):
        return bool(op.record.local)
    return isinstance(op, (ops.RecordPop, ops.For))


def _guess(body: Body, op: ops.For) -> None:
    """The exact turns begin with what is known before the others, and need not wait for them."""
    code = body.code
    body.usual = code.variable(u1)
    code.write(body.usual, code.constant(True, u1))
    control.write_for(body, op, body.block, body.condition)
    is_right = code.read(body.usual)
    body.usual = None
    guessed = [body.use(result) for result in op.results]
    lower = code.choose(is_right, op.lower.type, body.use(op.upper), body.use(op.lower))
    control.write_for(body, op, body.block, body.condition, lower)
    for result, found in zip(op.results, guessed, strict=True):
        kind = register(result.type)
        body.bind(result, code.choose(is_right, kind, found, body.use(result)))
