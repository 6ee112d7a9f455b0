"""Functions of numbers: what they build, element by element where vectors are given.

All take the context and the node of the call before their arguments.
"""

from __future__ import annotations

import ast
import functools
from collections import abc
from collections.abc import Callable
from typing import Any

from octants.diagnostics.errors import WrongArguments
from octants.diagnostics.library_errors import DifferentWidths, WrongArgumentValue, WrongOperand
from octants.frontend.compile_time import compile_time_evaluation
from octants.frontend.context import Context
from octants.frontend.values import arithmetic, matrices
from octants.frontend.values.expression_values import MatrixValue, describe, is_number
from octants.frontend.values.operands import (
    RunTime,
    apply,
    as_float,
    as_type,
    common_type,
    dtype_of,
    elementwise,
    number_type,
    operand,
)
from octants.ir.core import Value
from octants.types.scalars import DType, u1

Implementation = Callable[..., Any]


# -- functions of floats ---------------------------------------------------------------------------


def float_function(fn: str) -> Implementation:
    """A function of the IR that is for floats only."""

    def build(context: Context, _node: ast.AST, x: Any) -> RunTime:
        value = as_float(context, operand(context, x))
        return apply(context, fn, fn, dtype_of(value), value)

    return build


def atan2(context: Context, _node: ast.AST, y: Any, x: Any) -> RunTime:
    """The angle of a point; integers become the default float."""
    a, b = operand(context, y), operand(context, x)
    dtype = common_type(context, a, b)
    return apply(
        context, "atan2", "atan2", dtype if dtype.is_float else context.default_float, a, b
    )


def power(context: Context, _node: ast.AST, base: Any, exponent: Any) -> Any:
    """``base ** exponent``"""
    return arithmetic.binary(context, "**", base, exponent)


# -- rounding and signs ----------------------------------------------------------------------------


def rounding(fn: str) -> Implementation:
    """``floor`` and the like; integers are whole already."""

    def build(context: Context, node: ast.AST, x: Any, dtype: Any = None) -> RunTime:
        value = as_type_of_number(context, operand(context, x))
        if dtype_of(value).is_float:
            value = apply(context, fn, fn, dtype_of(value), value)
        return value if dtype is None else cast(context, node, value, dtype)

    return build


def round_half_away(context: Context, node: ast.AST, x: Any, dtype: Any = None) -> RunTime:
    """``round``: a tie goes to the number that is further from zero."""
    value = as_type_of_number(context, operand(context, x))
    kind = dtype_of(value)
    if kind.is_float:
        build = context.builder

        def rounded(element: Value) -> Value:
            whole = build.unary("trunc", element)
            half = build.constant(0.5, kind)
            is_down = build.compare(
                "lt", build.unary("abs", build.binary("sub", element, whole)), half
            )
            further = build.binary("add", whole, build.unary("sign", element))
            return build.select(is_down, whole, further)

        value = elementwise(context, "round", rounded, value)
    return value if dtype is None else cast(context, node, value, dtype)


def as_type_of_number(context: Context, x: Any) -> RunTime:
    """An operand as a run-time value, a number being of its default type."""
    return context.constant(x) if is_number(x) else x


def _signed(context: Context, x: Any) -> RunTime:
    """An operand as something that can have a sign: truth values become integers."""
    value = as_type_of_number(context, operand(context, x))
    return as_type(context, value, context.default_int) if dtype_of(value) is u1 else value


def absolute(context: Context, _node: ast.AST, x: Any) -> RunTime:
    """``abs``, of x's type"""
    value = _signed(context, x)
    return apply(context, "abs", "abs", dtype_of(value), value)


def sign(context: Context, _node: ast.AST, x: Any) -> RunTime:
    """-1, 0 or 1"""
    value = _signed(context, x)
    return apply(context, "sign", "sign", dtype_of(value), value)


def isnan(context: Context, _node: ast.AST, x: Any) -> RunTime:
    """Whether a float differs from itself; integers never do."""
    value = as_float(context, operand(context, x))
    return elementwise(context, "isnan", lambda e: context.builder.compare("ne", e, e), value)


