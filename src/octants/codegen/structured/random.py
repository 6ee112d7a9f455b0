"""Random draws: Philox4x32-10 as `ir.philox` defines it."""

from __future__ import annotations

from octants.codegen.code import Code, Operand
from octants.codegen.structured import floats
from octants.codegen.structured.body import Body
from octants.codegen.structured.conversions import convert
from octants.ir import ops
from octants.ir.philox import MULTIPLIERS, ROUNDS, WEYL
from octants.types.scalars import f16, f32, f64, u1, u32, u64

_PARAMETERS = (u32, u64, u32, u64, u64)


def random(body: Body, op: ops.Random) -> None:
    """Bind the draw to a uniform number of its type."""
    code = body.code
    position = [
        body.use(op.draw),
        body.wide(op.item),
        body.number(op.task & 0xFFFFFFFF, u32),
        body.system("seed"),
        body.system("launch"),
    ]
    words = code.call("philox", _PARAMETERS, u64, _philox, position)
    body.bind(op.result, _uniform(code, op, words))


def _uniform(code: Code, op: ops.Random, words: Operand) -> Operand:
    """The low word leads: its highest bits are the first digits of a float."""
    dtype = op.result.type
    low = code.convert(words, u64, u32)
    if dtype is u1:
        bit = code.apply("and", u32, low, code.constant(1, u32))
        return code.compare("ne", u32, bit, code.constant(0, u32))
    if not dtype.is_float:
        return code.convert(words, u64, dtype)
    if dtype is f64:
        return _double(code, words)
    digits = 11 if dtype is f16 else 24
    bits = code.apply("ushr", u32, low, code.constant(32 - digits, u32))
    number = convert(code, bits, u32, f32)
    scale = code.constant(2.0**-digits, f32)
    return floats.rounded(code, dtype, code.apply("mul", f32, number, scale))


def _double(code: Code, words: Operand) -> Operand:
    low = code.apply("and", u64, words, code.constant(0xFFFFFFFF, u64))
    low = code.apply("shl", u64, low, code.constant(21, u64))
    high = code.apply("ushr", u64, words, code.constant(43, u64))
    number = code.convert(code.apply("xor", u64, low, high), u64, f64)
    return code.apply("mul", f64, number, code.constant(2.0**-53, f64))


def _philox(code: Code, operands: list[Operand]) -> Operand:
    """The first two words of the ten rounds, the first one in the low half."""
    draw, item, task, seed, launch = operands
    mixed = code.apply("xor", u64, seed, launch)
    counter = [
        draw,
        code.convert(item, u64, u32),
        code.apply("xor", u32, _high(code, item), task),
        code.convert(launch, u64, u32),
    ]
    key = [code.convert(seed, u64, u32), _high(code, mixed)]
    for number in range(ROUNDS):
        counter = _round(code, counter, [_weyl(code, key, which, number) for which in (0, 1)])
    low, high = (code.convert(word, u32, u64) for word in counter[:2])
    return code.apply("or", u64, code.apply("shl", u64, high, code.constant(32, u64)), low)


def _high(code: Code, x: Operand) -> Operand:
    return code.convert(code.apply("ushr", u64, x, code.constant(32, u64)), u64, u32)


def _weyl(code: Code, key: list[Operand], which: int, number: int) -> Operand:
    increment = code.constant(number * WEYL[which] & 0xFFFFFFFF, u32)
    return code.apply("add", u32, key[which], increment)


def _round(code: Code, counter: list[Operand], key: list[Operand]) -> list[Operand]:
    first, second = (
        code.apply("mul", u64, code.convert(word, u32, u64), code.constant(factor, u64))
        for word, factor in zip(counter[::2], MULTIPLIERS, strict=True)
    )

    def mix(product: Operand, word: Operand, key: Operand) -> Operand:
        return code.apply("xor", u32, code.apply("xor", u32, _high(code, product), word), key)

    return [
        mix(second, counter[1], key[0]),
        code.convert(second, u64, u32),
        mix(first, counter[3], key[1]),
        code.convert(first, u64, u32),
    ]
