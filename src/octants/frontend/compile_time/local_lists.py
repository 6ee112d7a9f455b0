"""Methods that change a Python list which a kernel made: ``values.append(x[i])``.

The list changes while the kernel is compiled, so its length is a constant: neither a loop nor a
condition at run time may stand between where the list is made and where it is changed.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from typing import Any

from octants.diagnostics.errors import ListChanges, PythonFunction
from octants.frontend.compile_time import compile_time_evaluation
from octants.frontend.context import Context
from octants.frontend.values.expression_values import Variable, VariableReference, is_run_time

_COMPARING = frozenset(("remove", "sort"))
"""Methods that compare items, which must be known at compile time."""

CHANGING = frozenset(("append", "clear", "extend", "insert", "pop", "reverse")) | _COMPARING

_OTHERS: dict[type, Collection[str]] = {
    list: CHANGING,
    dict: ("clear", "pop", "popitem", "setdefault", "update"),
    set: ("add", "clear", "discard", "pop", "remove", "update"),
}
"""The methods that change a container of Python, and not what a variable of a kernel holds."""

_COPYING = frozenset(("len", "list", "tuple", "sorted"))
"""Functions whose result a later change of their argument does not change."""


def is_changing(reference: Any, name: str) -> bool:
    """Whether a method of what is referred to changes a list that is the value of a variable."""
    is_variable = isinstance(reference, VariableReference) and not reference.path
    return is_variable and name in CHANGING and type(reference.variable.value) is list


def call(
    context: Context,
    node: ast.Call,
    variable: Variable,
    name: str,
    args: list[Any],
    named: dict[str, Any],
) -> Any:
    """Give a variable the changed list; the result is that of the method."""
    before = variable.value
    if not context.scopes.is_claimed(variable):
        context.fail(ListChanges(name, "where a loop or a condition decides how often"), node)
    check_holders(context, node, variable, name)
    if _is_used_beside(context.statement, node):
        context.fail(ListChanges(name, "that the same expression uses"), node)
    if name in _COMPARING and is_run_time((before, *args)):
        context.fail(PythonFunction(name, "compare the items in a loop"), node)
    if name in ("insert", "pop") and args:
        args[0] = compile_time_evaluation.static_value(context, args[0], node, "a position")
    if name == "extend":
        args = [compile_time_evaluation.iterate(context, arg, node) for arg in args]
    changed = list(before)
    result = compile_time_evaluation.call(context, node, getattr(changed, name), *args, **named)
    context.scopes.assign(variable, changed)
    return result


def check_holders(context: Context, node: ast.AST, variable: Variable, name: str) -> None:
    """Refuse a change of a variable's list that others hold, who would still have the old one."""
    items = variable.value
    for frame, over in context.iterated:
        if any(frame.variables.get(each.id) is variable for each in _wholes(over)):
            context.fail(ListChanges(name, "that a loop around it runs over"), node)
    held = [each for frame in context.scopes.frames for each in frame.variables.values()]
    if any(each is not variable and _holds(each.value, items) for each in held):
        context.fail(ListChanges(name, "while another variable holds the same list"), node)
    defaults = [each.default for known in context.parameters.values() for each in known]
    if any(_holds(value, items) for value in (*defaults, *(read.value for read in context.reads))):
        context.fail(ListChanges(name, "that Python made, not the kernel"), node)


def check_container(context: Context, node: ast.Attribute, base: Any) -> None:
    """Refuse a change of a container of Python that would happen once, while code is compiled."""
    if context.is_in_static or not any(node.attr in names for names in _OTHERS.values()):
        return
    owner = context.load(base)
    if node.attr not in _OTHERS.get(type(owner), ()):
        return
    where, is_own = "that is no variable of the kernel", isinstance(base, VariableReference)
    if is_own:
        where = "where a loop or a condition decides how often"
    if not (is_own and context.scopes.is_claimed(base.variable)):
        context.fail(ListChanges(node.attr, where, type(owner).__name__), node)


def _wholes(expression: ast.expr) -> Iterator[ast.Name]:
    """The names of which an expression uses the whole value, and not a part or a copy."""
    if isinstance(expression, ast.Name):
        yield expression
    is_call = isinstance(expression, ast.Call) and isinstance(expression.func, ast.Name)
    if isinstance(expression, (ast.Attribute, ast.Subscript)) or (
        is_call and expression.func.id in _COPYING  # type: ignore[attr-defined]
    ):
        return
    for each in ast.iter_child_nodes(expression):
        if isinstance(each, ast.expr):
            yield from _wholes(each)


def _is_used_beside(statement: ast.stmt | None, call: ast.Call) -> bool:
    """Whether another operand is a call's list as a whole, and would keep it as it was."""
    assert isinstance(call.func, ast.Attribute)
    name, own = ast.dump(call.func.value), set(ast.walk(call))
    parts = [statement.value] if isinstance(statement, ast.Assign) else _children(statement)
    operands = [node for part in parts for node in ast.walk(part) if node not in own]
    parts_of = (ast.Attribute, ast.Subscript)
    read_in_part = {each.value for each in operands if isinstance(each, parts_of)}
    return any(ast.dump(each) == name for each in operands if each not in read_in_part)


def _children(statement: ast.stmt | None) -> list[ast.expr]:
    """The expressions of a statement, without those of the statements in it."""
    children = ast.iter_child_nodes(statement) if statement else ()
    return [child for child in children if isinstance(child, ast.expr)]


def _holds(value: Any, items: list[Any]) -> bool:
    if type(value) is dict:
        value = [*value.values()]
    return value is items or (
        isinstance(value, (tuple, list)) and any(_holds(item, items) for item in value)
    )
