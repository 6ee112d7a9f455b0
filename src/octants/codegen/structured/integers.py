"""Arithmetic on integers and u1. Nothing is undefined: see `ir.semantics` for the results."""

from __future__ import annotations

from collections.abc import Callable

from octants.codegen.code import Code, Operand
from octants.types.scalars import DType, i64, integer_range, u1, u32, u64

Emit = Callable[..., Operand]


def _instruction(fn: str) -> Emit:
    return lambda code, dtype, *operands: code.apply(fn, dtype, *operands)


# -- division -----------------------------------------------------------------------------------


def _safe_divisor(code: Code, dtype: DType, a: Operand, b: Operand) -> tuple[Operand, Operand]:
    """A divisor that is defined, and whether the true one is zero (None: it is not)."""
    if code.known(b) not in (None, 0, -1):
        return b, None
    zero, one = code.constant(0, dtype), code.constant(1, dtype)
    is_zero = code.compare("eq", dtype, b, zero)
    is_bad = is_zero
    if dtype.is_signed:
        least = code.compare("eq", dtype, a, code.constant(integer_range(dtype)[0], dtype))
        minus = code.compare("eq", dtype, b, code.constant(-1, dtype))
        is_bad = code.apply("or", u1, is_zero, code.apply("and", u1, least, minus))
    return code.choose(is_bad, dtype, one, b), is_zero


def _or_if_zero(
    code: Code, dtype: DType, zero: Operand, other: Operand, result: Operand
) -> Operand:
    return result if zero is None else code.choose(zero, dtype, other, result)


def _truncdiv(code: Code, dtype: DType, a: Operand, b: Operand) -> Operand:
    divisor, zero = _safe_divisor(code, dtype, a, b)
    quotient = code.apply("quotient", dtype, a, divisor)
    return _or_if_zero(code, dtype, zero, code.constant(0, dtype), quotient)


def _truncmod(code: Code, dtype: DType, a: Operand, b: Operand) -> Operand:
    divisor, zero = _safe_divisor(code, dtype, a, b)
    return _or_if_zero(code, dtype, zero, a, code.apply("remainder", dtype, a, divisor))


def _is_rounded_up(code: Code, dtype: DType, remainder: Operand, divisor: Operand) -> Operand:
    """Whether truncation went up: a remainder that has not the sign of the divisor."""
    zero = code.constant(0, dtype)
    differ = code.compare("lt", dtype, code.apply("xor", dtype, remainder, divisor), zero)
    return code.apply("and", u1, code.compare("ne", dtype, remainder, zero), differ)


def _power_of_two(code: Code, dtype: DType, b: Operand) -> int | None:
    """The exponent, if the divisor is a known power of two of a signed type."""
    number = code.known(b)
    if number is None or number <= 0 or number & (number - 1) or not dtype.is_signed:
        return None
    return int(number).bit_length() - 1


def _floordiv(code: Code, dtype: DType, a: Operand, b: Operand) -> Operand:
    exponent = _power_of_two(code, dtype, b)
    if exponent is not None:
        return code.apply("shr", dtype, a, code.constant(exponent, dtype))
    if not dtype.is_signed:
        return _truncdiv(code, dtype, a, b)
    divisor, zero = _safe_divisor(code, dtype, a, b)
    quotient = code.apply("quotient", dtype, a, divisor)
    remainder = code.apply("sub", dtype, a, code.apply("mul", dtype, quotient, divisor))
    excess = code.convert(_is_rounded_up(code, dtype, remainder, divisor), u1, dtype)
    floor = code.apply("sub", dtype, quotient, excess)
    return _or_if_zero(code, dtype, zero, code.constant(0, dtype), floor)


