"""Operators on numbers, scalars, vectors and matrices, with the types of the language."""

from __future__ import annotations

import ast
import functools
import operator as python
from collections.abc import Callable
from typing import Any

from octants.diagnostics.errors import CompileTimeFailure
from octants.diagnostics.library_errors import AmbiguousTruth, WrongOperand, WrongOperands
from octants.frontend.compile_time.unspecialised_numbers import HostNumber
from octants.frontend.context import Context
from octants.frontend.values import debug_overflow_checks, linear_algebra
from octants.frontend.values.expression_values import MatrixValue, describe, is_number
from octants.frontend.values.operands import (
    RunTime,
    apply,
    as_type,
    common_type,
    dtype_of,
    elementwise,
    number_type,
    operand,
)
from octants.ir.core import Value
from octants.types import scalars
from octants.types.scalars import DType, Kind, u1, u64

PYTHON: dict[str, Callable[..., Any]] = {
    "+": python.add,
    "-": python.sub,
    "*": python.mul,
    "/": python.truediv,
    "//": python.floordiv,
    "%": python.mod,
    "**": python.pow,
    "@": python.matmul,
    "<<": python.lshift,
    ">>": python.rshift,
    "&": python.and_,
    "|": python.or_,
    "^": python.xor,
    "==": python.eq,
    "!=": python.ne,
    "<": python.lt,
    "<=": python.le,
    ">": python.gt,
    ">=": python.ge,
}


# -- binary operators ------------------------------------------------------------------------------


def binary(context: Context, operator: str, lhs: Any, rhs: Any) -> Any:
    """``lhs operator rhs``; two Python numbers are combined by Python."""
    a, b = operand(context, lhs), operand(context, rhs)
    if is_number(a) and is_number(b):
        return _fold(context, operator, a, b)
    if operator == "@":
        return linear_algebra.matmul(context, a, b)
    if operator == "**":
        return power(context, a, b)
    return combine(context, operator, a, b)


def _fold(context: Context, operator: str, a: Any, b: Any) -> Any:
    try:
        return PYTHON[operator](a, b)
    except (ArithmeticError, TypeError, ValueError) as error:
        context.fail(CompileTimeFailure(type(error).__name__, str(error)))


ARITHMETIC = {"+": "add", "-": "sub", "*": "mul", "/": "div", "//": "floordiv", "%": "mod"}
BITWISE = {"&": "and", "|": "or", "^": "xor"}
SHIFTS = {"<<": "shl", ">>": "shr"}


def combine(context: Context, operator: str, a: Any, b: Any) -> RunTime:
    """The operators that map to one operation of the IR."""
    dtype = number_type(context, a, b)
    if operator in ARITHMETIC:
        if operator == "/" and not dtype.is_float:
            dtype = context.default_float
        return _exact(context, ARITHMETIC[operator], operator, dtype, a, b)
    if dtype.is_float:
        is_power = operator == "^"
        way_out = "a power is `**`" if is_power else "convert floats with `qd.cast(x, int)` first"
        context.fail(WrongOperands(operator, describe(a), describe(b), way_out))
    if operator in BITWISE:
        return apply(context, BITWISE[operator], operator, common_type(context, a, b), a, b)
    shifted = number_type(context, a)
    fn = "ushr" if operator == ">>" and shifted.kind is Kind.UNSIGNED else SHIFTS[operator]
    return _exact(context, fn, operator, shifted, a, b)


def _exact(context: Context, fn: str, operator: str, dtype: DType, a: Any, b: Any) -> RunTime:
    """An operation; in debug mode with a message where its result wraps."""
    if not debug_overflow_checks.is_checked(context, fn, dtype):
        return apply(context, fn, operator, dtype, a, b)
    checked = functools.partial(debug_overflow_checks.checked, context, fn)
    return elementwise(
        context, operator, checked, as_type(context, a, dtype), as_type(context, b, dtype)
    )


# -- powers ----------------------------------------------------------------------------------------

MOST_MULTIPLIED = 16
"""Powers up to this one are products: faster than `pow`, and of any sign."""


