"""Views of ndarrays in kernels: ``v[i]``, ``v.size``, ``v.subview(offset, size)``, loops.

A view is a struct of an array, the first element and the number of elements. So an element of it
is an element of the array, and its gradient belongs to that.
"""

from __future__ import annotations

import ast
from typing import Any

from octants.diagnostics.errors import WrongArguments
from octants.frontend.context import Context
from octants.frontend.memory import references
from octants.frontend.values.expression_values import StructValue, is_number
from octants.ir.core import Value
from octants.types.scalars import i32


def element(context: Context, view: StructValue, index: Value) -> Any:
    """A reference to an element; with `debug`, one that the view does not have is an error."""
    if context.debug:
        _check(context, view, index)
    offset = context.builder.cast(view.members["offset"], index.type)
    position = context.builder.binary("add", offset, index)
    return references.whole_element(view.members["array"], (position,))


def _check(context: Context, view: StructValue, index: Value) -> None:
    builder = context.builder
    size = builder.cast(view.members["size"], index.type)
    not_below = builder.compare("ge", index, builder.constant(0, index.type))
    in_range = builder.binary("and", not_below, builder.compare("lt", index, size))
    name = view.members["array"].array.name.removesuffix("_array")
    message = f"index {{}} is out of bounds for the view `{name}`, whose size is {{}}"
    builder.assert_("bounds", message, in_range, [index, size])


def subview(
    context: Context, node: ast.AST, view: StructValue, args: list[Any], named: dict[str, Any]
) -> StructValue:
    """``v.subview(offset, size)``: a part of a view."""
    bounds = dict(zip(("offset", "size"), args, strict=False)) | named
    if set(bounds) != {"offset", "size"} or len(args) + len(named) != 2:
        context.fail(WrongArguments("subview", "takes an offset and a size"), node)
    given = [_integer(context, bounds[name], node) for name in ("offset", "size")]
    if context.debug:
        _check_part(context, view, *given)
    first = context.builder.binary("add", view.members["offset"], given[0])
    members = {**view.members, "offset": first, "size": given[1]}
    return StructValue(members, view.python_type)


def part(context: Context, view: StructValue, node: ast.Slice) -> StructValue:
    """``v[i:j]``: as of a list of Python, so that bounds beyond an end stand for that end."""
    if node.step is not None:
        context.fail(WrongArguments("a slice of a view", "takes no step"), node.step)
    builder, size = context.builder, view.members["size"]
    zero = builder.constant(0, i32)
    first = _bound(context, view, node.lower, zero)
    end = _bound(context, view, node.upper, size)
    count = builder.binary("max", builder.binary("sub", end, first), zero)
    offset = builder.binary("add", view.members["offset"], first)
    return StructValue({**view.members, "offset": offset, "size": count}, view.python_type)


def _bound(context: Context, view: StructValue, node: ast.expr | None, default: Value) -> Value:
    """A bound of a slice, from 0 to the size: negative ones count from the end."""
    stated = None if node is None else context.evaluate(node)
    if node is None or stated is None:
        return default
    builder, size = context.builder, view.members["size"]
    given = _integer(context, stated, node, "a slice of a view")
    zero = builder.constant(0, i32)
    is_negative = builder.compare("lt", given, zero)
    position = builder.select(is_negative, builder.binary("add", given, size), given)
    return builder.binary("min", builder.binary("max", position, zero), size)


def _integer(context: Context, arg: Any, node: ast.AST, what: str = "subview") -> Value:
    if not is_number(arg) and (not isinstance(arg, Value) or arg.type.is_float):
        context.fail(WrongArguments(what, "takes integers"), node)
    return context.builder.cast(context.value(arg), i32)


def _check_part(context: Context, view: StructValue, offset: Value, size: Value) -> None:
    builder = context.builder
    zero, whole = builder.constant(0, i32), view.members["size"]
    signs = [builder.compare("ge", each, zero) for each in (offset, size)]
    rest = builder.binary("sub", whole, offset)
    fits = builder.binary("and", *signs)
    fits = builder.binary("and", fits, builder.compare("le", size, rest))
    message = "a subview of {} elements from {} is beyond its view, whose size is {}"
    builder.assert_("bounds", message, fits, [size, offset, whole])
