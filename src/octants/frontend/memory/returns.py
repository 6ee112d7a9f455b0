"""The returned values of a kernel: memory that `return` stores to."""

from __future__ import annotations

import ast
from itertools import zip_longest
from typing import Any

from octants.diagnostics.errors import WrongReturn
from octants.frontend import assignments
from octants.frontend.context import Context
from octants.frontend.memory import references
from octants.frontend.values import lossy_assignments
from octants.frontend.values.expression_values import (
    ArrayReference,
    MatrixValue,
    StructValue,
    describe,
    is_number,
)
from octants.ir.core import Value
from octants.types.specialisation_signature import (
    ReturnType,
    ScalarType,
    StructArgument,
    scalars_of,
)


class Returns:
    """The return values of the kernel; without an annotation, as the first `return` gives them."""

    def __init__(self, context: Context, declared: tuple[ReturnType, ...] | None) -> None:
        self.declared = declared or ()
        self.types: list[ScalarType] = []
        self.references: list[ArrayReference] = []
        self.is_declared = declared is not None
        self.is_tuple = declared is not None and len(declared) > 1
        for kind in self.declared:
            for scalar in scalars_of(kind):
                self.add(context, scalar)

    def add(self, context: Context, kind: ScalarType) -> None:
        self.references.append(context.arrays.returned(len(self.types), kind))
        self.types.append(kind)


def store(context: Context, value: Any, node: ast.Return) -> None:
    """Store what a `return` of the kernel gives."""
    returns: Returns = context.returns
    if any(isinstance(kind, StructArgument) for kind in returns.declared):
        items = _flattened(context, value, node)
    elif isinstance(value, tuple) and len(returns.types) != 1:
        kinds = returns.types[: len(value)]
        items = [_value(context, item, kind) for item, kind in zip_longest(value, kinds)]
    else:
        items = [_value(context, value, returns.types[0] if returns.types else None)]
    if not returns.types:
        returns.is_tuple = isinstance(value, tuple)
        for item in items:
            returns.add(context, _type_of(context, item, node))
    if len(items) != len(returns.types):
        problem = f"the number of returned values is {len(items)}, not {len(returns.types)}"
        context.fail(WrongReturn(problem, _way_out(returns)), node)
    if returns.is_declared:
        _check_literals(context, value, node)
    for item, reference, kind in zip(items, returns.references, returns.types, strict=True):
        given = _type_of(context, item, node)
        if not returns.is_declared and given.dtype.is_float and not kind.dtype.is_float:
            problem = f"one `return` gives {kind.dtype}, another one {given.dtype}"
            context.fail(WrongReturn(problem, "annotate the kernel: `-> qd.f32`"), node)
        if given.element_shape != kind.element_shape:
            wanted = "a scalar" if not kind.element_shape else f"of shape {kind.element_shape}"
            problem = f"the return value is {wanted}, not {describe(item)}"
            context.fail(WrongReturn(problem, _way_out(returns)), node)
        context.store(references.whole_element(reference, ()), item, node)


def _value(context: Context, item: Any, kind: ReturnType | None) -> Any:
    """A returned item; a number has the type of a float that is declared, without rounding."""
    item = context.load(item)
    if isinstance(kind, ScalarType) and kind.dtype.is_float and not kind.element_shape:
        return context.constant(item, kind.dtype) if is_number(item) else context.value(item)
    return context.value(item)


def _check_literals(context: Context, value: Any, node: ast.Return) -> None:
    values = value if isinstance(value, tuple) else (value,)
    for kind, item in zip(context.returns.types, values, strict=False):
        lossy_assignments.check_stated(context, kind.dtype, item, node)


def _flattened(context: Context, value: Any, node: ast.Return) -> list[Any]:
    """The scalars, vectors and matrices of values some of which are declared as structs."""
    declared = context.returns.declared
    values = value if isinstance(value, tuple) and len(declared) > 1 else (value,)
    if len(values) != len(declared):
        problem = f"the number of returned values is {len(values)}, not {len(declared)}"
        context.fail(WrongReturn(problem, _way_out(context.returns)), node)
    items = []
    for kind, given in zip(declared, values, strict=True):
        items += _leaves(context, kind, context.load(given), node)
    return items


def _leaves(context: Context, kind: Any, value: Any, node: ast.Return) -> list[Any]:
    if not isinstance(kind, StructArgument):
        return [_value(context, value, kind)]
    names = [name for name, _ in kind.members]
    if not isinstance(value, StructValue) or set(value.members) != set(names):
        members = ", ".join(f"`{name}`" for name in names)
        problem = f"the return value is a struct with {members}, not {describe(value)}"
        context.fail(WrongReturn(problem, _CHANGE), node)
    items = []
    for name, member in kind.members:
        items += _leaves(context, member, context.load(value.members[name]), node)
    return items


def converted(context: Context, value: Any, node: ast.AST) -> Any:
    """The returned value of an inlined function, as the type of its annotation."""
    frame = context.scopes.frame
    kind, name = frame.returns, frame.function.__name__
    if isinstance(kind, tuple):
        items = value if isinstance(value, (tuple, list)) else [value]
        if len(items) != len(kind):
            problem = f"`{name}` returns {len(kind)} values by its annotation, not {len(items)}"
            context.fail(WrongReturn(problem, _CHANGE), node)
        pairs = zip(kind, items, strict=True)
        return tuple(_as_kind(context, each, item, name, node) for each, item in pairs)
    return _as_kind(context, kind, value, name, node)


def _as_kind(context: Context, kind: Any, value: Any, name: str, node: ast.AST) -> Any:
    dtype = assignments.scalar_type(context, kind)
    if dtype is not None and isinstance(value, MatrixValue):
        return references.cast(context, value, dtype)
    return assignments.as_kind(context, kind, value, f"the value of `{name}`", node, _misfit)


def _misfit(name: str, wanted: str, given: str) -> WrongReturn:
    return WrongReturn(f"{name} is {wanted}, and not {given}", _CHANGE)


_CHANGE = "change the annotation after `->`, which says what is returned, or this `return`"


def _way_out(returns: Returns) -> str:
    """The remedy for values other than the expected ones."""
    if returns.is_declared:
        return _CHANGE
    return "return the same number of values, of the same shapes, everywhere"


def _type_of(context: Context, item: Any, node: ast.Return) -> ScalarType:
    if isinstance(item, Value):
        return ScalarType(item.type)
    if isinstance(item, MatrixValue):
        return ScalarType(item.dtype, item.shape)
    problem = f"a kernel cannot return {describe(item)}"
    return context.fail(WrongReturn(problem), node)
