"""Loops that speculate that no function in them needs its slow path: see `codegen.speculation`.

That is for machines that run both sides of a branch. A loop whose turns are none costs there as
much as one turn::

    usual = true
    for lower to upper: the turns without rare ways, which have ``usual`` be false where one lacks
    for (usual ? upper : lower) to upper: the turns with them, from the start

Where `analysis.value_bounds` tells in which iterations operands are largest, those are checked
first, and there is no check in the iterations.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from octants.analysis.value_bounds import Magnitudes
from octants.codegen import records, speculation
from octants.codegen.code import Operand
from octants.codegen.structured import control, library
from octants.codegen.structured.function import Speculation, StructuredFunction, register
from octants.ir import ops
from octants.ir.core import Operation, Value
from octants.types.scalars import u1

_MOST_WORK = 128
"""Operations of a turn, which is there twice."""

_FEW_TURNS = 3
"""So many are hardly more than the one that it costs to have guessed right."""


def for_(body: StructuredFunction, op: ops.For) -> None:
    """A loop as it is, or first without rare ways. What it records in all its turns finds room."""
    records.reserve(body, op, runs=False)
    if body.guess is None and body.code.masks and _is_worth_it(body, op):
        _guess(body, op)
    else:
        control.write_for(body, op, body.block, body.condition)


def _is_worth_it(body: StructuredFunction, op: ops.For) -> bool:
    lower, upper = (body.code.known(body.use(bound)) for bound in (op.lower, op.upper))
    if None not in (lower, upper) and upper - lower <= _FEW_TURNS:
        return False
    may_be_rare = functools.partial(_may_be_rare, body)
    return speculation.can_be_guessed(op, may_be_rare, _can_be_repeated, _MOST_WORK)


def _may_be_rare(body: StructuredFunction, op: Operation) -> bool:
    is_fast = body.kernel.fast_math
    return isinstance(op, ops.Unary) and library.has_rare_way(op.fn, op.x.type, is_fast)


def _can_be_repeated(op: Operation) -> bool:
    """Whether an operation reads a record, overwrites what it has written, or repeats the like."""
    if isinstance(op, ops.RecordPush):
        return bool(op.record.local)
    return isinstance(op, (ops.RecordPop, ops.For))


def _guess(body: StructuredFunction, op: ops.For) -> None:
    """The exact turns begin with what is known before the others, and need not wait for them."""
    code, is_right = body.code, _look_first(body, op)
    body.guess = Speculation(code.variable(u1) if is_right is None else None)
    if body.guess.noted is not None:
        code.write(body.guess.noted, code.constant(True, u1))
    control.write_for(body, op, body.block, body.condition)
    if body.guess.noted is not None:
        is_right = code.read(body.guess.noted)
    body.guess = None
    guessed = [body.use(result) for result in op.results]
    lower = code.choose(is_right, op.lower.type, body.use(op.upper), body.use(op.lower))
    control.write_for(body, op, body.block, body.condition, lower)
    for result, found in zip(op.results, guessed, strict=True):
        kind = register(result.type)
        body.bind(result, code.choose(is_right, kind, found, body.use(result)))


# -- looks before the loop ------------------------------------------------------------------------


def _look_first(body: StructuredFunction, op: ops.For) -> Operand | None:
    """Whether all operands will be usual, if that can be told before the loop."""
    magnitudes = Magnitudes(op, body.kernel.constants)
    firsts, lasts = list[Value](), list[Value]()
    for each in filter(functools.partial(_may_be_rare, body), op.body.walk()):
        (x,) = each.operands
        is_steady = magnitudes.is_steady(x)
        if not is_steady and magnitudes.later(x) > library.limit(x.type):
            return None
        firsts.append(x)
        lasts += [x] * is_steady
    makers = _makers(op, firsts)
    if any(_may_be_rare(body, each) for each in makers) or set(makers) - set(op.body.ops):
        return None
    code, dtype = body.code, op.lower.type
    first = _are_usual(body, op, firsts, body.use(op.lower))
    if not lasts:
        return first
    last = code.apply("sub", dtype, body.use(op.upper), body.number(1, dtype))
    return code.apply("and", u1, first, _are_usual(body, op, lasts, last))


def _makers(op: ops.For, values: Sequence[Value]) -> list[Operation]:
    """The operations of a turn that some values need."""
    found, needed = list[Operation](), set(values)
    for each in reversed(list(op.body.walk())):
        if not needed.isdisjoint(each.results):
            needed.update(each.operands)
            found.insert(0, each)
    return found


def _are_usual(
    body: StructuredFunction, op: ops.For, values: Sequence[Value], number: Operand
) -> Operand:
    """Whether some operands are usual in the turn of a number, the first one but for the number."""
    code, found = body.code, body.code.constant(True, u1)
    for arg, operand in zip(op.body.args, [number, *map(body.use, op.inits)], strict=True):
        body.bind(arg, operand)
    for each in _makers(op, values):
        body.operation(each)
    for value in values:
        kind = register(value.type)
        size = code.apply("abs", kind, body.use(value))
        limit = code.constant(library.limit(value.type), kind)
        found = code.apply("and", u1, found, code.compare("le", kind, size, limit))
    return found
