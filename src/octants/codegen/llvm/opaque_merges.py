"""Hides vectors that are merged by a mask from LLVM's instruction selection, on x86.

Before::

    %3 = and <8 x i32> %1, splat (i32 -4)
    %4 = and <8 x i32> %2, splat (i32 3)
    %5 = or disjoint <8 x i32> %3, %4
    %6 = select <8 x i1> %0, <8 x i32> %5, <8 x i32> %1

After, with the merged bits behind a fence, which is no instruction of the machine::

    %merged.0f = bitcast <8 x i32> %5 to <8 x float>
    %merged.0h = call <8 x float> @llvm.arithmetic.fence.v8f32(<8 x float> %merged.0f)
    %merged.0i = bitcast <8 x float> %merged.0h to <8 x i32>
    %6 = select <8 x i1> %0, <8 x i32> %merged.0i, <8 x i32> %1

With AVX-512, LLVM makes one `vpternlog` of the four, which writes the lanes of the mask only. Where
an operand is in memory, it exchanges two operands and keeps the table of the result, so that the
bits come from the wrong vector. The same happens to `llvm.copysign`, which merges by the sign.
"""

from __future__ import annotations

import itertools
import re

_VECTOR = r"<\d+ x (?:i8|i16|i32|i64|float|double)>"
_LOGIC = re.compile(
    r"(?m)^ *(%\S+) = (?:\w*tail )?(and|or|xor|bitcast|call) (?:[^\s<%]+ )*"
    rf"{_VECTOR} ([^!\n]*)"
)
_OPERAND = r"(%[^\s,]+|splat \([^)]*\)|<[^>]*>|\w+)"
_CHOICE = re.compile(
    rf"(?m)^( *%\S+ = select (?:\w+ )*<\d+ x i1> [^,]+, ({_VECTOR}) )"
    rf"{_OPERAND}(, \2 ){_OPERAND}(.*)$"
)
_SOURCE = re.compile(r"= (?:or|xor) (?:disjoint )?(?:<\d+ x )?i(?:8|16|32|64)|llvm\.copysign")
_BITS = {"float": 32, "double": 64}
_NAME = re.compile(r"%[^\s,()]+")


def may_merge(text: str) -> bool:
    """Whether optimisation may leave vectors merged by a mask, or make them, in a text."""
    return _SOURCE.search(text) is not None


def hide(text: str) -> str:
    """An optimised text with fences behind merged vectors that a `select` takes."""
    merged = _merged(text)
    if not merged:
        return text
    declared: set[str] = set()
    numbers = itertools.count()

    def fenced(found: re.Match[str]) -> str:
        head, kind, one, between, other, tail = found.groups()
        lines = []
        for name in dict.fromkeys((one, other)):
            if name in merged:
                made, hidden = _fence(kind, name, f"%merged.{next(numbers)}", declared)
                lines += made
                one, other = (hidden if each == name else each for each in (one, other))
        return "\n".join([*lines, f"{head}{one}{between}{other}{tail}"])

    hidden = _CHOICE.sub(fenced, text)
    return "\n".join([hidden, *sorted(declared), ""]) if declared else text


def _merged(text: str) -> set[str]:
    """The names of vectors that are merged, and of what bit operations make of them."""
    masked: set[str] = set()
    merged: set[str] = set()
    for found in _LOGIC.finditer(text):
        name, fn, operands = found.groups()
        names = _NAME.findall(operands)
        if fn == "call":
            if "@llvm.copysign" in operands:
                merged.add(name)
        elif not merged.isdisjoint(names):
            merged.add(name)
        elif fn == "and" and len(names) == 1:
            masked.add(name)
        elif fn == "bitcast":
            if names[0] in masked:
                masked.add(name)
        elif fn != "and" and not masked.isdisjoint(names):
            merged.add(name)
    return merged


def _fence(kind: str, name: str, prefix: str, declared: set[str]) -> tuple[list[str], str]:
    """The lines that hide a vector, and its hidden name; no lines if no vector of floats fits."""
    count, element = re.findall(r"\d+|float|double", kind)
    bits = int(count) * (_BITS.get(element) or int(element))
    if bits % 32:
        return [], name
    floats = f"<{bits // 32} x float>"
    intrinsic = f"@llvm.arithmetic.fence.v{bits // 32}f32"
    declared.add(f"declare {floats} {intrinsic}({floats})")
    lines = [
        f"  {prefix}f = bitcast {kind} {name} to {floats}",
        f"  {prefix}h = call {floats} {intrinsic}({floats} {prefix}f)",
        f"  {prefix}i = bitcast {floats} {prefix}h to {kind}",
    ]
    return lines, f"{prefix}i"
