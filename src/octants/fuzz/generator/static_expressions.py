"""``static(...)`` around literals and constants, wherever the grammar has them."""

from __future__ import annotations

import random
import re
from typing import Any

from octants.fuzz.generator.context import Context, Productions, Shared

_KNOWN = re.compile(r"(?<![\w.])(?:\d+\.\d+|\d+|COUNT|WEIGHT)(?![\w.(])")
_SHARE = 0.3  # of the literals that are marked

CONDITIONS = (
    "not qd.static(COUNT > {0})",
    "qd.static(COUNT) > {0}",
    "{0} <= qd.static(COUNT) < {1}",
    "qd.static(COUNT > {0}) == True",
    "qd.static(COUNT) in ({0}, {1})",
    "qd.static(COUNT > {0}) and {2}",
    "not qd.static(COUNT > {0}) or {2}",
    "qd.static(TABLE)[1] < WEIGHT",
    "qd.static(None) is None",
)


def _branch(c: Context) -> bool | None:
    """A condition that is known, in part or as a whole."""
    if not c.affordable():
        return None
    low = c.integer(0, 4)
    condition = c.pick(CONDITIONS).format(low, low + c.integer(1, 3), c.truth())
    c.note("static in a condition")
    with c.block(f"if {condition}:"):
        c.statements(1)
    if c.chance(0.5):
        with c.block("else:"):
            c.statements(1)
    return True


def _finish(shared: Shared, lines: list[str], launches: list[Any]) -> tuple[list[str], list[Any]]:
    """Mark some of the literals and constants in the bodies of functions."""
    rng = shared.rng
    return [_marked(shared, rng, line) for line in lines], launches


def _marked(shared: Shared, rng: random.Random, line: str) -> str:
    if not line.startswith("    ") or re.match(r"\s*(@|def |class |\w+: )", line):
        return line

    def mark(found: re.Match[str]) -> str:
        if rng.random() >= _SHARE:
            return found[0]
        shared.features["static operand"] += 1
        return f"qd.static({found[0]})"

    return _KNOWN.sub(mark, line)


PRODUCTIONS = Productions(statements=((2.0, _branch),), finish=_finish)
