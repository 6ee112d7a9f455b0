"""Assignments to names, parts of variables, elements of arrays, and several of these at once."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from octants.diagnostics.errors import (
    NotAssignable,
    TypeChange,
    UnsupportedSyntax,
    UserError,
    WrongUnpacking,
)
from octants.frontend.compile_time import compile_time_evaluation
from octants.frontend.context import Context
from octants.frontend.memory import references
from octants.frontend.values import flattening, lossy_assignments
from octants.frontend.values.expression_values import (
    ElementReference,
    MatrixValue,
    StructValue,
    Variable,
    VariableReference,
    describe,
    is_number,
)
from octants.ir.core import Value
from octants.types.default_types import resolve
from octants.types.matrix_types import MatrixType
from octants.types.matrix_values import Matrix
from octants.types.scalars import DType
from octants.types.structs import StructType


def assign(context: Context, target: ast.expr, value: Any) -> None:
    """Give a target of an assignment a value."""
    if isinstance(target, ast.Name):
        assign_name(context, target.id, value, target)
    elif isinstance(target, (ast.Tuple, ast.List)):
        for part, item in zip(target.elts, unpack(context, target, value), strict=True):
            assign(context, part, item)
    else:
        store(context, reference_of(context, target), value, target)


def store(context: Context, reference: Any, value: Any, node: ast.AST) -> None:
    """Store what an assignment gives; a warning if a part of it is lost."""
    lossy_assignments.check(context, reference, value, node)
    context.store(reference, value, node)


def reference_of(context: Context, target: ast.expr) -> Any:
    """A reference to what a subscript or an attribute names as the target of an assignment."""
    reference = context.evaluate_reference(target)
    is_struct = isinstance(reference, StructValue) and references.is_reference(reference)
    if not is_struct and not isinstance(reference, (ElementReference, VariableReference)):
        context.fail(_not_assignable(context, target), target)
    return reference


def _not_assignable(context: Context, target: ast.expr) -> NotAssignable:
    what = describe_target(target)
    root = target
    while isinstance(root, (ast.Subscript, ast.Attribute)):
        root = root.value
    variable = context.scopes.frame.variables.get(getattr(root, "id", ""))
    if variable is not None and isinstance(variable.value, list):
        return NotAssignable(what, "make the list a `qd.Vector([...])`: its elements have one type")
    if variable is not None and isinstance(variable.value, np.ndarray):
        return NotAssignable(what, "make a vector: `qd.Vector.zero(qd.f32, n)`; numpy is Python's")
    return NotAssignable(what)


def describe_target(target: ast.expr) -> str:
    """The source text of a target, for messages."""
    return f"`{ast.unparse(target)}`"


def unpack(context: Context, target: ast.Tuple | ast.List, value: Any) -> list[Any]:
    """An item for each target: those of a tuple, the elements of a vector, the rows of a matrix."""
    for part in target.elts:
        if isinstance(part, ast.Starred):
            way_out = "unpack into one name for each item"
            context.fail(UnsupportedSyntax("a starred target", way_out), part)
    if isinstance(value, (Value, StructValue)) or is_number(value):
        context.fail(WrongUnpacking(len(target.elts), describe(value)), target)
    items = compile_time_evaluation.iterate(context, value, target)
    if len(items) != len(target.elts):
        context.fail(WrongUnpacking(len(target.elts), describe(value)), target)
    return items


# -- names -----------------------------------------------------------------------------------------


def assign_name(context: Context, name: str, value: Any, node: ast.AST) -> None:
    """Assign to a local variable; the first assignment fixes its type."""
    variable = context.scopes.frame.variables.get(name)
    if variable is not None and references.is_reference(variable.value):
        store(context, variable.value, value, node)
    elif variable is None or _is_rebindable(context, variable, value):
        if isinstance(value, list) and context.scopes.frame.source.changes_parts(name):
            value = _as_vector(context, value)
        if type(value) is dict and context.scopes.frame.source.changes_parts(name):
            value = _with_run_time_items(context, value)
        context.scopes.declare(name, initial(context, value, node))
    else:
        store(context, VariableReference(variable), value, node)


def _with_run_time_items(context: Context, table: dict[Any, Any]) -> dict[Any, Any]:
    """A dictionary whose items are assigned: its numbers are values of a type."""
    items = [context.value(leaf) for leaf in flattening.leaves(table)]
    changed: dict[Any, Any] = flattening.rebuild(table, items)
    return changed


def _as_vector(context: Context, items: list[Any]) -> Any:
    """A list whose elements are assigned, as a vector or matrix; as it is if their types differ."""
    rows = [row if isinstance(row, list) else [row] for row in map(context.load, items)]
    numbers = [context.load(item) for row in rows for item in row]
    if not all(isinstance(item, Value) or is_number(item) for item in numbers):
        return items
    return context.value(items) if len(set(_types_of(context, numbers))) == 1 else items


def _is_rebindable(context: Context, variable: Variable, value: Any) -> bool:
    """Whether an assignment may give a variable another type.

    It may if the variable holds a Python object or a tuple or list of another length, or was first
    assigned by an earlier iteration of an unrolled loop, and no run-time condition or loop stands
    between that and here. The index of an unrolled loop that has ended is no more than a name.
    """
    if variable.is_past_index:
        return True
    if not context.scopes.is_claimed(variable):
        return False
    held = variable.value
    holds_object = flattening.has_object(held) and not variable.in_memory
    is_resized = (
        isinstance(held, (tuple, list)) and type(held) is type(value) and len(held) != len(value)
    )
    return variable.is_loose or holds_object or is_resized


def initial(context: Context, value: Any, node: ast.AST) -> Any:
    """The initial value of a variable: numbers become run-time values, Python objects stay."""
    value = context.load(value)
    if is_number(value) or isinstance(value, Matrix):
        return context.value(value)
    if isinstance(value, StructValue):
        members = {name: initial(context, x, node) for name, x in value.members.items()}
        return StructValue(members, value.python_type)
    if value is None:
        refuse_none(context, node)
    return value


def refuse_none(context: Context, node: ast.AST) -> NoReturn:
    """The error where None is to be the value of a variable."""
    context.fail(compile_time_evaluation.none_is_not_a_value(), node)


def declare_typed(context: Context, name: str, kind: Any, value: Any, node: ast.AST) -> None:
    """``name: kind = value``: a new variable of a stated type."""
    variable = context.scopes.frame.variables.get(name)
    dtype = scalar_type(context, kind)
    if dtype is not None:
        lossy_assignments.check_stated(context, dtype, value, node)
    given = context.load(value)
    if dtype is None or not (dtype.is_float and is_number(given)):
        given = initial(context, given, node)
    new = as_kind(context, kind, given, name, node)
    if variable is None or _is_rebindable(context, variable, new):
        context.scopes.declare(name, new)
        return
    is_reference = references.is_reference(variable.value)
    held = context.load(variable.value if is_reference else VariableReference(variable))
    if is_type(kind) and _types(context, held) != _types(context, new):
        context.fail(TypeChange(name, describe(held), describe(new)), node)
    assign_name(context, name, new, node)


def _types(context: Context, value: Any) -> list[DType]:
    """The types of the scalars of a value."""
    return _types_of(context, flattening.leaves(value))


def _types_of(context: Context, scalars: list[Any]) -> list[DType]:
    return [context.type_of_number(x) if is_number(x) else x.type for x in scalars]


Misfit = Callable[[str, str, str], UserError]
"""The error where a value does not fit a type: of a name, what it is, and what is given."""


def as_kind(
    context: Context, kind: Any, value: Any, name: str, node: ast.AST, misfit: Misfit = TypeChange
) -> Any:
    """A value converted to the type that an annotation names; other annotations are ignored."""
    if isinstance(kind, MatrixType):
        value = context.value(value)
        if not isinstance(value, MatrixValue) or value.shape != kind.element_shape:
            context.fail(misfit(name, f"a {kind}", describe(value)), node)
        dtype = scalar_type(context, kind.python_dtype)
        return value if dtype is None else references.cast(context, value, dtype)
    if isinstance(kind, StructType):
        return _as_struct(context, kind, value, name, node, misfit)
    dtype = scalar_type(context, kind)
    if dtype is None:
        return value
    if not isinstance(value, Value) and not is_number(value):
        context.fail(misfit(name, f"declared as {dtype}", describe(value)), node)
    lossy_assignments.check_stated(context, dtype, value, node)
    return references.cast(context, value, dtype)


def _as_struct(
    context: Context, kind: StructType, value: Any, name: str, node: ast.AST, misfit: Misfit
) -> Any:
    if not isinstance(value, StructValue) or set(value.members) != set(kind.members):
        context.fail(misfit(name, f"a {kind.name}", describe(value)), node)
    members = {
        member: as_kind(context, inner, value.members[member], f"{name}.{member}", node, misfit)
        for member, inner in kind.members.items()
    }
    return StructValue(members, kind)


def scalar_type(context: Context, kind: Any) -> DType | None:
    """The scalar type that an annotation names; None for others."""
    if isinstance(kind, type) and issubclass(kind, np.generic):
        return resolve(kind)
    return kind if isinstance(kind, DType) else context.default_type(kind)


def is_type(kind: Any) -> bool:
    """Whether an annotation is a type that values are converted to."""
    if isinstance(kind, type):
        return kind in (int, float, bool) or issubclass(kind, np.generic)
    return isinstance(kind, (DType, MatrixType, StructType))


def is_hint(kind: Any) -> bool:
    """Whether an annotation of a variable is a type, or one of those that Python ignores."""
    return is_type(kind) or isinstance(kind, type) or type(kind).__module__ in ("typing", "types")


# -- compile time ----------------------------------------------------------------------------------


def bind_static(context: Context, target: ast.expr, value: Any) -> None:
    """Let the target of an unrolled loop stand for an item, a Python object or a value."""
    if isinstance(target, (ast.Tuple, ast.List)):
        for part, item in zip(target.elts, unpack(context, target, value), strict=True):
            bind_static(context, part, item)
    elif isinstance(target, ast.Name):
        context.scopes.declare(target.id, value).is_loose = True
    else:
        context.fail(NotAssignable(describe_target(target)), target)
