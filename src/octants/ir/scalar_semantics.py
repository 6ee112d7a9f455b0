"""Defines every scalar operation on Python numbers; backends are tested against it.

Integers are Python ints in the range of their type, floats are Python floats that the type can hold
exactly, u1 is bool. Results are converted to the type by `types.scalars.convert`. The functions of
`octants.mathlib` are not here: they are made of these.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from octants.deferred_import import Deferred
from octants.types.scalars import DType, Kind, convert, integer_range, u1

if TYPE_CHECKING:
    import fractions
else:
    fractions = Deferred("fractions")

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def evaluate(fn: str, dtype: DType, *operands: Any) -> Any:
    """The value of a unary or binary function, or comparison, of operands of type ``dtype``."""
    if fn in COMPARISONS:
        return bool(COMPARISONS[fn](*operands))
    if dtype.is_float:
        return _float(fn, dtype, operands)
    if dtype.is_bool:
        return bool(INTEGER[fn](u1, *operands)) if fn != "not" else not operands[0]
    return convert(INTEGER[fn](dtype, *operands), dtype)


def _float(fn: str, dtype: DType, operands: tuple[Any, ...]) -> float:
    kind = dtype.numpy.type
    with np.errstate(all="ignore"):
        return float(kind(FLOAT[fn](*map(kind, operands))))


def _float_floordiv(a: Any, b: Any) -> Any:
    return np.floor(a / b)


def _float_mod(a: Any, b: Any) -> Any:
    return a - np.floor(a / b) * b


def product_error(a: Any, b: Any) -> Any:
    """a * b less its rounded value, of numbers or arrays, rounded once as by a fused operation."""
    if a.dtype.itemsize == 8:
        return _product_error_f64(a, b)
    wide = np.float64 if a.dtype.itemsize == 4 else np.float32
    exact = a.astype(wide) * b.astype(wide)
    return (exact - (a * b).astype(wide)).astype(a.dtype)


def _product_error_f64(a: Any, b: Any) -> Any:
    """By halves of the digits (Dekker, 1971), without exponents, so that nothing underflows."""
    rounded = a * b
    (x, p), (y, q) = np.frexp(a), np.frexp(b)
    (xh, xl), (yh, yl) = _halves(x), _halves(y)
    product = x * y
    error = ((xh * yh - product) + xh * yl + xl * yh) + xl * yl
    error = (product - np.ldexp(rounded, -(p + q))) + error
    overflows = np.isinf(rounded) & np.isfinite(a) & np.isfinite(b)
    error = np.where(overflows, -rounded, np.ldexp(error, p + q))
    return np.where(np.isfinite(a) & np.isfinite(b), error, rounded - rounded)[()]


def _halves(x: Any) -> tuple[Any, Any]:
    scaled = x * 134217729.0  # 2**27 + 1
    high = scaled - (scaled - x)
    return high, x - high


def fma(dtype: DType, x: float, y: float, z: float) -> float:
    """x * y + z, rounded once."""
    if math.isfinite(x) and math.isfinite(y):
        if not math.isfinite(z):
            return z
        exact = fractions.Fraction(x) * fractions.Fraction(y) + fractions.Fraction(z)
        if exact:
            return _round_exact(exact, dtype)
    return float(evaluate("add", dtype, evaluate("mul", dtype, x, y), z))


def _round_exact(exact: fractions.Fraction, dtype: DType) -> float:
    """A number that is not zero as a float: by way of f64, rounded to odd where f32 is wanted."""
    try:
        wide = float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf
    if dtype.bits == 64:
        return wide
    if fractions.Fraction(wide) != exact and not np.float64(wide).view(np.int64) & 1:
        wide = math.nextafter(wide, math.inf if exact > fractions.Fraction(wide) else -math.inf)
    return float(convert(wide, dtype))


FLOAT: dict[str, Callable[..., Any]] = {
    "neg": lambda x: -x,
    "abs": np.abs,
    "sign": lambda x: x if x == 0 or x != x else np.copysign(type(x)(1), x),
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: type(x)(1) / np.sqrt(x),
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "approximate_div": lambda a, b: a / b,
    "floordiv": _float_floordiv,
    "mod": _float_mod,
    "truncdiv": lambda a, b: np.trunc(a / b),
    "truncmod": np.fmod,
    "mul_error": product_error,
    "min": lambda a, b: b if b < a or a != a else a,
    "max": lambda a, b: b if b > a or a != a else a,
}


def _truncdiv(a: int, b: int) -> int:
    if b == 0:
        return 0
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _defined(holds: bool, what: str) -> None:
    if not holds:
        raise ArithmeticError(f"{what} is not defined")


def _quotient(dtype: DType, a: int, b: int) -> int:
    found = _truncdiv(a, b)
    _defined(b != 0 and found == convert(found, dtype), f"quotient of {a} and {b}")
    return found


def _remainder(dtype: DType, a: int, b: int) -> int:
    return a - _quotient(dtype, a, b) * b


def _within(shift: Callable[[DType, int, int], int]) -> Callable[[DType, int, int], int]:
    """A shift by less than the width."""

    def run(dtype: DType, a: int, b: int) -> int:
        _defined(0 <= b < dtype.bits, f"shift of {dtype} by {b}")
        return shift(dtype, a, b)

    return run


def _power(a: int, b: int) -> int:
    if b >= 0:
        return pow(a, b, 1 << 64) if a >= 0 else _signed_power(a, b)
    if a in (1, -1):
        return a if b % 2 else 1
    return 0


def _signed_power(a: int, b: int) -> int:
    magnitude = pow(-a, b, 1 << 64)
    return -magnitude if b % 2 else magnitude


def _clz(dtype: DType, a: int) -> int:
    return dtype.bits - (a & ((1 << dtype.bits) - 1)).bit_length()


INTEGER: dict[str, Callable[..., Any]] = {
    "neg": lambda t, a: -a,
    "abs": lambda t, a: abs(a),
    "sign": lambda t, a: (a > 0) - (a < 0),
    "floor": lambda t, a: a,
    "ceil": lambda t, a: a,
    "round": lambda t, a: a,
    "trunc": lambda t, a: a,
    "not": lambda t, a: ~a,
    "popcount": lambda t, a: (a & ((1 << t.bits) - 1)).bit_count(),
    "clz": _clz,
    "add": lambda t, a, b: a + b,
    "sub": lambda t, a, b: a - b,
    "mul": lambda t, a, b: a * b,
    "floordiv": lambda t, a, b: a // b if b else 0,
    "mod": lambda t, a, b: a % b if b else a,
    "truncdiv": lambda t, a, b: _truncdiv(a, b),
    "truncmod": lambda t, a, b: a - _truncdiv(a, b) * b if b else a,
    "pow": lambda t, a, b: _power(a, b),
    "min": lambda t, a, b: min(a, b),
    "max": lambda t, a, b: max(a, b),
    "and": lambda t, a, b: a & b,
    "or": lambda t, a, b: a | b,
    "xor": lambda t, a, b: a ^ b,
    "shl": lambda t, a, b: a << (b & (t.bits - 1)),
    "shr": lambda t, a, b: a >> (b & (t.bits - 1)),
    "ushr": lambda t, a, b: (a & ((1 << t.bits) - 1)) >> (b & (t.bits - 1)),
}

INTEGER |= {
    "quotient": _quotient,
    "remainder": _remainder,
    "lsl": _within(INTEGER["shl"]),
    "lsr": _within(INTEGER["ushr"]),
    "asr": _within(INTEGER["shr"]),
}

EXACT = (frozenset(INTEGER) | frozenset(COMPARISONS) | {"div", "sqrt"}) - {"pow"}
"""Functions whose result is the same on every machine, and which may be folded."""


def bitcast(value: Any, source: DType, target: DType) -> Any:
    """The bits of ``value`` read as another type."""
    return convert(np.array(value, source.numpy).view(target.numpy)[()].item(), target)


def format_number(value: Any, dtype: DType, specification: str) -> str:
    """How a kernel prints a number: as Python formats it.

    Without a specification a float gets the digits that identify it within its type; with ``a`` it
    is hexadecimal, as C prints it.
    """
    if specification == "a" and dtype.is_float:
        digits, letter, power = float(value).hex().partition("p")
        return (digits.rstrip("0").rstrip(".") if letter else digits) + letter + power
    if specification or not dtype.is_float or dtype.bits == 64:
        return format(value, specification)
    return str(dtype.numpy.type(value))


def identity_of(fn: str, dtype: DType) -> Any:
    """The neutral element of an atomic reduction."""
    if fn in ("add", "sub", "or", "xor"):
        return convert(0, dtype)
    if fn == "mul":
        return convert(1, dtype)
    if dtype.kind is Kind.FLOAT:
        return math.inf if fn == "min" else -math.inf
    low, high = (0, 1) if dtype.is_bool else integer_range(dtype)
    return {"min": high, "max": low, "and": -1 if dtype.is_signed else high}[fn]