def power(context: Context, base: Any, exponent: Any) -> RunTime:
    """``base ** exponent``: products for small whole exponents, roots for halves, else `pow`.

    An integer to a negative number is a float if that number is known at compile time. At run time
    it is the power truncated towards zero, since types cannot depend on values; an error in debug
    mode.
    """
    dtype = number_type(context, base, exponent)
    if is_number(exponent):
        if not dtype.is_float and exponent < 0:
            dtype = context.default_float
        if exponent == int_or_none(exponent) and abs(exponent) <= MOST_MULTIPLIED:
            return _whole_power(context, as_type(context, base, dtype), int(exponent))
        if exponent in (0.5, -0.5):
            return apply(context, "sqrt" if exponent > 0 else "rsqrt", "**", dtype, base)
    if context.debug and dtype.is_integer:
        _require_natural(context, as_type(context, exponent, dtype))
    return apply(context, "pow", "**", dtype, base, exponent)


def _require_natural(context: Context, exponent: RunTime) -> None:
    """In debug mode an integer to a negative number is an error where it happens."""
    message = "an integer to the power of {}: convert it to a float first"
    for each in exponent.elements if isinstance(exponent, MatrixValue) else [exponent]:
        is_natural = context.builder.compare("ge", each, context.builder.constant(0, each.type))
        context.builder.assert_("assertion", message, is_natural, [each])


def int_or_none(number: Any) -> int | None:
    """The integer that a number is, if it is one."""
    if isinstance(number, float) and not number.is_integer():
        return None
    return int(number)


def _whole_power(context: Context, base: RunTime, exponent: int) -> RunTime:
    dtype = dtype_of(base)
    one = context.constant(1, dtype)
    if exponent == 0:
        return elementwise(context, "**", lambda _: one, base)
    result = elementwise(context, "**", lambda x: _product_power(context, x, abs(exponent)), base)
    return result if exponent > 0 else apply(context, "div", "**", dtype, one, result)


def _product_power(context: Context, x: Value, exponent: int) -> Value:
    """``x`` to a positive power by repeated squaring."""
    result: Value | None = None
    square = x
    multiply = functools.partial(context.builder.binary, "mul")
    if debug_overflow_checks.is_checked(context, "mul", x.type):
        multiply = functools.partial(debug_overflow_checks.checked, context, "mul")
    while True:
        if exponent & 1:
            result = square if result is None else multiply(result, square)
        exponent >>= 1
        if not exponent:
            assert result is not None
            return result
        square = multiply(square, square)


# -- unary operators and conversions ---------------------------------------------------------------


def unary(context: Context, operator: str, x: Any) -> Any:
    """``-x``, ``+x``, ``~x`` or ``not x``; ``not`` works by element on vectors and matrices."""
    value = operand(context, x)
    if operator == "~" and (isinstance(value, float) or _is_float(value)):
        context.fail(WrongOperand("~", describe(value), "it is for integers"))
    if is_number(value):
        return _python_unary(operator, value)
    if operator == "not":
        return apply(context, "not", "not", u1, truths(context, value))
    dtype = dtype_of(value)
    if operator == "~":
        return apply(context, "not", "~", dtype, value)
    value = as_type(context, value, number_type(context, value))
    return value if operator == "+" else apply(context, "neg", "-", dtype_of(value), value)


def _is_float(value: Any) -> bool:
    return not is_number(value) and dtype_of(value).is_float


def _python_unary(operator: str, number: Any) -> Any:
    if operator == "not":
        return not number
    if operator == "~":
        # Of a truth value, ~ is its contrary, as on u1.
        return not number if isinstance(number, bool) else ~number
    return -number if operator == "-" else +number


def cast(context: Context, x: Any, dtype: DType) -> Any:
    """A number, scalar, vector or matrix converted to ``dtype``, as a run-time value."""
    return as_type(context, operand(context, x), dtype)


def truths(context: Context, x: Any) -> RunTime:
    """Whether each element is not zero."""
    if is_number(x):
        return context.constant(bool(x), u1)
    if dtype_of(x) is u1:
        known: RunTime = x
        return known
    zero = context.constant(0, dtype_of(x))
    return elementwise(context, "!=", functools.partial(context.builder.compare, "ne"), x, zero)


