"""Random draws: Philox4x32-10 as `ir.philox` defines it."""

from __future__ import annotations

from octants.codegen.llvm import floats
from octants.codegen.llvm.function import FunctionText
from octants.codegen.llvm.module import ModuleText
from octants.codegen.llvm.text import float_literal
from octants.ir import ops
from octants.ir.philox import MULTIPLIERS, ROUNDS, WEYL
from octants.types.scalars import f16, f64


def random(f: FunctionText, op: ops.Random) -> None:
    """Bind the draw to a uniform number of its type."""
    item = f.use(op.item)
    if op.item.type.bits != 64:
        item = f.convert("sext", f.type(op.item.type), item, "i64")
    helper = f.text.helper("@octants.philox", _philox)
    seed, launch = f.system("seed", "i64"), f.system("launch", "i64")
    operands = [("i32", f.use(op.draw)), ("i64", item), ("i32", str(op.task))]
    words = f.call(helper, "i64", [*operands, ("i64", seed), ("i64", launch)])
    f.bind(op.result, _uniform(f, op, words))


def _uniform(f: FunctionText, op: ops.Random, words: str) -> str:
    """The low word leads: its highest bits are the first digits of a float."""
    dtype = op.result.type
    if not dtype.is_float:
        return words if dtype.bits == 64 else f.convert("trunc", "i64", words, f.type(dtype))
    if dtype is f64:
        low = f.apply("shl", "i64", f.apply("and", "i64", words, 4294967295), 21)
        high = f.apply("lshr", "i64", words, "43")
        bits = f.apply("xor", "i64", low, high)
        return _scaled(f, "i64", bits, "double", 53)
    digits = 11 if dtype is f16 else 24
    word = f.convert("trunc", "i64", words, "i32")
    bits = f.apply("lshr", "i32", word, 32 - digits)
    return floats.rounded(f, dtype, _scaled(f, "i32", bits, "float", digits))


def _scaled(f: FunctionText, source: str, bits: str, target: str, digits: int) -> str:
    number = f.convert("uitofp", source, bits, target)
    return f.apply("fmul", target, number, float_literal(2.0**-digits))


def _philox(_: ModuleText, name: str) -> str:
    """The first two words of the ten rounds, as one i64."""
    lines = _Rounds().lines()
    return f"""\
define internal i64 {name}(i32 %draw, i64 %item, i32 %task, i64 %seed, i64 %launch) \
nounwind willreturn memory(none) {{
{lines}}}
"""


_START = """\
  %c0 = zext i32 %draw to i64
  %c1 = and i64 %item, 4294967295
  %itemhigh = lshr i64 %item, 32
  %wide = zext i32 %task to i64
  %c2 = xor i64 %itemhigh, %wide
  %c3 = and i64 %launch, 4294967295
  %k0 = trunc i64 %seed to i32
  %mixed = xor i64 %seed, %launch
  %mixedhigh = lshr i64 %mixed, 32
  %k1 = trunc i64 %mixedhigh to i32
"""


class _Rounds:
    """The text of the rounds; words are kept in the low halves of i64."""

    def __init__(self) -> None:
        self._text = [_START]
        self._count = 0

    def lines(self) -> str:
        words = [f"%c{k}" for k in range(4)]
        for number in range(ROUNDS):
            words = self._round(words, number)
        high = self._assign(f"shl i64 {words[1]}, 32")
        both = self._assign(f"or i64 {high}, {words[0]}")
        return "".join([*self._text, f"  ret i64 {both}\n"])

    def _round(self, words: list[str], number: int) -> list[str]:
        first = self._assign(f"mul i64 {words[0]}, {MULTIPLIERS[0]}")
        second = self._assign(f"mul i64 {words[2]}, {MULTIPLIERS[1]}")
        return [
            self._mix(second, words[1], self._key(0, number)),
            self._low(second),
            self._mix(first, words[3], self._key(1, number)),
            self._low(first),
        ]

    def _key(self, which: int, number: int) -> str:
        increment = number * WEYL[which] & 0xFFFFFFFF
        key = self._assign(f"add i32 %k{which}, {increment - (increment >> 31 << 32)}")
        return self._assign(f"zext i32 {key} to i64")

    def _mix(self, product: str, word: str, key: str) -> str:
        high = self._assign(f"lshr i64 {product}, 32")
        return self._assign(f"xor i64 {self._assign(f'xor i64 {high}, {word}')}, {key}")

    def _low(self, product: str) -> str:
        return self._assign(f"and i64 {product}, 4294967295")

    def _assign(self, instruction: str) -> str:
        self._count += 1
        self._text.append(f"  %r{self._count} = {instruction}\n")
        return f"%r{self._count}"
