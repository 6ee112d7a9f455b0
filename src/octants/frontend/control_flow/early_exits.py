"""Ways out of the current statements: ``break``, ``continue`` and ``return`` as flags."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from octants.frontend.context import Context
from octants.frontend.control_flow import control_flow_joins
from octants.frontend.scope import LoopExits, VariableRegion
from octants.frontend.syntax import source
from octants.frontend.values.expression_values import Variable
from octants.ir.core import Block, Value
from octants.types.scalars import u1


def any_set(context: Context, flags: Iterable[Variable]) -> Value | None:
    """Whether one of some flags is set; None if it is known that none is."""
    result: Value | None = None
    for flag in flags:
        if flag.value is not False:
            value = context.number_of(flag)
            result = value if result is None else context.builder.binary("or", result, value)
    return result


def left(context: Context) -> Value | None:
    """Whether the rest of the current statements is to be skipped; None if it never is."""
    return any_set(context, context.scopes.frame.exit_flags())


def skippable(
    context: Context,
    is_left: Value,
    flags: list[Variable],
    build: Callable[[], bool],
    node: ast.AST,
    inside: list[ast.stmt],
) -> bool:
    """Build what runs only if ``is_left`` is not set, which is whether one of ``flags`` is.

    Gives whether its end can be reached. On the other way, the variables that it makes are never
    read.
    """
    scopes = context.scopes
    flags = [flag for flag in flags if flag.value is not False]
    skipped = VariableRegion(Block(), completes=False)
    with context.region() as region:
        for flag in flags:
            scopes.assign(flag, False)
        region.completes = build()
    for flag in flags:
        if region.changed[flag] is False:
            del region.changed[flag]
        elif len(flags) == 1:
            skipped.changed[flag] = True
    control_flow_joins.join(context, is_left, skipped, region, node, inside)
    return region.completes


def loop_exits(context: Context, body: list[ast.stmt]) -> LoopExits:
    """The flags that the statements of a loop can set; ``continued`` is for one iteration."""
    exits = LoopExits()
    if source.leaves_loop(body, ast.Break):
        exits.broken = _flag(context, "$broken")
    if source.leaves_loop(body, ast.Continue):
        exits.continued = _flag(context, "$continued")
    return exits


def _flag(context: Context, name: str) -> Variable:
    return Variable(name, False, (context.scopes.frame.key, name), u1)


@contextmanager
def iteration(context: Context, exits: LoopExits) -> Iterator[None]:
    """Build an iteration of a loop: no flag is set at its start."""
    scopes = context.scopes
    if exits.continued is not None:
        scopes.claim(exits.continued)
        exits.continued.value = False
    scopes.frame.loops.append(exits)
    try:
        yield
    finally:
        scopes.frame.loops.pop()


@contextmanager
def body(context: Context, exits: LoopExits) -> Iterator[None]:
    """Build the body of a loop that is not unrolled."""
    with iteration(context, exits), context.stops.block():
        yield


def lose_names(context: Context, loop: ast.For | ast.While, region: VariableRegion) -> None:
    """Take the names that a loop made their values."""
    span, indices = context.span(loop), source.target_names(loop)
    for name in [*region.new, *region.removed]:
        context.scopes.lose([name], "index" if name in indices else "loop", span)
