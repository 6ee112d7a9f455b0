"""Arithmetic on integers and u1. Nothing traps: see `ir.semantics` for what the results are."""

from __future__ import annotations

from collections.abc import Callable

from octants.codegen.llvm.floats import intrinsic
from octants.codegen.llvm.function import FunctionText
from octants.types.scalars import DType, integer_range

Emit = Callable[..., str]


def known(operand: str) -> int | None:
    """The number that an operand is, if it is a literal."""
    return None if operand[0] == "%" else int(operand)


def _instruction(name: str) -> Emit:
    return lambda f, dtype, a, b: f.apply(name, f.type(dtype), a, b)


def _by_sign(signed: str, unsigned: str) -> Callable[[DType], str]:
    return lambda dtype: signed if dtype.is_signed else unsigned


_DIVIDE, _REMAINDER = _by_sign("sdiv", "udiv"), _by_sign("srem", "urem")


# -- division -----------------------------------------------------------------------------------


def _safe_divisor(f: FunctionText, dtype: DType, a: str, b: str) -> tuple[str, str | None]:
    """A divisor that never traps, and whether the true one is zero (None: it is not)."""
    number = known(b)
    if number is not None and number not in (0, -1):
        return b, None
    register = f.type(dtype)
    is_zero = f.apply("icmp eq", register, b, "0")
    is_bad = is_zero
    if dtype.is_signed:
        least = f.apply("icmp eq", register, a, integer_range(dtype)[0])
        minus = f.apply("icmp eq", register, b, "-1")
        overflows = f.apply("and", "i1", least, minus)
        is_bad = f.apply("or", "i1", is_zero, overflows)
    return f.choose(is_bad, register, "1", b), is_zero


def _or_if_zero(f: FunctionText, dtype: DType, zero: str | None, other: str, result: str) -> str:
    if zero is None:
        return result
    register = f.type(dtype)
    return f.choose(zero, register, other, result)


def _truncdiv(f: FunctionText, dtype: DType, a: str, b: str) -> str:
    divisor, zero = _safe_divisor(f, dtype, a, b)
    quotient = f.apply(_DIVIDE(dtype), f.type(dtype), a, divisor)
    return _or_if_zero(f, dtype, zero, "0", quotient)


def _truncmod(f: FunctionText, dtype: DType, a: str, b: str) -> str:
    divisor, zero = _safe_divisor(f, dtype, a, b)
    remainder = f.apply(_REMAINDER(dtype), f.type(dtype), a, divisor)
    return _or_if_zero(f, dtype, zero, a, remainder)


def _is_rounded_up(f: FunctionText, dtype: DType, remainder: str, divisor: str) -> str:
    """Whether truncation went up: a remainder that has not the sign of the divisor."""
    register = f.type(dtype)
    mixed = f.apply("xor", register, remainder, divisor)
    differ = f.apply("icmp slt", register, mixed, "0")
    inexact = f.apply("icmp ne", register, remainder, "0")
    return f.apply("and", "i1", inexact, differ)


def _power_of_two(dtype: DType, b: str) -> int | None:
    """The exponent, if the divisor is a literal power of two of a signed type."""
    number = known(b)
    if number is None or number <= 0 or number & (number - 1) or not dtype.is_signed:
        return None
    return number.bit_length() - 1


def _floordiv(f: FunctionText, dtype: DType, a: str, b: str) -> str:
    exponent = _power_of_two(dtype, b)
    if exponent is not None:
        return f.apply("ashr", f.type(dtype), a, exponent)
    if not dtype.is_signed:
        return _truncdiv(f, dtype, a, b)
    register = f.type(dtype)
    divisor, zero = _safe_divisor(f, dtype, a, b)
    quotient = f.apply("sdiv", register, a, divisor)
    remainder = f.apply("srem", register, a, divisor)
    excess = f.convert("zext", "i1", _is_rounded_up(f, dtype, remainder, divisor), register)
    floor = f.apply("sub", register, quotient, excess)
    return _or_if_zero(f, dtype, zero, "0", floor)


def _mod(f: FunctionText, dtype: DType, a: str, b: str) -> str:
    exponent = _power_of_two(dtype, b)
    if exponent is not None:
        return f.apply("and", f.type(dtype), a, (1 << exponent) - 1)
    if not dtype.is_signed:
        return _truncmod(f, dtype, a, b)
    register = f.type(dtype)
    divisor, zero = _safe_divisor(f, dtype, a, b)
    remainder = f.apply("srem", register, a, divisor)
    up = _is_rounded_up(f, dtype, remainder, divisor)
    correction = f.choose(up, register, divisor, "0")
    floor = f.apply("add", register, remainder, correction)
    return _or_if_zero(f, dtype, zero, a, floor)


# -- powers -------------------------------------------------------------------------------------

_UNROLLED = 8


def _pow(f: FunctionText, dtype: DType, a: str, b: str) -> str:
    exponent = known(b)
    if exponent is not None and 0 <= exponent <= _UNROLLED:
        return _unrolled_power(f, dtype, a, exponent)
    register, sign = f.type(dtype), "s" if dtype.is_signed else "u"
    make = _signed_power if dtype.is_signed else _unsigned_power
    name = f.text.helper(f"@octants.pow.{sign}.{register}", lambda _, name: make(register, name))
    return f.call(name, register, [(register, a), (register, b)])


def _unrolled_power(f: FunctionText, dtype: DType, a: str, exponent: int) -> str:
    result, square = "1", a
    while exponent:
        if exponent & 1:
            result = square if result == "1" else f.apply("mul", f.type(dtype), result, square)
        exponent >>= 1
        if exponent:
            square = f.apply("mul", f.type(dtype), square, square)
    return result


