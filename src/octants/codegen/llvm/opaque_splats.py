"""Hides scalars that are spread over a vector from LLVM's instruction selection, on x86.

Before, where the condition turns out to be known only while instructions are selected::

    %2 = select i1 %1, double 0.5, double 0.25
    %3 = insertelement <4 x double> poison, double %2, i32 0

After::

    %2 = select i1 %1, double 0.5, double 0.25
    %opaque.0 = call double @llvm.arithmetic.fence.f64(double %2)
    %3 = insertelement <4 x double> poison, double %opaque.0, i32 0

LLVM makes a load from a table of two numbers of such a select, and of the load and the
`insertelement` one that fills a vector from memory. If that always loads the first number, LLVM
reads the table as if it were a vector, and aborts the process: issue 213251 of LLVM, which is
mended in version 24. The fence, which is no instruction of the machine, keeps the two apart.
"""

from __future__ import annotations

import itertools
import re

MENDED = 24
"""The version of LLVM that needs none of this."""

_NUMBER = r"[-+0-9][^\s,]*"
_CHOICE = rf"select (?:\w+ )*i1 [^,\n]+, (float|double) {_NUMBER}, \{{0}} {_NUMBER}(?:,.*)?$"
_CHOSEN = (
    rf"(?m)^ *(%\S+) = (?:{_CHOICE.format(2)}|uitofp i1 "
    r"|f(?:add|sub|mul|div|neg) (?:\w+ )*(?:float|double) ([^!\n]*))"
)
_SOURCE = (
    rf"(?m){_CHOICE.format(1)}|uitofp i1 "
    rf"|phi (?:float|double) .*\[ ?{_NUMBER},.*\[ ?{_NUMBER},"
)
_IN_SOURCES = (", float ", ", double ", "uitofp i1 ", "phi float ", "phi double ")
"""Texts of which a match of `_SOURCE` has one: looking for them saves compiling the expression."""
_SPREAD = r"(?m)^( *%\S+ = insertelement <\d+ x (float|double)> \w+, )\2 (%[^\s,]+)(, i\d+ 0.*)$"
_FENCES = {"float": "llvm.arithmetic.fence.f32", "double": "llvm.arithmetic.fence.f64"}


def hide_all(text: str) -> str:
    """A text that is compiled without optimisation: it may compute conditions that are known."""
    return _hide(text, None)


def hide_choices(text: str) -> str:
    """An optimised text: choices between two numbers that are spread over a vector."""
    chosen: set[str] = set()
    for found in re.finditer(_CHOSEN, text):
        name, _, operands = found.groups()
        if operands is None or not chosen.isdisjoint(operands.replace(",", "").split()):
            chosen.add(name)
    return _hide(text, chosen) if chosen else text


def may_have_choices(text: str) -> bool:
    """Whether optimisation may leave choices between two numbers, or make them, in a text."""
    may = any(part in text for part in _IN_SOURCES)
    return may and re.search(_SOURCE, text) is not None


def _hide(text: str, chosen: set[str] | None) -> str:
    """Put a fence before each spread of a scalar, or of one of some scalars."""
    used: set[str] = set()
    numbers = itertools.count()

    def fenced(found: re.Match[str]) -> str:
        head, kind, scalar, tail = found.groups()
        if chosen is not None and scalar not in chosen:
            return found[0]
        used.add(kind)
        name = f"%opaque.{next(numbers)}"
        call = f"  {name} = call {kind} @{_FENCES[kind]}({kind} {scalar})"
        return f"{call}\n{head}{kind} {name}{tail}"

    hidden = re.sub(_SPREAD, fenced, text)
    declared = [f"\ndeclare {kind} @{_FENCES[kind]}({kind})\n" for kind in sorted(used)]
    return "".join([hidden, *declared]) if used else text