def _mod(code: Code, dtype: DType, a: Operand, b: Operand) -> Operand:
    exponent = _power_of_two(code, dtype, b)
    if exponent is not None:
        return code.apply("and", dtype, a, code.constant((1 << exponent) - 1, dtype))
    if not dtype.is_signed:
        return _truncmod(code, dtype, a, b)
    divisor, zero = _safe_divisor(code, dtype, a, b)
    remainder = code.apply("remainder", dtype, a, divisor)
    up = _is_rounded_up(code, dtype, remainder, divisor)
    correction = code.choose(up, dtype, divisor, code.constant(0, dtype))
    floor = code.apply("add", dtype, remainder, correction)
    return _or_if_zero(code, dtype, zero, a, floor)


# -- powers -------------------------------------------------------------------------------------

_UNROLLED = 8


def _pow(code: Code, dtype: DType, a: Operand, b: Operand) -> Operand:
    exponent = code.known(b)
    if exponent is not None and 0 <= exponent <= _UNROLLED:
        return _unrolled_power(code, dtype, a, exponent)

    def make(inner: Code, operands: list[Operand]) -> Operand:
        return _power(inner, dtype, *operands)

    return code.call(f"pow.{dtype}", [dtype, dtype], dtype, make, [a, b])


def _unrolled_power(code: Code, dtype: DType, a: Operand, exponent: int) -> Operand:
    result, square = None, a
    while exponent:
        if exponent & 1:
            result = square if result is None else code.apply("mul", dtype, result, square)
        exponent >>= 1
        if exponent:
            square = code.apply("mul", dtype, square, square)
    return code.constant(1, dtype) if result is None else result


def _power(code: Code, dtype: DType, a: Operand, b: Operand) -> Operand:
    """By squaring; a negative exponent leaves 1 and -1, up to the sign, and gives 0 otherwise."""
    zero, one = code.constant(0, dtype), code.constant(1, dtype)
    result, square, rest = (code.variable(dtype) for _ in range(3))
    for variable, start in ((result, one), (square, a), (rest, b)):
        code.write(variable, start)
    if dtype.is_signed:
        minus = code.constant(-1, dtype)
        units = [code.compare("eq", dtype, a, unit) for unit in (one, minus)]
        keeps = code.apply("or", u1, *units)
        negative = code.compare("lt", dtype, b, zero)
        code.write(square, code.choose(_and_not(code, negative, keeps), dtype, zero, a))
        parity = code.apply("and", dtype, b, one)
        vanishes = code.choose(keeps, dtype, parity, one)
        code.write(rest, code.choose(negative, dtype, vanishes, b))

    def turn() -> None:
        odd = code.compare("ne", dtype, code.apply("and", dtype, code.read(rest), one), zero)
        factor = code.choose(odd, dtype, code.read(square), one)
        code.write(result, code.apply("mul", dtype, code.read(result), factor))
        code.write(square, code.apply("mul", dtype, code.read(square), code.read(square)))
        code.write(rest, code.apply("ushr", dtype, code.read(rest), one))

    code.loop(lambda: code.compare("ne", dtype, code.read(rest), zero), turn)
    return code.read(result)


def _and_not(code: Code, a: Operand, b: Operand) -> Operand:
    return code.apply("and", u1, a, code.apply("not", u1, b))


# -- the rest -----------------------------------------------------------------------------------


def _shift(fn: str) -> Emit:
    def emit(code: Code, dtype: DType, a: Operand, b: Operand) -> Operand:
        number, mask = code.known(b), dtype.bits - 1
        if number is not None:
            return code.apply(fn, dtype, a, code.constant(number & mask, dtype))
        count = code.apply("and", dtype, b, code.constant(mask, dtype))
        return code.apply(fn, dtype, a, count)

    return emit


def _extreme(fn: str) -> Emit:
    def emit(code: Code, dtype: DType, a: Operand, b: Operand) -> Operand:
        return code.choose(code.compare(fn, dtype, b, a), dtype, b, a)

    return emit


def _abs(code: Code, dtype: DType, x: Operand) -> Operand:
    if not dtype.is_signed:
        return x
    negative = code.compare("lt", dtype, x, code.constant(0, dtype))
    return code.choose(negative, dtype, code.apply("neg", dtype, x), x)


