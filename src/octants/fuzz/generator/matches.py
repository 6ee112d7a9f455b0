"""Statements that Python has besides branches: `match` on values, and `:=` in conditions.

Variables from before a parallel loop that its iterations assign first, and the loop's `else`, are
in `tasks`: a profile with these productions has them.
"""

from __future__ import annotations

from octants.fuzz.generator.bounded_expressions import fitting, within
from octants.fuzz.generator.context import Context, Productions

_CASES = 5


def match(c: Context) -> bool | None:
    """A ``match`` of a number: of a variable, an expression, or what a guard assigns."""
    if c.depth > 4 or not c.affordable(1.0):
        return None
    c.note("match")
    of_floats = c.chance(0.2)
    subject, factor = within(c, c.whole(2), _CASES).text, 1.0
    name = ""
    if of_floats:
        c.note("match of a float")
        subject, factor = f"0.5 * ({subject})", 0.5
    elif c.chance(0.5):
        name = c.shared.fresh("n")
        c.emit(f"{name} = {subject}")
        subject = name
    values = c.rng.sample(range(-1, _CASES), c.integer(1, 4))
    patterns = [_number(value, factor) for value in values]
    if len(patterns) > 1 and c.chance(0.4):
        c.note("match: or")
        patterns[:2] = [f"{patterns[0]} | {patterns[1]}"]
    if c.chance(0.7):
        patterns.append("_")
    with c.block(f"match {subject}:"):
        for number, pattern in enumerate(patterns):
            is_last = number == len(patterns) - 1
            guard = _guard(c, name) if not (is_last and pattern == "_") and c.chance(0.3) else ""
            with c.block(f"case {pattern}{guard}:"):
                c.statements(1)
                variables = c.variables("f", (), assignable=True)
                if variables and c.chance(0.7):
                    target = c.pick(variables).name
                    c.emit(f"{target} = 0.5 * {target} + {fitting(c, 1.5).text}")
    return True


def _number(value: int, factor: float) -> str:
    return str(value) if factor == 1.0 else repr(factor * value)


def _guard(c: Context, name: str) -> str:
    c.note("match: guard")
    if name and c.chance(0.3):
        c.note("match: a guard assigns the subject")
        return f" if ({name} := {within(c, c.whole(1), _CASES).text}) > {c.integer(0, 3)}"
    return f" if {c.truth()}"


PRODUCTIONS = Productions(statements=((6.0, match),), has_private_variables=True)