def isinf(context: Context, _node: ast.AST, x: Any) -> RunTime:
    """Whether the size of a float is infinite; that of integers never is."""
    value = as_float(context, operand(context, x))
    size = apply(context, "abs", "isinf", dtype_of(value), value)
    infinity = context.constant(float("inf"), dtype_of(value))
    compare = functools.partial(context.builder.compare, "eq")
    return elementwise(context, "isinf", compare, size, infinity)


# -- choices ---------------------------------------------------------------------------------------


def extreme(fn: str) -> Implementation:
    """``min`` and ``max`` of several operands, by element."""

    def build(context: Context, _node: ast.AST, *values: Any) -> Any:
        return arithmetic.extreme(context, fn, *values)

    return build


def python_extreme(fn: str) -> Callable[..., Any]:
    """Python's ``min`` and ``max``: of several operands, or of the elements of one."""

    def handler(context: Context, node: ast.AST, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if kwargs or not args:
            context.fail(WrongArguments(fn, "takes operands, or one vector or sequence"), node)
        values = _elements(context, args[0]) if len(args) == 1 else args
        if not values:
            context.fail(WrongArguments(fn, "of an empty sequence has no value"), node)
        if len(values) > 1 and any(isinstance(each, (list, tuple)) for each in values):
            text = f"compares no tuples or lists: write `qd.{fn}` of vectors, or a condition"
            context.fail(WrongArguments(fn, text), node)
        return arithmetic.extreme(context, fn, *values)

    return handler


def _elements(context: Context, x: Any) -> list[Any]:
    """The elements of a collection or a vector; all those of a matrix."""
    if isinstance(x, _COLLECTIONS):
        return list(x)
    value = operand(context, x)
    return list(value.elements) if isinstance(value, MatrixValue) else [value]


_COLLECTIONS = (list, tuple, range, abc.Set, abc.Mapping, abc.ValuesView, abc.Iterator)


def select(context: Context, _node: ast.AST, condition: Any, on_true: Any, on_false: Any) -> Any:
    """One of two values, in their common type."""
    return arithmetic.select(context, condition, on_true, on_false)


# -- types -----------------------------------------------------------------------------------------


def cast(context: Context, node: ast.AST, x: Any, dtype: Any) -> RunTime:
    """A conversion, of vectors and matrices by element."""
    target = matrices.scalar_type(context, dtype, "cast", node)
    return as_type(context, operand(context, x), target)


def as_floats(context: Context, node: ast.AST, x: Any, dtype: Any) -> RunTime:
    """A conversion to ``dtype``; without one, of integers only."""
    if dtype is not None:
        return cast(context, node, x, dtype)
    return as_float(context, operand(context, x))


def bit_cast(context: Context, node: ast.AST, x: Any, dtype: Any) -> RunTime:
    """The same bits read as another type."""
    target = matrices.scalar_type(context, dtype, "bit_cast", node)
    value = as_type_of_number(context, operand(context, x))
    source = dtype_of(value)
    if source.bits != target.bits:
        context.fail(DifferentWidths(source.name, target.name), node)
    return elementwise(
        context, "bit_cast", lambda element: context.builder.bitcast(element, target), value
    )


def like(number: int) -> Implementation:
    """``zero`` and ``one``: a number of the type and shape of the operand."""

    def build(context: Context, _node: ast.AST, x: Any) -> Any:
        value = operand(context, x)
        if is_number(value):
            return type(value)(number)
        filled = context.constant(number, dtype_of(value))
        return elementwise(context, "zero", lambda _: filled, value)

    return build


# -- integers --------------------------------------------------------------------------------------


def raw_div(context: Context, _node: ast.AST, a: Any, b: Any) -> RunTime:
    """A quotient truncated towards zero for integers."""
    lhs, rhs = operand(context, a), operand(context, b)
    dtype = number_type(context, lhs, rhs)
    return apply(context, "div" if dtype.is_float else "truncdiv", "raw_div", dtype, lhs, rhs)


def raw_mod(context: Context, _node: ast.AST, a: Any, b: Any) -> RunTime:
    """The remainder of a division truncated towards zero."""
    lhs, rhs = operand(context, a), operand(context, b)
    return apply(context, "truncmod", "raw_mod", number_type(context, lhs, rhs), lhs, rhs)


def bit_shr(context: Context, node: ast.AST, x: Any, count: Any) -> RunTime:
    """A shift to the right with zeros coming in, of the type of ``x``."""
    value, shift = operand(context, x), operand(context, count)
    _require_integers(context, node, "bit_shr", number_type(context, value, shift), value)
    dtype = number_type(context, value)
    return apply(context, "ushr", "bit_shr", dtype, value, shift)


def bit_count(fn: str) -> Implementation:
    """``popcnt`` and ``clz``; the result has the type of the operand."""

    def build(context: Context, node: ast.AST, x: Any) -> RunTime:
        value = _signed(context, x)
        _require_integers(context, node, fn, dtype_of(value), value)
        return apply(context, fn, fn, dtype_of(value), value)

    return build


def ffs(context: Context, node: ast.AST, x: Any) -> RunTime:
    """The width less the zeros above the lowest bit, which is ``x & -x``."""
    value = _signed(context, x)
    dtype = dtype_of(value)
    _require_integers(context, node, "ffs", dtype, value)
    negative = apply(context, "neg", "ffs", dtype, value)
    lowest = apply(context, "and", "ffs", dtype, value, negative)
    zeros = apply(context, "clz", "ffs", dtype, lowest)
    return apply(context, "sub", "ffs", dtype, dtype.bits, zeros)


def _require_integers(context: Context, node: ast.AST, name: str, dtype: DType, value: Any) -> None:
    if dtype.is_float:
        context.fail(WrongOperand(name, describe(value), "it is for integers"), node)


# -- Python's own ----------------------------------------------------------------------------------


def python_sum(context: Context, _node: ast.AST, iterable: Any, start: Any = 0) -> Any:
    """``sum``: of the elements of a vector or a sequence, from left to right."""
    elements = _elements(context, iterable)
    if isinstance(start, int) and start == 0 and elements:
        start, *elements = elements
    add = functools.partial(arithmetic.binary, context, "+")
    return functools.reduce(add, elements, start)


def python_rounding(fn: str) -> Implementation:
    """``math.floor`` and the like, which give integers."""
    return lambda context, node, x: rounding(fn)(context, node, x, int)


def python_round(context: Context, node: ast.AST, number: Any, ndigits: Any = None) -> Any:
    """Python's ``round``: to the nearest integer, the even one at a tie."""
    value = operand(context, number)
    if is_number(value):
        operands = (value,) if ndigits is None else (value, ndigits)
        return compile_time_evaluation.operate(context, node, round, *operands)
    if ndigits is not None:
        problem = "numbers at run time are rounded to integers only"
        context.fail(WrongArgumentValue("round", problem, "use `qd.round(x * 100) / 100`"), node)
    return rounding("round")(context, node, value, int)


def python_divmod(context: Context, _node: ast.AST, x: Any, y: Any) -> tuple[Any, Any]:
    """``divmod``: of quotients rounded down."""
    quotient = arithmetic.binary(context, "//", x, y)
    return quotient, arithmetic.binary(context, "%", x, y)


def _reduced(fn: str, context: Context, elements: list[Any]) -> Value:
    truths = [arithmetic.truth(context, x) for x in elements]
    start = context.constant(fn == "and", u1)
    return functools.reduce(functools.partial(context.builder.binary, fn), truths, start)


def python_any(context: Context, _node: ast.AST, iterable: Any) -> Any:
    """``any`` of a vector or a sequence; all elements are evaluated."""
    elements = _elements(context, iterable)
    return any(elements) if all(map(is_number, elements)) else _reduced("or", context, elements)


def python_all(context: Context, _node: ast.AST, iterable: Any) -> Any:
    """``all`` of a vector or a sequence; all elements are evaluated."""
    elements = _elements(context, iterable)
    return all(elements) if all(map(is_number, elements)) else _reduced("and", context, elements)
