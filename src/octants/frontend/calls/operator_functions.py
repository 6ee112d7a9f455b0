"""Python's module ``operator`` in kernels, and functions that call others: ``map``, ``reduce``."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from typing import Any

from octants.diagnostics.errors import WrongArguments
from octants.frontend import expressions
from octants.frontend.compile_time import compile_time_evaluation
from octants.frontend.context import Context
from octants.frontend.control_flow import conditions

Handler = Callable[[Context, ast.Call, list[Any], dict[str, Any]], Any]
Call = Callable[[Context, ast.Call, Any, list[Any], dict[str, Any]], Any]


def _operator(count: int, build: Callable[..., Any]) -> Handler:
    """A handler of a function with so many operands; ``build(context, node, *operands)``."""

    def handler(context: Context, node: ast.Call, args: list[Any], named: dict[str, Any]) -> Any:
        if named or len(args) != count:
            problem = "takes one operand" if count == 1 else f"takes {count} operands"
            context.fail(WrongArguments(ast.unparse(node.func), problem), node)
        return build(context, node, *args)

    return handler


def _binary(op: ast.operator) -> Handler:
    return _operator(
        2, lambda context, node, a, b: expressions.binary_operation(context, op, a, b, node)
    )


def _comparison(op: ast.cmpop) -> Handler:
    return _operator(2, lambda context, node, a, b: conditions.compare(context, op, a, b, node))


def _unary(symbol: str) -> Handler:
    return _operator(
        1, lambda context, node, x: expressions.unary_operation(context, symbol, x, node)
    )


FUNCTIONS: dict[Any, Handler] = {
    **{function: _binary(kind()) for kind, (_, function) in expressions.BINARY.items()},
    **{function: _comparison(kind()) for kind, (_, function) in conditions.COMPARISONS.items()},
    **{function: _unary(symbol) for symbol, function in expressions.UNARY_FUNCTIONS.items()},
}
"""How a call of a function of ``operator`` is built."""


def _map(context: Context, node: ast.Call, call: Call, args: list[Any]) -> Any:
    if len(args) < 2:
        context.fail(WrongArguments("map", "takes a function and what it is applied to"), node)
    columns = [compile_time_evaluation.iterate(context, each, node) for each in args[1:]]
    return [call(context, node, args[0], list(row), {}) for row in zip(*columns, strict=False)]


def _reduce(context: Context, node: ast.Call, call: Call, args: list[Any]) -> Any:
    if len(args) not in (2, 3):
        context.fail(WrongArguments("reduce", "takes a function and what it is applied to"), node)
    items = [*args[2:], *compile_time_evaluation.iterate(context, args[1], node)]
    if not items:
        context.fail(WrongArguments("reduce", "has nothing to begin with"), node)
    return functools.reduce(lambda x, y: call(context, node, args[0], [x, y], {}), items)


CALLING: dict[Any, Callable[[Context, ast.Call, Call, list[Any]], Any]] = {
    map: _map,
    functools.reduce: _reduce,
}
"""How functions are built that call their first argument."""