def truth(context: Context, x: Any, node: ast.AST | None = None) -> Value:
    """The u1 of a condition, which stands at ``node``: whether a scalar is not zero."""
    value = operand(context, x)
    if isinstance(value, MatrixValue):
        context.fail(AmbiguousTruth(describe(value)), node)
    result = truths(context, value)
    assert isinstance(result, Value)
    return result


def both_or_either(context: Context, fn: str, x: MatrixValue, y: Any) -> RunTime:
    """``x and y``, ``x or y`` of each element as u1; a scalar goes with all elements."""
    a, b = truths(context, x), truths(context, operand(context, y))
    return elementwise(context, fn, functools.partial(context.builder.binary, fn), a, b)


# -- comparisons -----------------------------------------------------------------------------------

COMPARISONS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
FLIPPED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def compare(context: Context, operator: str, lhs: Any, rhs: Any) -> Any:
    """``lhs operator rhs`` as u1; integers compare by value, whatever their types are."""
    a, b = operand(context, lhs), operand(context, rhs)
    if is_number(a) and is_number(b):
        if isinstance(a, HostNumber) or isinstance(b, HostNumber):
            return context.constant(context.numbers.compare(operator, a, b))
        return PYTHON[operator](a, b)
    fn = COMPARISONS[operator]
    dtype = _comparison_type(context, a, b)
    if dtype is None:
        return _compare_with_u64(context, operator, fn, a, b)
    left, right = as_type(context, a, dtype), as_type(context, b, dtype)
    return elementwise(
        context, operator, functools.partial(context.builder.compare, fn), left, right
    )


def _comparison_type(context: Context, a: Any, b: Any) -> DType | None:
    """A type that holds both operands exactly, if they are integers; None if there is none."""
    dtype = common_type(context, a, b)
    if dtype is u1:
        return context.default_int
    if dtype.kind is not Kind.UNSIGNED or not (_may_be_negative(a) or _may_be_negative(b)):
        return dtype
    return None if dtype is u64 else scalars.by_name(f"i{dtype.bits * 2}")


def _may_be_negative(x: Any) -> bool:
    return bool(x < 0) if is_number(x) else dtype_of(x).kind is Kind.SIGNED


def _compare_with_u64(context: Context, operator: str, fn: str, a: Any, b: Any) -> RunTime:
    """A signed integer against a u64: a negative one is less, the others fit."""
    if not _may_be_negative(a):
        return _compare_with_u64(context, operator, FLIPPED[fn], b, a)
    if is_number(a):
        a = context.constant(a)
    builder = context.builder
    is_less = builder.constant(fn in ("lt", "le", "ne"), u1)

    def one(signed: Value, unsigned: Value) -> Value:
        negative = builder.compare("lt", signed, builder.constant(0, signed.type))
        fitting = builder.compare(fn, builder.cast(signed, u64), unsigned)
        return builder.select(negative, is_less, fitting)

    return elementwise(context, operator, one, a, as_type(context, b, u64))


# -- choices ---------------------------------------------------------------------------------------


def select(context: Context, condition: Any, on_true: Any, on_false: Any) -> Any:
    """One of two values; by element where the condition is a vector or matrix."""
    chosen = operand(context, condition)
    a, b = operand(context, on_true), operand(context, on_false)
    if all(map(is_number, (chosen, a, b))):
        return a if chosen else b
    dtype = common_type(context, a, b)
    return elementwise(
        context,
        "select",
        context.builder.select,
        truths(context, chosen),
        as_type(context, a, dtype),
        as_type(context, b, dtype),
    )


def extreme(context: Context, fn: str, *operands: Any) -> Any:
    """The "min" or "max" of operands, by element; at a tie, the first one."""
    values = [operand(context, x) for x in operands]
    if all(map(is_number, values)):
        return min(values) if fn == "min" else max(values)
    dtype = number_type(context, *values)
    return functools.reduce(lambda a, b: apply(context, fn, fn, dtype, a, b), values)
