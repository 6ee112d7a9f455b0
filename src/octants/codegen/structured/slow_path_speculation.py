"""Run loops without slow paths first, where the machine predicates: see
`analysis.floats.slow_paths`.

On such a machine a loop without iterations costs as much as one iteration::

    fast = true
    for lower to upper: iterations without slow paths; clear ``fast`` where one is needed
    for (fast ? upper : lower) to upper: iterations with slow paths, from the start

Where `analysis.floats.float_magnitudes` knows in which iterations operands are largest, these are
checked before the loop, and the iterations have no check.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from octants.analysis.floats import slow_paths
from octants.analysis.floats.float_magnitudes import Magnitudes
from octants.codegen import record_buffer_access
from octants.codegen.instruction_writer import Operand
from octants.codegen.structured import control_flow, math_functions
from octants.codegen.structured.function_emitter import Speculation, StructuredFunction, register
from octants.ir import ops
from octants.ir.core import Operation, Value
from octants.types.scalars import u1

_MOST_WORK = 128
"""The most operations of an iteration, which is written twice."""

_FEW_ITERATIONS = 3
"""Loops of at most so many iterations do not speculate: the empty second loop costs one."""


def for_(body: StructuredFunction, op: ops.For) -> None:
    """Write a loop as it is, or first without slow paths. Its pushes are reserved before."""
    record_buffer_access.reserve(body, op, runs=False)
    if body.speculation is None and body.code.masks and _is_worth_it(body, op):
        _write_both(body, op)
    else:
        control_flow.write_for(body, op, body.block, body.condition)


def _is_worth_it(body: StructuredFunction, op: ops.For) -> bool:
    lower, upper = (body.code.known(body.use(bound)) for bound in (op.lower, op.upper))
    if None not in (lower, upper) and upper - lower <= _FEW_ITERATIONS:
        return False
    takes_slow_path = functools.partial(math_functions.may_take_slow_path, body)
    return slow_paths.can_speculate(op, takes_slow_path, _MOST_WORK, (ops.For,))


def _write_both(body: StructuredFunction, op: ops.For) -> None:
    """Write both loops. The exact one does not depend on results of the other."""
    code, is_right = body.code, _check_first(body, op)
    body.speculation = Speculation(code.variable(u1) if is_right is None else None)
    if body.speculation.guard is not None:
        code.write(body.speculation.guard, code.constant(True, u1))
    control_flow.write_for(body, op, body.block, body.condition)
    if body.speculation.guard is not None:
        is_right = code.read(body.speculation.guard)
    body.speculation = None
    speculated = [body.use(result) for result in op.results]
    lower = code.choose(is_right, op.lower.type, body.use(op.upper), body.use(op.lower))
    control_flow.write_for(body, op, body.block, body.condition, lower)
    for result, found in zip(op.results, speculated, strict=True):
        kind = register(result.type)
        body.bind(result, code.choose(is_right, kind, found, body.use(result)))


# -- checks before the loop -----------------------------------------------------------------------


def _check_first(body: StructuredFunction, op: ops.For) -> Operand | None:
    """Return whether all operands will be small; None if that is not known before the loop."""
    magnitudes = Magnitudes(op, body.kernel.constants)
    firsts, lasts = list[Value](), list[Value]()
    takes_slow_path = functools.partial(math_functions.may_take_slow_path, body)
    for each in filter(takes_slow_path, op.body.walk()):
        (x,) = each.operands
        is_steady = magnitudes.is_steady(x)
        if not is_steady and magnitudes.later(x) > math_functions.limit(x.type):
            return None
        firsts.append(x)
        lasts += [x] * is_steady
    makers = _producers(op, firsts)
    if any(map(takes_slow_path, makers)) or set(makers) - set(op.body.ops):
        return None
    code, dtype = body.code, op.lower.type
    first = _are_small(body, op, firsts, body.use(op.lower))
    if not lasts:
        return first
    last = code.apply("sub", dtype, body.use(op.upper), body.number(1, dtype))
    return code.apply("and", u1, first, _are_small(body, op, lasts, last))


def _producers(op: ops.For, values: Sequence[Value]) -> list[Operation]:
    """Return the operations of an iteration that some values depend on."""
    found, needed = list[Operation](), set(values)
    for each in reversed(list(op.body.walk())):
        if not needed.isdisjoint(each.results):
            needed.update(each.operands)
            found.insert(0, each)
    return found


def _are_small(
    body: StructuredFunction, op: ops.For, values: Sequence[Value], number: Operand
) -> Operand:
    """Return whether some operands are small in the first iteration, with another counter."""
    code, found = body.code, body.code.constant(True, u1)
    for arg, operand in zip(op.body.args, [number, *map(body.use, op.inits)], strict=True):
        body.bind(arg, operand)
    for each in _producers(op, values):
        body.operation(each)
    for value in values:
        kind = register(value.type)
        size = code.apply("abs", kind, body.use(value))
        limit = code.constant(math_functions.limit(value.type), kind)
        found = code.apply("and", u1, found, code.compare("le", kind, size, limit))
    return found
