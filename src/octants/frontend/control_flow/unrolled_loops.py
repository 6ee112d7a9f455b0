"""Unrolled loops: their body is built once for each item, which is known at compile time."""

from __future__ import annotations

import ast
from typing import Any

from octants.frontend import assignments
from octants.frontend.compile_time import compile_time_evaluation
from octants.frontend.context import Context
from octants.frontend.control_flow import early_exits
from octants.frontend.scope import LoopExits
from octants.frontend.syntax import source
from octants.frontend.values.expression_values import GroupedDomain, Variable
from octants.ir.core import Value
from octants.types.matrix_values import Vector


def items_of(context: Context, value: Any, node: ast.expr) -> list[Any]:
    """The items of a loop that is unrolled."""
    if isinstance(value, GroupedDomain):
        inner = compile_time_evaluation.iterate(context, value.inner, node)
        return [Vector(list(item) if isinstance(item, tuple) else [item]) for item in inner]
    return compile_time_evaluation.iterate(context, value, node)


def build(context: Context, node: ast.For, items: list[Any], flags: LoopExits) -> bool:
    """Build the body once for each item."""
    scopes = context.scopes
    before = set(scopes.frame.variables.values())
    if flags.broken is not None:
        scopes.claim(flags.broken)
    context.iterated.append((scopes.frame, node.iter))
    completes = _iterations(context, node, items, flags)
    context.iterated.pop()
    targets = source.target_names(node)
    for variable in scopes.frame.variables.values():
        if variable not in before:
            variable.is_loose = variable.is_past_index = variable.name in targets
    return completes


def _iterations(context: Context, node: ast.For, items: list[Any], flags: LoopExits) -> bool:
    """The iterations from the first of ``items`` on; gives whether the loop's end is reached."""
    scopes, frame = context.scopes, context.scopes.frame
    ends = [frame.returned] if flags.broken is None else [frame.returned, flags.broken]
    total = len(items)
    for position, item in enumerate(items):
        known = set(scopes.frame.variables.values())
        scopes.iterations.append(total - position)
        with early_exits.iteration(context, flags):
            assignments.bind_static(context, node.target, item)
            context.build(node.body)
        scopes.iterations.pop()
        for variable in scopes.frame.variables.values():
            variable.is_loose = variable.is_loose or variable not in known
        if any(flag.value is True for flag in ends):
            break
        is_left, rest = early_exits.any_set(context, ends), items[position + 1 :]
        if is_left is not None and rest:
            _skippable_iterations(context, node, rest, flags, is_left, ends)
            break
    return frame.returned.value is not True


def _skippable_iterations(
    context: Context,
    node: ast.For,
    items: list[Any],
    flags: LoopExits,
    is_left: Value,
    ends: list[Variable],
) -> None:
    """The iterations that run only if the loop has not been left."""
    early_exits.skippable(
        context, is_left, ends, lambda: _iterations(context, node, items, flags), node, [node]
    )
