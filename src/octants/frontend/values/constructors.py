"""Values that are made by calling a type, or one of the functions of `Matrix`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from octants.diagnostics.errors import WrongArguments
from octants.diagnostics.exceptions import OctantsTypeError
from octants.diagnostics.library_errors import (
    LiteralTooLarge,
    NotAMember,
    WrongArgumentValue,
    WrongElements,
)
from octants.frontend.compile_time import compile_time_evaluation
from octants.frontend.context import Context
from octants.frontend.memory import indexing
from octants.frontend.values import arithmetic, lossy_assignments, matrices
from octants.frontend.values.expression_values import (
    ArrayReference,
    MatrixValue,
    StructValue,
    describe,
    is_number,
    is_view,
)
from octants.frontend.values.operands import RunTime, as_type, operand
from octants.ir.core import Value
from octants.types.matrix_types import MatrixType
from octants.types.scalars import DType, holds
from octants.types.structs import Struct, StructType

Arguments = Sequence[Any]
Keywords = dict[str, Any]


# -- scalars ---------------------------------------------------------------------------------------


def scalar(
    dtype: DType, context: Context, node: ast.AST, args: Arguments, kwargs: Keywords
) -> RunTime:
    """``f32(x)``: a conversion, of vectors too; a literal must fit."""
    if len(args) != 1 or kwargs:
        context.fail(WrongArguments(dtype.name, "takes one value"), node)
    value = operand(context, args[0])
    if is_number(value) and dtype.is_integer and not holds(dtype, value):
        way_out = f"`qd.cast({value}, qd.{dtype})` converts as at run time"
        context.fail(LiteralTooLarge(value, dtype.name, way_out), node)
    return as_type(context, value, dtype)


def python_scalar(
    kind: type, context: Context, node: ast.AST, args: Arguments, kwargs: Keywords
) -> Any:
    """``int(x)``, ``float(x)``, ``bool(x)``: to the default type; of numbers, by Python."""
    if len(args) != 1 or kwargs:
        context.fail(WrongArguments(kind.__name__, "takes one value"), node)
    value = args[0] if isinstance(args[0], str) else operand(context, args[0])
    if isinstance(value, str) or is_number(value):
        return compile_time_evaluation.call(context, node, kind, value)
    if kind is bool:
        return arithmetic.truth(context, value)
    return as_type(context, value, matrices.scalar_type(context, kind, kind.__name__, node))


def length(context: Context, node: ast.AST, x: Any) -> Any:
    """``len``: of a sequence, a vector, a matrix's rows, a view, the first axis of an array."""
    if isinstance(x, MatrixValue):
        return x.shape[0]
    if is_view(x):
        return x.members["size"]
    if isinstance(x, ArrayReference) and x.array.rank:
        return indexing.extent(context, x.array, 0)
    if isinstance(x, (Value, StructValue, ArrayReference)):
        problem = f"takes an array, a vector, a matrix or a tuple, not {describe(x)}"
        context.fail(WrongArguments("len", problem), node)
    return compile_time_evaluation.call(context, node, len, x)


# -- vectors and matrices --------------------------------------------------------------------------


def matrix(
    kind: MatrixType, context: Context, node: ast.AST, args: Arguments, kwargs: Keywords
) -> MatrixValue:
    """``vec3(x, y, z)``"""
    if kwargs:
        context.fail(WrongArguments(str(kind), "takes no arguments by name"), node)
    return matrices.of_type(context, node, kind, args)


make_matrix = matrices.make_matrix
make_vector = matrices.make_vector


def filled(number: int) -> Callable[..., MatrixValue]:
    """``Matrix.zero`` and ``Matrix.one``"""

    def build(context: Context, node: ast.AST, dt: Any, n: Any, m: Any = None) -> MatrixValue:
        dtype = matrices.scalar_type(context, dt, "Matrix.zero", node)
        extents = (_extent(context, node, n),)
        if m is not None:
            extents = (*extents, _extent(context, node, m))  # type: ignore[assignment]
        return matrices.filled(context, extents, number, dtype)

    return build


