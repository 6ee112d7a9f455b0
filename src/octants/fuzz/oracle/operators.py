"""The operators of typed numbers: values, derivatives and error bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from octants.fuzz.oracle.numbers import (
    EXACT,
    U1,
    Defaults,
    Num,
    Type,
    convert,
    lift,
    near_integer,
    promote,
    real,
    rounded,
    wrap,
)
from octants.fuzz.oracle.state import STATE, IllDefined


def add(dtype: Type, a: Num, b: Num) -> Num:
    return real(dtype, a.value + b.value, [(a, 1.0, 0.0), (b, 1.0, 0.0)])


def sub(dtype: Type, a: Num, b: Num) -> Num:
    return real(dtype, a.value - b.value, [(a, 1.0, 0.0), (b, -1.0, 0.0)])


def mul(dtype: Type, a: Num, b: Num) -> Num:
    return real(dtype, a.value * b.value, [(a, b.value, b.error), (b, a.value, a.error)])


def div(dtype: Type, a: Num, b: Num) -> Num:
    if b.value == 0:
        raise IllDefined("division by zero")
    inverse = 1.0 / b.value
    quotient = a.value * inverse
    roundoff, size = 4 * dtype.roundoff, abs(inverse)
    by_a = (a, inverse, b.error * size * size + roundoff * size)
    error = (a.error + 2 * abs(quotient) * b.error) * size * size
    by_b = (b, -quotient * inverse, error + roundoff * abs(quotient) * size)
    return real(dtype, a.value / b.value, [by_a, by_b])


def float_floordiv(dtype: Type, a: Num, b: Num) -> Num:
    if b.value == 0:
        raise IllDefined("division by zero")
    quotient = rounded(dtype, a.value / b.value)
    error = (a.error + abs(quotient) * b.error) / abs(b.value)
    if error:
        error += dtype.roundoff * abs(quotient)
    near_integer(Num(dtype, quotient, error), "floordiv")
    STATE.decide(math.floor(quotient))
    return Num(dtype, float(math.floor(quotient)))


def float_mod(dtype: Type, a: Num, b: Num) -> Num:
    quotient = float_floordiv(dtype, a, b).value
    product = rounded(dtype, quotient * b.value)
    result = real(dtype, a.value - product, [(a, 1.0, 0.0), (b, -quotient, 0.0)])
    if result.error:
        result.error += dtype.roundoff * abs(product)
    return result


def float_pow(dtype: Type, a: Num, b: Num) -> Num:
    if (a.value < 0 and b.value != math.floor(b.value)) or (a.value == 0 and b.value < 0):
        raise IllDefined("power outside its domain")
    value = a.value**b.value
    roundoff = 16 * dtype.roundoff
    by_a = by_b = by_a_error = by_b_error = 0.0
    if b.value != 0:
        by_a = b.value * a.value ** (b.value - 1) if a.value or b.value >= 1 else 0.0
        by_a_error = roundoff * abs(by_a) + abs(by_a) * b.error * (1 / abs(b.value) + 3)
        if a.value and a.error:
            by_a_error += a.error * abs(by_a * (b.value - 1) / a.value)
    if a.value > 0:
        by_b = math.log(a.value) * value
        by_b_error = roundoff * (abs(by_b) + abs(value)) + abs(by_b) * b.error * 3
        by_b_error += a.error * abs(by_a * math.log(a.value) + value / a.value)
    elif a.value == 0 and a.error:
        STATE.note_near("power of zero")
    return real(dtype, value, [(a, by_a, by_a_error), (b, by_b, by_b_error)], 16)


def minimum(dtype: Type, a: Num, b: Num) -> Num:
    return a if _first(a, b, a.value <= b.value, "min") else b


def maximum(dtype: Type, a: Num, b: Num) -> Num:
    return a if _first(a, b, a.value >= b.value, "max") else b


def _first(a: Num, b: Num, decision: bool, what: str) -> bool:
    _close(a, b, what)
    if a.type.is_float:
        STATE.decide(decision)
    return decision


def _close(a: Num, b: Num, what: str) -> None:
    """Note two numbers whose order rounding may decide.

    Numbers equal in value and in bound are taken for the same expression of the same operands,
    which every sound implementation computes alike, and whose derivatives are alike.
    """
    error = a.error + b.error
    if a.value == b.value and a.error == b.error:
        return
    if error and abs(a.value - b.value) <= 2 * error:
        STATE.note_near(what)


FLOAT_BINARY: dict[str, Callable[[Type, Num, Num], Num]] = {
    "+": add,
    "-": sub,
    "*": mul,
    "/": div,
    "//": float_floordiv,
    "%": float_mod,
    "**": float_pow,
    "min": minimum,
    "max": maximum,
}


def _integer_power(a: int, b: int) -> int:
    if b >= 0:
        return int(a**b) if b < 64 else pow(a, b, 1 << 64)
    return int(a**b) if a in (1, -1) else 0


INTEGER_BINARY: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b if b else 0,
    "%": lambda a, b: a % b if b else a,
    "**": _integer_power,
    "min": min,
    "max": max,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
}


def _operands(x: Any, y: Any) -> tuple[Num, Num]:
    """Two operands; a literal beyond the default type is of the other type, if that can hold it."""
    a, b = lift(x), lift(y)
    return _adapted(a, b), _adapted(b, a)


def _adapted(number: Num, other: Num) -> Num:
    kind = number.type
    if not number.literal or other.literal or kind.is_float or other.type.is_float:
        return number
    if kind in (U1, Defaults.integer) or wrap(other.type, number.value) != number.value:
        return number
    return Num(other.type, number.value)


def _shift(fn: str, a: Num, b: Num) -> Num:
    """``a << b`` or ``a >> b``, of the type of ``a``; the count is taken modulo its width."""
    if a.type.is_float or b.type.is_float:
        raise IllDefined(f"{fn} of floats")
    dtype = Defaults.integer if a.type is U1 else a.type
    STATE.burn()
    left, count = int(a.value), int(b.value) & (dtype.bits - 1)
    return Num(dtype, wrap(dtype, left << count if fn == "<<" else left >> count))


def binary(fn: str, x: Any, y: Any) -> Num:
    """``x fn y`` for two scalars."""
    if fn in ("<<", ">>"):
        return _shift(fn, lift(x), lift(y))
    a, b = _operands(x, y)
    dtype = promote(a.type, b.type)
    if fn == "/" and not dtype.is_float:
        dtype = Defaults.floating
    if dtype.is_float:
        if fn not in FLOAT_BINARY:
            raise IllDefined(f"{fn} of floats")
        return FLOAT_BINARY[fn](dtype, convert(a, dtype), convert(b, dtype))
    if dtype is U1 and fn not in ("&", "|", "^"):
        raise IllDefined(f"{fn} of truth values")
    STATE.burn()
    left, right = convert(a, dtype).value, convert(b, dtype).value
    value = INTEGER_BINARY[fn](left, right)
    return Num(dtype, bool(value) if dtype is U1 else wrap(dtype, value))


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


def compare(fn: str, x: Any, y: Any) -> Num:
    """A comparison, of integers by value; a close one of inexact floats is noted."""
    a, b = lift(x), lift(y)
    dtype = promote(a.type, b.type)
    if dtype.is_float:
        a, b = convert(a, dtype), convert(b, dtype)
    STATE.burn()
    _close(a, b, "comparison")
    return Num(U1, _COMPARISONS[fn](a.value, b.value))


def negative(x: Num) -> Num:
    if x.type.is_float:
        return real(x.type, -x.value, [(x, -1.0, 0.0)], EXACT)
    if x.type is U1:
        raise IllDefined("minus of a truth value")
    return Num(x.type, wrap(x.type, -x.value))


def invert(x: Num) -> Num:
    if x.type.is_float:
        raise IllDefined("~ of a float")
    return Num(x.type, not x.value if x.type is U1 else wrap(x.type, ~x.value))


def _operator(fn: str, apply: Callable[[str, Any, Any], Num], flipped: bool = False) -> Any:
    def method(self: Num, other: Any) -> Any:
        if not isinstance(other, (Num, int, float)):
            return NotImplemented
        return apply(fn, other, self) if flipped else apply(fn, self, other)

    return method


OPERATORS = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "truediv",
    "//": "floordiv",
    "%": "mod",
    "**": "pow",
    "&": "and",
    "|": "or",
    "^": "xor",
    "<<": "lshift",
    ">>": "rshift",
}
COMPARISON_METHODS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}


def install_operators(
    kind: type,
    make: Callable[..., Any],
    minus: Callable[[Any], Any],
    complement: Callable[[Any], Any],
) -> None:
    """Give a class the methods of Python's operators.

    Args:
        kind: the class.
        make: the method of a binary operator, by its symbol and by what applies it to numbers.
        minus: the method of ``-x``.
        complement: the method of ``~x``.
    """
    for symbol, name in OPERATORS.items():
        setattr(kind, f"__{name}__", make(symbol, binary))
        setattr(kind, f"__r{name}__", make(symbol, binary, flipped=True))
    for symbol, name in COMPARISON_METHODS.items():
        setattr(kind, f"__{name}__", make(symbol, compare))
    methods = {"__neg__": minus, "__pos__": lambda x: x, "__invert__": complement}
    for name, method in methods.items():
        setattr(kind, name, method)


install_operators(Num, _operator, negative, invert)
