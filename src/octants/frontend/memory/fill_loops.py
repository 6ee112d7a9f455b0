"""``x.fill(value)`` of fields, arrays and their companions: a loop over the elements.

The loop is a parallel one at the top level of a kernel, and a serial one elsewhere.
"""

from __future__ import annotations

import ast
from types import FunctionType
from typing import Any, cast

from octants.diagnostics.errors import WrongArguments
from octants.diagnostics.library_errors import WrongShape
from octants.frontend.calls import functions
from octants.frontend.context import Context
from octants.frontend.values import lossy_assignments
from octants.frontend.values.expression_values import (
    ArrayReference,
    MatrixValue,
    StructValue,
    describe,
    is_number,
)
from octants.ir.core import Value
from octants.lang.atomics_and_random import _fill_elements
from octants.types.structs import Struct


def is_fillable(owner: Any) -> bool:
    """Whether this is an array, or a struct of arrays."""
    if isinstance(owner, StructValue):
        return bool(owner.members) and all(map(is_fillable, owner.members.values()))
    return isinstance(owner, ArrayReference)


def fill(
    context: Context, node: ast.Call, owner: Any, args: list[Any], named: dict[str, Any]
) -> None:
    """Set all elements to a value; of structs, to a struct, or all members to a number."""
    given = [*args, *named.values()]
    if len(given) != 1 or set(named) - {"val"}:
        context.fail(WrongArguments("fill", "takes one value"), node)
    _fill(context, node, owner, given[0])


def _fill(context: Context, node: ast.Call, owner: Any, value: Any) -> None:
    if isinstance(owner, StructValue):
        for name, member in owner.members.items():
            _fill(context, node, member, _member_of(context, node, owner, value, name))
        return
    value = value if is_number(value) else context.value(value)
    shape = owner.array.element_shape
    fits = value.shape == shape if isinstance(value, MatrixValue) else _is_scalar(value)
    if not fits:
        wanted = f"elements of shape {shape}" if shape else "numbers"
        context.fail(WrongShape(f"{owner.array.name}.fill", wanted, describe(value)), node)
    lossy_assignments.check(context, owner, value, node)
    values = {"array": owner, "value": value}
    function = cast(FunctionType, _fill_elements)
    functions.inline(context, node, function, values, frozenset(values))


def _is_scalar(value: Any) -> bool:
    return is_number(value) or isinstance(value, Value)


def _member_of(context: Context, node: ast.Call, owner: StructValue, value: Any, name: str) -> Any:
    """The value that fills a member."""
    members = value.entries if isinstance(value, Struct) else getattr(value, "members", None)
    if members is None:
        return value
    if set(members) != set(owner.members):
        wanted = f"structs of {', '.join(owner.members)}"
        context.fail(WrongShape("fill", wanted, f"one of {', '.join(members)}"), node)
    return members[name]
