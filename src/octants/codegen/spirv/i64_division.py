"""Emulate division of 64-bit integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from octants.codegen.instruction_writer import Code
from octants.codegen.spirv.i64_value import Pair
from octants.types.scalars import DType, i64, u1, u32, u64

_DIGIT = 16  # bits of a digit in divisions by small numbers


def divide(code: Code, fn: str, dtype: DType, a: Pair, b: Pair) -> Any:
    """Return the quotient or the remainder of two i64 or u64, rounded towards zero."""
    if not dtype.is_signed:
        whole = _quotient(code, a, b)
        return whole if fn == "quotient" else _rest(code, a, b, whole)
    zero = code.constant(0, i64)
    signs = [code.compare("lt", i64, x, zero) for x in (a, b)]
    sizes = [
        x if x.value is not None and x.value > 0 else _with_sign(code, sign, x)
        for sign, x in zip(signs, (a, b), strict=True)
    ]
    whole = _quotient(code, sizes[0], sizes[1])
    if fn == "remainder":
        return _with_sign(code, signs[0], _rest(code, sizes[0], sizes[1], whole))
    return _with_sign(code, code.apply("xor", u1, *signs), whole)


def _with_sign(code: Code, is_negative: Any, x: Pair) -> Any:
    return code.choose(is_negative, i64, code.apply("neg", i64, x), x)


def _rest(code: Code, a: Pair, b: Pair, whole: Pair) -> Any:
    return code.apply("sub", u64, a, code.apply("mul", u64, whole, b))


def _quotient(code: Code, a: Pair, b: Pair) -> Any:
    """Return the quotient of two u64."""
    if b.value is not None and 0 < b.value < 1 << _DIGIT:
        return _by_digits(code, a, b.low)
    return code.call("divide.u64", [u64, u64], u64, _divide, [a, b])


def _by_digits(code: Code, a: Pair, divisor: Any) -> Any:
    """Divide digits of 16 bits, the highest first, each with the remainder of those before."""
    shift, mask = code.constant(_DIGIT, u32), code.constant((1 << _DIGIT) - 1, u32)
    rest, found = code.constant(0, u32), []
    for half in (a.high, a.low):
        for digit in (code.apply("ushr", u32, half, shift), code.apply("and", u32, half, mask)):
            number = code.apply("or", u32, code.apply("shl", u32, rest, shift), digit)
            found.append(code.apply("quotient", u32, number, divisor))
            rest = code.apply("remainder", u32, number, divisor)
    high, low = (
        code.apply("or", u32, code.apply("shl", u32, one, shift), other)
        for one, other in (found[:2], found[2:])
    )
    return Pair(low, high)


def _divide(code: Code, operands: Sequence[Any]) -> Any:
    """Divide two u64: by hardware if they have 32 bits, else bit by bit, without a loop."""
    a, b = operands
    result = code.variable(u64)
    highs = code.apply("or", u32, a.high, b.high)
    is_short = code.compare("eq", u32, highs, code.constant(0, u32))

    def short() -> None:
        whole = code.apply("quotient", u32, a.low, b.low)
        code.write(result, Pair(whole, code.constant(0, u32)))

    def long() -> None:
        code.write(result, _bit_by_bit(code, a, b))

    code.branch(is_short, short, long)
    return code.read(result)


def _bit_by_bit(code: Code, a: Pair, b: Pair) -> Any:
    """Divide by long division: one bit of the quotient in each of 64 steps."""
    rest = code.constant(0, u64)
    words: list[Any] = []
    for half in (a.high, a.low):
        word = code.constant(0, u32)
        for position in reversed(range(32)):
            bit = code.apply("ushr", u32, half, code.constant(position, u32))
            bit = code.apply("and", u32, bit, code.constant(1, u32))
            top = code.apply("ushr", u32, rest.high, code.constant(31, u32))
            twice = code.apply("add", u64, rest, rest)
            twice = Pair(code.apply("or", u32, twice.low, bit), twice.high)
            overflows = code.compare("ne", u32, top, code.constant(0, u32))
            fits = code.apply("or", u1, overflows, code.compare("ge", u64, twice, b))
            rest = code.choose(fits, u64, code.apply("sub", u64, twice, b), twice)
            digit = code.apply(
                "shl", u32, code.convert(fits, u1, u32), code.constant(position, u32)
            )
            word = code.apply("or", u32, word, digit)
        words.append(word)
    return Pair(words[1], words[0])
