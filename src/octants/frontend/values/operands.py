"""Operands of operators and functions: their types, conversions, and their elements.

A float beats an integer, the wider type the narrower one, unsigned beats signed. Python numbers
adapt: they count as the default integer and float types in deciding the type of a result, and then
take that type exactly. Vectors and matrices combine by element, with numbers and scalars too.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from typing import Any

from octants.diagnostics.errors import NotAValue
from octants.diagnostics.library_errors import ShapesDiffer
from octants.frontend.context import Context
from octants.frontend.values.expression_values import (
    ArrayReference,
    MatrixValue,
    describe,
    is_number,
)
from octants.ir.core import Value
from octants.types.scalars import DType, holds, promote, u1

RunTime = Value | MatrixValue


def operand(context: Context, x: Any) -> Any:
    """An operand of an operator: a Python number, a scalar, a vector or a matrix."""
    x = context.load(x)
    if is_number(x):
        return x.item() if hasattr(x, "item") else x
    if not isinstance(x, (Value, MatrixValue)):
        given, x = x, context.value(x)
        if not isinstance(x, (Value, MatrixValue)):
            context.fail(NotAValue(describe(given), element_of(given)))
    return x


def element_of(given: Any) -> str:
    """How to get at the numbers of an array or a member of an enum, or print a string; else ""."""
    if isinstance(given, enum.Enum):
        return "use its `.value`, or an `enum.IntEnum`, whose members are numbers"
    if isinstance(given, str):
        return "strings are for `print`, which takes them and numbers one by one, or an f-string"
    if not isinstance(given, ArrayReference):
        return ""
    if not given.array.rank:
        return f"use its element: `{given.array.name}[None]`"
    return "loop over its elements: `for i in a: ... a[i] ...`"


def dtype_of(x: RunTime) -> DType:
    """The type of a scalar, or of the elements of a vector or matrix."""
    return x.type if isinstance(x, Value) else x.dtype


def common_type(context: Context, *operands: Any) -> DType:
    """The common type of operands."""
    known = [dtype_of(x) for x in operands if not is_number(x)]
    types = known + [_adapted(context, x, known) for x in operands if is_number(x)]
    return functools.reduce(promote, types)


def _adapted(context: Context, number: Any, known: list[DType]) -> DType:
    """The type that a number counts as: its default, unless only another operand can hold it."""
    dtype = context.type_of_number(number)
    if dtype.is_integer and dtype is not context.default_int:
        holding = [other for other in known if other.is_integer and holds(other, number)]
        return holding[0] if holding else dtype
    return dtype


def as_type(context: Context, x: Any, dtype: DType) -> RunTime:
    """A number, scalar, vector or matrix with elements of ``dtype``."""
    if is_number(x):
        return context.constant(x, dtype)
    if isinstance(x, MatrixValue):
        return as_matrix(context, x, dtype)
    value: Value = context.builder.cast(x, dtype)
    return value


def as_matrix(context: Context, x: MatrixValue, dtype: DType) -> MatrixValue:
    """Convert the elements of a matrix."""
    return MatrixValue(x.shape, [context.builder.cast(e, dtype) for e in x.elements])


def elementwise(
    context: Context, name: str, function: Callable[..., Value], *operands: RunTime
) -> RunTime:
    """``function`` of scalars, for each element; scalars go with every element."""
    matrices = [x for x in operands if isinstance(x, MatrixValue)]
    if not matrices:
        return function(*operands)
    first = matrices[0]
    for other in matrices[1:]:
        if other.shape != first.shape:
            is_product = name == "*" and first.shape[-1] == other.shape[0]
            way_out = "`*` multiplies elements; the matrix product is `@`" if is_product else ""
            context.fail(ShapesDiffer(name, describe(first), describe(other), way_out))
    count = len(first.elements)
    columns = [x.elements if isinstance(x, MatrixValue) else [x] * count for x in operands]
    return MatrixValue(first.shape, [function(*row) for row in zip(*columns, strict=True)])


def number_type(context: Context, *operands: Any) -> DType:
    """The common type to compute in: truth values become integers."""
    dtype = common_type(context, *operands)
    return context.default_int if dtype is u1 else dtype


def as_float(context: Context, x: Any) -> RunTime:
    """An operand for a function of floats: integers become the default float."""
    if is_number(x):
        return context.constant(x, context.default_float)
    dtype = dtype_of(x)
    return x if dtype.is_float else as_type(context, x, context.default_float)


def apply(context: Context, fn: str, name: str, dtype: DType, *operands: Any) -> RunTime:
    """A function of the IR on operands converted to ``dtype``; `name` is for messages."""
    converted = [as_type(context, x, dtype) for x in operands]
    build = context.builder.unary if len(operands) == 1 else context.builder.binary
    return elementwise(context, name, functools.partial(build, fn), *converted)