def _unsigned_power(type: str, name: str) -> str:
    return f"""\
define internal {type} {name}({type} %a, {type} %b) nounwind willreturn memory(none) {{
entry:
{_POWER_LOOP.format(type=type)}}}
"""


def _signed_power(type: str, name: str) -> str:
    """A negative exponent leaves 1 and -1 as they are, up to the sign, and gives 0 otherwise."""
    return f"""\
define internal {type} {name}({type} %a, {type} %b) nounwind willreturn memory(none) {{
  %negative = icmp slt {type} %b, 0
  br i1 %negative, label %inverse, label %entry
inverse:
  %above = add {type} %a, 1
  %unit = icmp ult {type} %above, 3
  %nonzero = icmp ne {type} %a, 0
  %keeps = and i1 %unit, %nonzero
  %isodd = trunc {type} %b to i1
  %magnitude = select i1 %isodd, {type} %a, {type} 1
  %inverted = select i1 %keeps, {type} %magnitude, {type} 0
  ret {type} %inverted
entry:
{_POWER_LOOP.format(type=type)}}}
"""


_POWER_LOOP = """\
  br label %loop
loop:
  %result = phi {type} [ 1, %entry ], [ %next, %loop ]
  %square = phi {type} [ %a, %entry ], [ %squared, %loop ]
  %rest = phi {type} [ %b, %entry ], [ %shifted, %loop ]
  %odd = trunc {type} %rest to i1
  %factor = select i1 %odd, {type} %square, {type} 1
  %next = mul {type} %result, %factor
  %squared = mul {type} %square, %square
  %shifted = lshr {type} %rest, 1
  %done = icmp eq {type} %shifted, 0
  br i1 %done, label %exit, label %loop
exit:
  ret {type} %next
"""


# -- the rest -----------------------------------------------------------------------------------


def _shift(name: Callable[[DType], str]) -> Emit:
    def emit(f: FunctionText, dtype: DType, a: str, b: str) -> str:
        number, mask = known(b), dtype.bits - 1
        count = f.apply("and", f.type(dtype), b, mask) if number is None else number & mask
        return f.apply(name(dtype), f.type(dtype), a, count)

    return emit


def _extreme(name: str) -> Emit:
    def emit(f: FunctionText, dtype: DType, a: str, b: str) -> str:
        return intrinsic(f, f"{'s' if dtype.is_signed else 'u'}{name}", f.type(dtype), a, b)

    return emit


def _with_flag(f: FunctionText, name: str, dtype: DType, x: str) -> str:
    """An intrinsic with an i1 that says whether a special operand is undefined: it is not."""
    register = f.type(dtype)
    return f.intrinsic(name, register, [(register, x)], flag=True)


def _abs(f: FunctionText, dtype: DType, x: str) -> str:
    return _with_flag(f, "abs", dtype, x) if dtype.is_signed else x


def _sign(f: FunctionText, dtype: DType, x: str) -> str:
    register = f.type(dtype)
    if not dtype.is_signed:
        return f.convert("zext", "i1", f.apply("icmp ne", register, x, 0), register)
    above = f.convert("zext", "i1", f.apply("icmp sgt", register, x, 0), register)
    below = f.apply("ashr", register, x, dtype.bits - 1)
    return f.apply("or", register, above, below)


def _same(_: FunctionText, __: DType, x: str) -> str:
    return x


BINARY: dict[str, Emit] = {
    "add": _instruction("add"),
    "sub": _instruction("sub"),
    "mul": _instruction("mul"),
    "and": _instruction("and"),
    "or": _instruction("or"),
    "xor": _instruction("xor"),
    "floordiv": _floordiv,
    "mod": _mod,
    "truncdiv": _truncdiv,
    "truncmod": _truncmod,
    "pow": _pow,
    "min": _extreme("min"),
    "max": _extreme("max"),
    "shl": _shift(lambda _: "shl"),
    "shr": _shift(_by_sign("ashr", "lshr")),
    "ushr": _shift(lambda _: "lshr"),
}

UNARY: dict[str, Emit] = {
    "neg": lambda f, dtype, x: f.apply("sub", f.type(dtype), "0", x),
    "not": lambda f, dtype, x: f.apply("xor", f.type(dtype), x, "-1"),
    "abs": _abs,
    "sign": _sign,
    "floor": _same,
    "ceil": _same,
    "round": _same,
    "trunc": _same,
    "popcount": lambda f, dtype, x: intrinsic(f, "ctpop", f.type(dtype), x),
    "clz": lambda f, dtype, x: _with_flag(f, "ctlz", dtype, x),
}

BOOL_BINARY: dict[str, Emit] = {
    "and": _instruction("and"),
    "or": _instruction("or"),
    "xor": _instruction("xor"),
}


def _bool_not(f: FunctionText, _: DType, x: str) -> str:
    return f.apply("xor", "i1", x, "true")


_UNCHANGED = ("neg", "abs", "sign", "floor", "ceil", "round", "trunc", "popcount")
BOOL_UNARY: dict[str, Emit] = dict.fromkeys(_UNCHANGED, _same) | {
    "not": _bool_not,
    "clz": _bool_not,
}


def predicate(fn: str, dtype: DType) -> str:
    """The condition of an integer comparison."""
    if fn in ("eq", "ne"):
        return fn
    return ("s" if dtype.is_signed else "u") + fn
