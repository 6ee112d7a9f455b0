"""The functions of the language on typed numbers: values, derivatives and error bounds."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from octants.fuzz.oracle.numbers import (
    EXACT,
    F64,
    U1,
    Defaults,
    Num,
    Type,
    convert,
    lift,
    near_integer,
    promote,
    real,
    wrap,
)
from octants.fuzz.oracle.state import STATE, IllDefined
from octants.ir.random_draws import drawn, stream
from octants.types import scalars

ULPS = 16.0  # how far two implementations of a transcendental function may differ, in roundoffs


@dataclass(frozen=True)
class Smooth:
    """A smooth function, its derivative, and the size of the terms that cancel in the latter."""

    value: Callable[[float], float]
    derivative: Callable[[float], float]
    cancelling: Callable[[float], float] = lambda _: 0.0
    ulps: float = ULPS


def _sqrt_slope(x: float) -> float:
    return 0.5 / math.sqrt(x) if x > 0 else 0.0


def _rsqrt_slope(x: float) -> float:
    return -0.5 / (x * math.sqrt(x)) if x > 0 else 0.0


def _cbrt(x: float) -> float:
    return math.copysign(abs(x) ** (1.0 / 3.0), x)


def _cbrt_slope(x: float) -> float:
    return 1.0 / (3.0 * _cbrt(x) ** 2) if x else 0.0


def _asin_slope(x: float) -> float:
    return 1.0 / math.sqrt(1.0 - x * x)


LN2, LN10 = math.log(2.0), math.log(10.0)
SMOOTH: dict[str, Smooth] = {
    "sqrt": Smooth(math.sqrt, _sqrt_slope, ulps=0.0),
    "rsqrt": Smooth(lambda x: 1.0 / math.sqrt(x), _rsqrt_slope),
    "sin": Smooth(math.sin, math.cos),
    "cos": Smooth(math.cos, lambda x: -math.sin(x)),
    "tan": Smooth(math.tan, lambda x: 1.0 + math.tan(x) ** 2),
    "asin": Smooth(math.asin, _asin_slope, lambda x: _asin_slope(x) ** 3),
    "acos": Smooth(math.acos, lambda x: -_asin_slope(x), lambda x: _asin_slope(x) ** 3),
    "atan": Smooth(math.atan, lambda x: 1.0 / (1.0 + x * x)),
    "sinh": Smooth(math.sinh, math.cosh),
    "cosh": Smooth(math.cosh, math.sinh),
    "tanh": Smooth(math.tanh, lambda x: 1.0 - math.tanh(x) ** 2, lambda _: 1.0),
    "asinh": Smooth(math.asinh, lambda x: 1.0 / math.sqrt(x * x + 1.0)),
    "acosh": Smooth(
        math.acosh,
        lambda x: 1.0 / math.sqrt(x * x - 1.0),
        lambda x: x * x / (x * x - 1.0) ** 1.5,
    ),
    "atanh": Smooth(math.atanh, lambda x: 1.0 / (1.0 - x * x), lambda x: 1.0 / (1.0 - x * x) ** 2),
    "exp": Smooth(math.exp, math.exp),
    "exp2": Smooth(lambda x: 2.0**x, lambda x: LN2 * 2.0**x),
    "expm1": Smooth(math.expm1, math.exp, lambda _: 1.0),
    "log": Smooth(math.log, lambda x: 1.0 / x),
    "log2": Smooth(math.log2, lambda x: 1.0 / (x * LN2)),
    "log10": Smooth(math.log10, lambda x: 1.0 / (x * LN10)),
    "log1p": Smooth(math.log1p, lambda x: 1.0 / (1.0 + x)),
    "cbrt": Smooth(_cbrt, _cbrt_slope),
    "erf": Smooth(math.erf, lambda x: 2.0 / math.sqrt(math.pi) * math.exp(-x * x)),
}


def smooth(name: str, x: Any) -> Num:
    """A smooth function of a number; integers become the default float."""
    operand = lift(x)
    if not operand.type.is_float:
        operand = convert(operand, Defaults.floating)
    fn, value, dtype = SMOOTH[name], operand.value, operand.type
    slope = _derivative(name, fn, operand)
    estimate = _estimate_error(name, operand)
    slope_error = ULPS * dtype.roundoff * (abs(slope) + fn.cancelling(value)) + estimate
    if operand.error and (operand.node >= 0 or operand.tangent):
        slope_error += _slope_change(fn, value, operand.error, slope)
    result = real(dtype, fn.value(value), [(operand, slope, slope_error)], fn.ulps)
    result.error += estimate
    return result


def _estimate_error(name: str, operand: Num) -> float:
    """The absolute error of a machine's estimates of sine and cosine, as far as it counts."""
    if name not in ("sin", "cos") or operand.type is F64:
        return 0.0
    return STATE.sine_errors * (1e-6 if abs(operand.value) <= 4.0 else 9e-6)


def _derivative(name: str, fn: Smooth, operand: Num) -> float:
    if operand.error and name in ("sqrt", "rsqrt", "cbrt") and operand.error >= abs(operand.value):
        STATE.note_near(f"{name} at 0")
    return fn.derivative(operand.value)


