"""Operators on structs, which methods such as ``__add__`` of their types define."""

from __future__ import annotations

import ast
from typing import Any

from octants.diagnostics.errors import NotAValue
from octants.frontend.calls.inlined_calls import inline_call
from octants.frontend.compile_time import name_resolution
from octants.frontend.context import NOT_FOUND, Context
from octants.frontend.values import arithmetic
from octants.frontend.values.expression_values import StructValue, describe
from octants.types.struct_classes import UNARY_METHODS, operator_methods
from octants.types.structs import StructType


def binary(context: Context, symbol: str, left: Any, right: Any, node: ast.AST) -> Any:
    """``left symbol right``, by a method of `left`, else of `right`; NOT_FOUND if none has one.

    It fails where a struct type could have had one.
    """
    of_left, of_right = operator_methods(symbol)
    for owner, other, name in ((left, right, of_left), (right, left, of_right)):
        method = _method(context, owner, name, node)
        if method is not None:
            return inline_call(context, node, method, [other], {})
    if symbol == "!=":
        equal = binary(context, "==", left, right, node)
        return equal if equal is NOT_FOUND else arithmetic.unary(context, "not", equal)
    for owner, other, name in ((left, right, of_left), (right, left, of_right)):
        if isinstance(_kind(owner), StructType) and other is not None:
            way_out = f"define `{name}` in its class, decorated with `@qd.func`"
            context.fail(NotAValue(describe(owner), way_out), node)
    return NOT_FOUND


def unary(context: Context, symbol: str, operand: Any, node: ast.AST) -> Any:
    """``symbol operand``, by a method of the struct; NOT_FOUND if it has none."""
    method = _method(context, operand, UNARY_METHODS.get(symbol, ""), node)
    return NOT_FOUND if method is None else inline_call(context, node, method, [], {})


def _method(context: Context, operand: Any, name: str, node: ast.AST) -> Any:
    if name not in (getattr(_kind(operand), "methods", None) or {}):
        return None
    return name_resolution.attribute_of_type(context, _kind(operand), operand, name, node)


def _kind(operand: Any) -> Any:
    return operand.python_type if isinstance(operand, StructValue) else None
