"""Blocks whose loops may run at the same time: `stream_parallel`, and the sections of a region.

    with graph.parallel_context():      tasks of the sections have the options `group`, the number
        with graph.parallel():          of their section, and `region`, that of their region;
            ...                         `analysis.memory.concurrent_tasks` decides which overlap

In loops and conditions at run time, sections run in order.
"""

from __future__ import annotations

import ast

from octants.diagnostics.errors import UncutCheckpoint, WrongParallelSection, WrongStreamBlock
from octants.frontend.context import Context
from octants.lang import directives

_OUTSIDE = "`with qd.graph.parallel():` is not directly in a `with qd.graph.parallel_context():`"
_FOREIGN = (
    "`with qd.graph.parallel_context():` contains something other than"
    " `with qd.graph.parallel():` blocks"
)


def with_(context: Context, node: ast.With) -> bool | None:
    """Build a ``with`` of this kind; None if it is of another one."""
    call = node.items[0].context_expr
    if len(node.items) > 1 or not isinstance(call, ast.Call):
        return None
    word = context.evaluate(call.func)
    if word is directives.checkpoint:
        context.fail(UncutCheckpoint(), node)  # kernels are cut at those where they can pause
    name = next((name for known, name in _NAMES if known is word), None)
    if name is None:
        return None
    _check(context, node, call, name)
    if word is directives.parallel_context:
        return _region(context, node)
    if (word is directives.parallel) != context.in_region:
        context.fail(WrongParallelSection(_FOREIGN if context.in_region else _OUTSIDE), node)
    with context.beside():
        return context.build(node.body)


_NAMES = (
    (directives.stream_parallel, "stream_parallel"),
    (directives.parallel_context, "graph.parallel_context"),
    (directives.parallel, "graph.parallel"),
)


def _check(context: Context, node: ast.With, call: ast.Call, name: str) -> None:
    """That a block is given nothing, and stands at the top level."""
    if call.args or call.keywords or node.items[0].optional_vars:
        context.fail(WrongStreamBlock("takes no arguments, and has no value for `as`", name), node)
    if context.group or (context.in_region and name == "graph.parallel_context"):
        context.fail(WrongStreamBlock("cannot be nested", name), node)
    if not context.is_top_level and name == "stream_parallel":
        context.fail(WrongStreamBlock("stands in a loop or a condition", name), node)


def _region(context: Context, node: ast.With) -> bool:
    _check_region(context, node.body)
    with context.sections():
        return context.build(node.body)


def _check_region(context: Context, statements: list[ast.stmt]) -> None:
    """That statements are sections, or conditions around them."""
    for statement in statements:
        is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if isinstance(statement, ast.If):
            _check_region(context, [*statement.body, *statement.orelse])
        elif not isinstance(statement, (ast.With, ast.Pass)) and not is_text:
            context.fail(WrongParallelSection(_FOREIGN), statement)
