"""Assignments that lose a part of what is assigned: fractions, and the upper bits of integers.

The type of a variable or an array decides what is stored. A literal integer that does not fit is an
error, except in an update whose result wraps around, such as ``x += 300``. A float in an integer,
an integer of 64 bits in a narrower one, and an f64 in a variable of a narrower float, give a
warning for each line; integral literals, conversions that the program states, and truth values do
not, and no more do floats that an array rounds.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from octants.diagnostics.errors import LossyAssignment
from octants.diagnostics.library_errors import LiteralTooLarge
from octants.frontend.context import Context
from octants.frontend.memory import references
from octants.frontend.values import flattening
from octants.frontend.values.expression_values import (
    ArrayReference,
    ElementReference,
    StructValue,
    Variable,
    VariableReference,
    is_number,
    plain,
)
from octants.ir.core import Value
from octants.lang.library_function_marks import is_library_function
from octants.types.scalars import DType, Kind, f64, holds

_WRAPPING = ("add", "sub", "mul", "and", "or", "xor")
"""Updates of integers whose result does not depend on the upper bits of the operand."""


def check(context: Context, reference: Any, value: Any, node: ast.AST, update: str = "") -> None:
    """Note what an assignment of ``value`` to a reference loses; an error for a literal.

    ``reference`` may be a struct of references, or a variable. ``update`` is the atomic operation
    that combines the value with what is there; none for a store.
    """
    if is_library_function(context.scopes.frame.function):
        return
    types, given = list(types_at(reference)), flattening.leaves(context.load(value))
    if types and len(types) != len(given):
        types = types[:1] * len(given)  # a vector of a scalar, or components of one type
    for dtype, item in zip(types, given, strict=False):
        if dtype.is_integer and not dtype.is_bool:
            _check_item(context, dtype, item, node, wraps=update in _WRAPPING)
        elif isinstance(reference, (Variable, VariableReference)) and dtype.is_float:
            _check_digits(context, dtype, item, node)


def narrows_floats(context: Context, reference: Any, value: Any) -> bool:
    """Whether an update converts floats to a reference's type: integers, or narrower floats."""
    types, given = list(types_at(reference)), flattening.leaves(context.load(value))
    if not types or any(dtype.is_bool for dtype in types):
        return False
    kinds = (context.type_of_number(x) if is_number(x) else x.type for x in given)
    widths = [kind.bits for kind in kinds if kind.is_float]
    return any(dtype.is_integer or max(widths) > dtype.bits for dtype in types) if widths else False


def types_at(reference: Any) -> Iterator[DType]:
    """The types of the scalars of a reference; of an array, the one of all its scalars."""
    if isinstance(reference, ArrayReference):
        yield reference.array.dtype
    elif isinstance(reference, ElementReference):
        yield from (reference.array.dtype for _ in reference.components)
    elif isinstance(reference, Variable):
        yield from types_at(VariableReference(reference))
    elif isinstance(reference, VariableReference) and reference.variable.in_memory:
        yield from types_at(references.memory_of(reference))
    elif isinstance(reference, VariableReference):
        yield from (x.type for x in flattening.leaves(reference.held()) if isinstance(x, Value))
    elif isinstance(reference, StructValue):
        for member in reference.members.values():
            yield from types_at(member)


def _check_item(context: Context, dtype: DType, item: Any, node: ast.AST, *, wraps: bool) -> None:
    number = plain(context.known(item))
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if isinstance(number, int) and holds(dtype, number):
        return
    if is_number(item) and isinstance(number, int) and not (wraps and isinstance(item, int)):
        _check_literal(context, dtype, number, node)
        return
    given = context.type_of_number(item) if is_number(item) else item.type
    if given.is_float:
        loss = LossyAssignment(str(dtype), str(given), "its fraction is cut off")
    elif given.is_integer and given.bits == 64 > dtype.bits:
        loss = LossyAssignment(str(dtype), str(given), "its upper bits are cut off")
    else:
        return
    context.warn(loss, node)


def _check_digits(context: Context, dtype: DType, item: Any, node: ast.AST) -> None:
    """Warn of an f64 that a variable rounds: often it is an f32 because it began as a literal."""
    if isinstance(item, Value) and item.type is f64 is not dtype:
        loss = LossyAssignment(str(dtype), str(f64), "its last digits are cut off")
        context.warn(loss, node)


def check_stated(context: Context, dtype: DType, item: Any, node: ast.AST) -> None:
    """The error for a literal integer that does not fit the type that is stated for it.

    Annotations, and the types of vectors and structs, say that a number is converted, but hardly
    that a literal is to become another one.
    """
    if not dtype.is_integer or dtype.is_bool or not is_number(item):
        return
    number = plain(item)
    if isinstance(number, int) and not is_library_function(context.scopes.frame.function):
        _check_literal(context, dtype, number, node)


def _check_literal(context: Context, dtype: DType, number: int, node: ast.AST) -> None:
    is_pattern = dtype.kind is Kind.UNSIGNED and -(1 << (dtype.bits - 1)) <= number < 0
    if not holds(dtype, number) and not is_pattern:  # as -1 stands for all bits of an unsigned one
        way_out = f"`qd.cast({number}, qd.{dtype})` cuts off what does not fit"
        context.fail(LiteralTooLarge(number, dtype.name, way_out), node)