def _slope_change(fn: Smooth, value: float, error: float, slope: float) -> float:
    """How much the derivative changes where the operand is off by ``error``."""
    change = 0.0
    for other in (value - error, value + error):
        try:
            change = max(change, abs(fn.derivative(other) - slope))
        except (ValueError, ZeroDivisionError, OverflowError):
            change = math.inf
    return change


def absolute(x: Any) -> Num:
    operand = lift(x)
    if not operand.type.is_float:
        return Num(operand.type, wrap(operand.type, abs(operand.value)))
    _note_sign(operand, "abs")
    slope = float((operand.value > 0) - (operand.value < 0))
    return real(operand.type, abs(operand.value), [(operand, slope, 0.0)], EXACT)


def sign(x: Any) -> Num:
    operand = lift(x)
    value = (operand.value > 0) - (operand.value < 0)
    if not operand.type.is_float:
        return Num(operand.type, value)
    _note_sign(operand, "sign")
    return Num(operand.type, float(value))


def _note_sign(operand: Num, what: str) -> None:
    if operand.error and abs(operand.value) <= 2 * operand.error:
        STATE.note_near(what)
    STATE.decide(operand.value > 0)


def _half_away(x: float) -> int:
    whole = math.trunc(x)
    return whole + (abs(x - whole) >= 0.5) * (1 if x > 0 else -1)


ROUNDINGS: dict[str, tuple[Callable[[float], int], float]] = {
    "floor": (math.floor, 0.0),
    "ceil": (math.ceil, 0.0),
    "round": (_half_away, 0.5),
    "round_even": (round, 0.5),
    "trunc": (math.trunc, 0.0),
}


def rounding(name: str, x: Any) -> Num:
    """floor, ceil, round (ties away from zero), round_even or trunc; the type stays."""
    operand = lift(x)
    if not operand.type.is_float:
        return operand
    function, offset = ROUNDINGS[name]
    near_integer(operand, name, offset)
    whole = function(operand.value)
    STATE.decide(whole)
    return Num(operand.type, float(whole))


def atan2(y: Any, x: Any) -> Num:
    a, b = lift(y), lift(x)
    dtype = promote(a.type, b.type)
    if not dtype.is_float:
        dtype = Defaults.floating
    a, b = convert(a, dtype), convert(b, dtype)
    square = a.value**2 + b.value**2
    if square == 0:
        raise IllDefined("atan2(0, 0)")
    if b.value < 0 and abs(a.value) <= 2 * a.error:
        STATE.note_near("atan2 at its cut")
    roundoff = ULPS * dtype.roundoff
    by_y, by_x = b.value / square, -a.value / square
    change = 2 * (a.error + b.error) / square
    parents = [(a, by_y, roundoff * abs(by_y) + change), (b, by_x, roundoff * abs(by_x) + change)]
    return real(dtype, math.atan2(a.value, b.value), parents, ULPS)


def select(condition: Any, x: Any, y: Any) -> Num:
    """Both sides are evaluated, one is taken; the type is that of both together."""
    a, b = lift(x), lift(y)
    dtype = promote(a.type, b.type)
    return convert(a, dtype) if lift(condition) else convert(b, dtype)


def random(dtype: Any = None) -> Num:
    """The next uniform draw of the work item."""
    wanted = {None: Defaults.floating, float: Defaults.floating, int: Defaults.integer}
    chosen: Type = wanted.get(dtype, dtype)
    item = STATE.item if STATE.item is not None else 0
    begin = stream(STATE.seed, STATE.launch, STATE.task, item)
    STATE.draws += 1
    return Num(chosen, drawn(scalars.by_name(chosen.name), begin, STATE.draws - 1))


def stop_grad(x: Any) -> Num:
    """The number, taken for a constant."""
    operand = lift(x)
    return Num(operand.type, operand.value, operand.error)


def popcount(x: Any) -> Num:
    operand = lift(x)
    bits = operand.value & ((1 << operand.type.bits) - 1)
    return Num(operand.type, bits.bit_count())


def clz(x: Any) -> Num:
    operand = lift(x)
    bits = operand.value & ((1 << operand.type.bits) - 1)
    return Num(operand.type, operand.type.bits - bits.bit_length())


def bit_cast(x: Any, dtype: Type) -> Num:
    """The same bits as another type of that width; what is not exact has none that are known."""
    operand = lift(x)
    if operand.type.bits != dtype.bits:
        raise IllDefined("a bit_cast to another width")
    if operand.error:
        STATE.note_near("bit_cast")
    if operand.type.is_float == dtype.is_float:
        return convert(operand, dtype)
    floats, integers = {32: ("f", "I"), 64: ("d", "Q"), 16: ("e", "H")}[dtype.bits]
    if dtype.is_float:
        packed = struct.pack(integers, operand.value & ((1 << dtype.bits) - 1))
        value = struct.unpack(floats, packed)[0]
        if not math.isfinite(value):
            raise IllDefined("not finite")
        return Num(dtype, value)
    return Num(dtype, wrap(dtype, struct.unpack(integers, struct.pack(floats, operand.value))[0]))


def truth(x: Any) -> Num:
    return convert(lift(x), U1)