def _sign(code: Code, dtype: DType, x: Operand) -> Operand:
    zero, one = code.constant(0, dtype), code.constant(1, dtype)
    above = code.choose(code.compare("ne", dtype, x, zero), dtype, one, zero)
    if not dtype.is_signed:
        return above
    negative = code.compare("lt", dtype, x, zero)
    return code.choose(negative, dtype, code.constant(-1, dtype), above)


def _words(code: Code, dtype: DType, x: Operand) -> list[Operand]:
    """The bits of an integer as u32, the lowest first; those of small types are zero above."""
    if dtype.bits < 64:
        mask = code.constant((1 << dtype.bits) - 1, u32)
        low = code.convert(x, dtype, u32)
        return [low if dtype.bits == 32 else code.apply("and", u32, low, mask)]
    high = code.apply("ushr", u64, x, code.constant(32, u64))
    return [code.convert(part, u64, u32) for part in (x, high)]


def _popcount(code: Code, dtype: DType, x: Operand) -> Operand:
    counts = [code.bit_count(word) for word in _words(code, dtype, x)]
    total = counts[0] if len(counts) == 1 else code.apply("add", u32, *counts)
    return code.convert(total, u32, dtype)


def _clz(code: Code, dtype: DType, x: Operand) -> Operand:
    """The bits below the highest one are set, and those that are not are counted."""
    wide = i64 if dtype.bits == 64 else u32
    bits = x if dtype.bits == 64 else _words(code, dtype, x)[0]
    for distance in (1, 2, 4, 8, 16, 32)[: 6 if dtype.bits == 64 else 5]:
        moved = code.apply("ushr", wide, bits, code.constant(distance, wide))
        bits = code.apply("or", wide, bits, moved)
    below = _popcount(code, wide, bits)
    return code.convert(
        code.apply("sub", wide, code.constant(dtype.bits, wide), below), wide, dtype
    )


def _same(_: Code, __: DType, x: Operand) -> Operand:
    return x


BINARY: dict[str, Emit] = {
    **{fn: _instruction(fn) for fn in ("add", "sub", "mul", "and", "or", "xor")},
    "floordiv": _floordiv,
    "mod": _mod,
    "truncdiv": _truncdiv,
    "truncmod": _truncmod,
    "pow": _pow,
    "min": _extreme("lt"),
    "max": _extreme("gt"),
    "shl": _shift("shl"),
    "shr": _shift("shr"),
    "ushr": _shift("ushr"),
}

UNARY: dict[str, Emit] = {
    "neg": _instruction("neg"),
    "not": _instruction("not"),
    "abs": _abs,
    "sign": _sign,
    **dict.fromkeys(("floor", "ceil", "round", "trunc"), _same),
    "popcount": _popcount,
    "clz": _clz,
}

BOOL_BINARY: dict[str, Emit] = {fn: _instruction(fn) for fn in ("and", "or", "xor")}

_UNCHANGED = ("neg", "abs", "sign", "floor", "ceil", "round", "trunc", "popcount")
BOOL_UNARY: dict[str, Emit] = {
    **dict.fromkeys(_UNCHANGED, _same),
    **dict.fromkeys(("not", "clz"), _instruction("not")),
}


def is_less(code: Code, dtype: DType, a: Operand, b: Operand) -> Operand:
    """a < b, by no comparison of the two: H. S. Warren, "Hacker's Delight", 2013, section 2-12."""

    def bits(fn: str, *operands: Operand) -> Operand:
        return code.apply(fn, dtype, *operands)

    difference = bits("sub", a, b)
    if dtype.is_signed:
        overflows = bits("and", bits("xor", a, b), bits("xor", difference, a))
        found = bits("xor", difference, overflows)
    else:
        other = bits("not", a)
        borrows = bits("and", bits("or", other, b), difference)
        found = bits("or", bits("and", other, b), borrows)
    top = bits("ushr", found, code.constant(dtype.bits - 1, dtype))
    return code.compare("ne", dtype, top, code.constant(0, dtype))