def _extent(context: Context, node: ast.AST, n: Any) -> int:
    n = context.known(n)
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        problem = f"an extent is a positive number known at compile time, not {describe(n)}"
        context.fail(WrongElements("a matrix", problem), node)
    return n


def unit(context: Context, node: ast.AST, n: Any, i: Any, dt: Any = None) -> MatrixValue:
    """``Matrix.unit``; the position of the 1 may be known at run time."""
    dtype = context.default_int if dt is None else matrices.scalar_type(context, dt, "unit", node)
    position = operand(context, i)
    positions = range(_extent(context, node, n))
    elements = [arithmetic.compare(context, "==", position, k) for k in positions]
    return matrices.uniform(context, (len(positions),), elements, dtype)


def identity(context: Context, node: ast.AST, dt: Any, n: Any) -> MatrixValue:
    """``Matrix.identity``"""
    dtype = matrices.scalar_type(context, dt, "Matrix.identity", node)
    return matrices.diagonal(context, _extent(context, node, n), 1, dtype)


def diag(context: Context, node: ast.AST, dim: Any, val: Any) -> MatrixValue:
    """``Matrix.diag``"""
    return matrices.diagonal(context, _extent(context, node, dim), val)


def rows(context: Context, node: ast.AST, rows: Any) -> MatrixValue:
    """``Matrix.rows``"""
    made = matrices.make_matrix(context, node, rows)
    if made.is_vector:
        context.fail(WrongElements("a matrix", "rows() and cols() take vectors or lists"), node)
    return made


def cols(context: Context, node: ast.AST, cols: Any) -> MatrixValue:
    """``Matrix.cols``"""
    return matrices.transpose(context, rows(context, node, cols))


# -- structs ---------------------------------------------------------------------------------------


def struct(
    kind: StructType, context: Context, node: ast.AST, args: Arguments, kwargs: Keywords
) -> StructValue:
    """``Particle(position, mass=1.0)``: values by position or name, or their defaults."""
    try:
        bound = kind.bind(tuple(args), kwargs)
    except OctantsTypeError as error:
        problem = str(error.diagnostic.title if error.diagnostic else error)
        text = problem.removeprefix(f"{kind.name} ")
        context.fail(NotAMember(kind.name, text, ", ".join(kind.members)), node)
    members = {
        name: member_value(context, node, kind.members[name], x) for name, x in bound.items()
    }
    return StructValue(members, kind)


def member_value(context: Context, node: ast.AST, kind: Any, x: Any) -> Any:
    """A value as a member of this type.

    A number fills a vector or a matrix; of a struct it is the first member.
    """
    if isinstance(kind, StructType):
        if isinstance(x, StructValue):
            return struct(kind, context, node, [], x.members)
        if isinstance(x, Struct):
            return struct(kind, context, node, [], dict(x.entries))
        if isinstance(x, dict):
            return struct(kind, context, node, [], x)
        return struct(kind, context, node, [x], {})
    if isinstance(kind, MatrixType):
        return matrices.of_type(context, node, kind, [x])
    dtype = matrices.scalar_type(context, kind, "struct", node)
    value = operand(context, x)
    if isinstance(value, MatrixValue):
        context.fail(
            WrongArgumentValue("struct", f"a member of type {dtype} is {describe(value)}"), node
        )
    lossy_assignments.check_stated(context, dtype, value, node)
    return as_type(context, value, dtype)


def python_struct(
    context: Context, node: ast.AST, args: Arguments, kwargs: Keywords
) -> StructValue:
    """``Struct(a=1, b=v)``: the members are as they are given."""
    if len(args) > 1 or (args and not isinstance(args[0], dict)):
        context.fail(WrongArguments("Struct", "takes values by name, or one dict"), node)
    given = {**(args[0] if args else {}), **kwargs}
    return StructValue({name: context.value(context.load(x)) for name, x in given.items()})
