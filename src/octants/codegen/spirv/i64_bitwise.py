"""Emulate bitwise operations, shifts, comparison and selection of 64-bit integers."""

from __future__ import annotations

from typing import Any

from octants.codegen.instruction_writer import Code
from octants.codegen.spirv.i64_value import Pair
from octants.types.scalars import DType, i32, u1, u32

_BITWISE = ("and", "or", "xor", "not")
_UNSIGNED = {"shl": "shl", "shr": "ushr", "ushr": "ushr"}
FUNCTIONS = frozenset((*_BITWISE, *_UNSIGNED))


def apply(code: Code, fn: str, dtype: DType, *operands: Pair) -> Pair:
    """Apply one of `FUNCTIONS` to i64 or u64."""
    if fn in _BITWISE:
        halves = ([getattr(x, name) for x in operands] for name in ("low", "high"))
        return Pair(*(code.apply(fn, u32, *words) for words in halves))
    keeps_sign = fn == "shr" and dtype.is_signed
    x, count = operands
    return _shifted(code, "shr" if keeps_sign else _UNSIGNED[fn], x, count)


def choose(code: Code, condition: Any, on_true: Pair, on_false: Pair) -> Pair:
    """Return the first pair where the condition holds, else the second."""
    low = code.choose(condition, u32, on_true.low, on_false.low)
    return Pair(low, code.choose(condition, u32, on_true.high, on_false.high))


def compare(code: Code, fn: str, dtype: DType, a: Pair, b: Pair) -> Any:
    """Return what `Code.compare` returns, of i64 or u64."""
    same_high = code.compare("eq", u32, a.high, b.high)
    if fn in ("eq", "ne"):
        equal = code.apply("and", u1, same_high, code.compare("eq", u32, a.low, b.low))
        return equal if fn == "eq" else code.apply("not", u1, equal)
    if fn in ("gt", "le"):
        a, b = b, a
    below = code.compare("lt", i32 if dtype.is_signed else u32, a.high, b.high)
    low = code.apply("and", u1, same_high, code.compare("lt", u32, a.low, b.low))
    less = code.apply("or", u1, below, low)
    return less if fn in ("lt", "gt") else code.apply("not", u1, less)


def _shifted(code: Code, fn: str, x: Pair, count: Pair) -> Pair:
    """Shift by less than 32 bits within both halves, or by more from one half to the other."""
    zero = code.constant(0, u32)
    fill = code.apply("shr", i32, x.high, code.constant(31, u32)) if fn == "shr" else zero
    if count.value is not None and count.value % 32 == 0:
        near = x
    else:
        near = _shifted_left(code, x, count) if fn == "shl" else _shifted_right(code, fn, x, count)
    far = Pair(zero, near.low) if fn == "shl" else Pair(near.high, fill)
    if count.value is not None:
        return far if count.value >= 32 else near
    is_far = code.compare("ge", u32, count.low, code.constant(32, u32))
    return choose(code, is_far, far, near)


def _counts(code: Code, count: Pair) -> tuple[Any, Any]:
    """Return the shift count of a half, and that of the bits that cross over, minus 1."""
    if count.value is not None:
        return code.constant(count.value % 32, u32), code.constant(31 - count.value % 32, u32)
    few = code.apply("and", u32, count.low, code.constant(31, u32))
    return few, code.apply("sub", u32, code.constant(31, u32), few)


def _shifted_left(code: Code, x: Pair, count: Pair) -> Pair:
    few, rest = _counts(code, count)
    over = code.apply("ushr", u32, code.apply("ushr", u32, x.low, code.constant(1, u32)), rest)
    high = code.apply("or", u32, code.apply("shl", u32, x.high, few), over)
    return Pair(code.apply("shl", u32, x.low, few), high)


def _shifted_right(code: Code, fn: str, x: Pair, count: Pair) -> Pair:
    few, rest = _counts(code, count)
    high = code.apply(fn, i32 if fn == "shr" else u32, x.high, few)
    over = code.apply("shl", u32, code.apply("shl", u32, x.high, code.constant(1, u32)), rest)
    return Pair(code.apply("or", u32, code.apply("ushr", u32, x.low, few), over), high)
