"""Operations on integers and u1 in terms of those that machines have, which may be undefined."""

from __future__ import annotations

from octants.lowering.legal_operations import Rule
from octants.mathlib.ir_number import Number, select
from octants.types.scalars import integer_range, u8, u16, u32, u64

# -- division -----------------------------------------------------------------------------------


def _safe_divisor(a: Number, b: Number) -> tuple[Number, Number | None]:
    """A divisor that is defined, and whether the true one is zero (None: it is not)."""
    if b.known not in (None, 0, -1):
        return b, None
    is_zero = is_bad = b.equals(0)
    if b.type.is_signed:
        least = a.equals(integer_range(b.type)[0])
        is_bad = is_zero | (least & b.equals(-1))
    return select(is_bad, b.lift(1), b), is_zero


def _or_if_zero(is_zero: Number | None, other: Number, result: Number) -> Number:
    return result if is_zero is None else select(is_zero, other, result)


def truncdiv(a: Number, b: Number) -> Number:
    """Zero where the divisor is zero; the least number divided by -1 is itself."""
    divisor, is_zero = _safe_divisor(a, b)
    return _or_if_zero(is_zero, a.lift(0), a.apply("quotient", divisor))


def truncmod(a: Number, b: Number) -> Number:
    """The dividend where the divisor is zero."""
    divisor, is_zero = _safe_divisor(a, b)
    return _or_if_zero(is_zero, a, a.apply("remainder", divisor))


def _is_rounded_up(remainder: Number, divisor: Number) -> Number:
    """Whether truncation went up: a remainder that has not the sign of the divisor."""
    return remainder.differs(0) & ((remainder ^ divisor) < 0)


def _power_of_two(b: Number) -> int | None:
    """The exponent, if the divisor is known to be a power of two."""
    number = b.known
    return (
        None if number is None or number <= 0 or number & (number - 1) else number.bit_length() - 1
    )


def floordiv(a: Number, b: Number) -> Number:
    """Of signed numbers: less by one where truncation went up."""
    exponent = _power_of_two(b)
    if exponent is not None:
        return a.apply("asr", exponent)
    divisor, is_zero = _safe_divisor(a, b)
    up = _is_rounded_up(a.apply("remainder", divisor), divisor)
    floor = a.apply("quotient", divisor) - up.to(a.type)
    return _or_if_zero(is_zero, a.lift(0), floor)


def mod(a: Number, b: Number) -> Number:
    """Of signed numbers: with the sign of the divisor."""
    exponent = _power_of_two(b)
    if exponent is not None:
        return a & ((1 << exponent) - 1)
    divisor, is_zero = _safe_divisor(a, b)
    remainder = a.apply("remainder", divisor)
    correction = select(_is_rounded_up(remainder, divisor), divisor, 0)
    return _or_if_zero(is_zero, a, remainder + correction)


def remainder(a: Number, b: Number) -> Number:
    """For machines that have the quotient alone."""
    return a - a.apply("quotient", b) * b


# -- powers -------------------------------------------------------------------------------------

_MULTIPLIED = 8
"""Powers up to there are products, the others calls."""


def power(a: Number, b: Number) -> Number:
    """A few products where the exponent is a small constant, else a call."""
    exponent = b.known
    if exponent is None or not 0 <= exponent <= _MULTIPLIED:
        build = a.build
        return Number(build, build.call("integer_power", [a.value, b.value], a.type))
    result, square = a.lift(1), a
    while exponent:
        if exponent & 1:
            result = result * square
        exponent >>= 1
        if exponent:
            square = square * square
    return result


# -- the rest -----------------------------------------------------------------------------------


def _shift(fn: str) -> Rule:
    """By a count modulo the width."""

    def rule(a: Number, b: Number) -> Number:
        is_within = b.known is not None and 0 <= b.known < a.type.bits
        return a.apply(fn, b if is_within else b & (a.type.bits - 1))

    return rule


def minimum(a: Number, b: Number) -> Number:
    """By a comparison."""
    return select(b < a, b, a)


def maximum(a: Number, b: Number) -> Number:
    """By a comparison."""
    return select(b > a, b, a)


def absolute(x: Number) -> Number:
    """The least number is its own."""
    return select(x < 0, -x, x)


def sign(x: Number) -> Number:
    """The bits of the sign, and 1 for what is positive."""
    positive = (x > 0).to(x.type)
    return x.apply("asr", x.type.bits - 1) | positive


def sign_of_unsigned(x: Number) -> Number:
    """Whether it is not zero."""
    return x.differs(0).to(x.type)


_WORD = {8: u8, 16: u16, 32: u32, 64: u64}


def _words(x: Number) -> list[Number]:
    """The bits of an integer as u32, the lowest first; those of small types are zero above."""
    bits = x.to(_WORD[x.type.bits])
    if x.type.bits < 64:
        return [bits.to(u32)]
    return [bits.to(u32), bits.apply("lsr", 32).to(u32)]


def popcount(x: Number) -> Number:
    """The sum of those of its words of 32 bits."""
    first, *rest = (word.apply("popcount") for word in _words(x))
    return sum(rest, start=first).to(x.type)


def clz(x: Number) -> Number:
    """The bits below the highest one are set, and those that are not are counted."""
    bits = x.to(_WORD[x.type.bits]) if x.type.bits == 64 else _words(x)[0]
    distance = 1
    while distance < x.type.bits:
        bits = bits | bits.apply("lsr", distance)
        distance *= 2
    return (x.type.bits - bits.apply("popcount")).to(x.type)


def same(x: Number) -> Number:
    """An integer is whole, and an unsigned one not negative."""
    return x


_ANY: dict[str, Rule] = {
    "truncdiv": truncdiv,
    "truncmod": truncmod,
    "pow": power,
    "shl": _shift("lsl"),
    "ushr": _shift("lsr"),
    "min": minimum,
    "max": maximum,
    "popcount": popcount,
    "clz": clz,
    "remainder": remainder,
    **dict.fromkeys(("floor", "ceil", "round", "trunc"), same),
}

SIGNED: dict[str, Rule] = {
    **_ANY,
    "floordiv": floordiv,
    "mod": mod,
    "shr": _shift("asr"),
    "abs": absolute,
    "sign": sign,
}

UNSIGNED: dict[str, Rule] = {
    **_ANY,
    "floordiv": truncdiv,
    "mod": truncmod,
    "shr": _shift("lsr"),
    "abs": same,
    "sign": sign_of_unsigned,
}

TRUTHS: dict[str, Rule] = {  # false is less than true
    "lt": lambda a, b: ~a & b,
    "le": lambda a, b: ~a | b,
    "gt": lambda a, b: a & ~b,
    "ge": lambda a, b: a | ~b,
}
