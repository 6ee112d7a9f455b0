"""Loops of `graph.do_while` around the tasks of a kernel, and sections of a region in it."""

from __future__ import annotations

import ast
from typing import Any

from octants.fuzz.generator.context import Context, Productions, Shared

COUNTER = "left"
"""The field that the loops count down."""


def declare(shared: Shared) -> list[str]:
    """Make the counter. Random numbers depend on how launches are numbered, so there are none.

    Bodies are small now and then, since they are repeated.
    """
    shared.has_random = False
    shared.max_cost *= shared.rng.choice((0.3, 1.0))
    return [f"{COUNTER} = qd.field(qd.i32, shape=())"]


def wrap(c: Context, body: str, _: list[str], values: list[Any]) -> str:
    """Repeat a body that does not return once or twice, and put some of its loops into sections."""
    if "return" in body:
        return body
    arrays = [value for value in values if isinstance(value, str)]
    if len(arrays) == len(set(arrays)):  # two sections may not get one array by two names
        body = _with_sections(c, body)
    if c.chance(0.3):
        return body
    c.note("do_while")
    lines = [f"{COUNTER}[None] = {c.integer(0, 2)}", f"while qd.graph.do_while({COUNTER}):"]
    text = "\n".join(["    " + line for line in lines] + [_indented(body)])
    return f"{text}\n        {COUNTER}[None] -= {COUNTER}[None] > 0"


def _with_sections(c: Context, body: str) -> str:
    """Some of the loops, each in a section of a region."""
    tree = ast.parse("if True:\n" + body).body[0]
    assert isinstance(tree, ast.If)
    statements, lines = tree.body, body.split("\n")
    serial = {name for each in statements if not isinstance(each, ast.For) for name in _names(each)}
    made, is_open = [], False
    for before, each in zip([None, *statements], statements, strict=False):
        own = lines[each.lineno - 2 : (each.end_lineno or each.lineno) - 1]
        is_section = _is_parallel(before, each) and not _names(each) & serial
        if is_section and (is_open or c.chance(0.6)):
            if not is_open:
                c.note("region of sections")
                made.append("    with qd.graph.parallel_context():")
            made += ["        with qd.graph.parallel():", *map(_indented, map(_indented, own))]
            is_open = True
            continue
        made += own
        is_open = False
    return "\n".join(made)


def _is_parallel(before: ast.stmt | None, statement: ast.stmt) -> bool:
    is_static = isinstance(statement, ast.For) and ast.unparse(statement.iter).startswith("qd.stat")
    is_configured = before is not None and "loop_config" in ast.unparse(before)
    return isinstance(statement, ast.For) and not is_static and not is_configured


def _names(statement: ast.stmt) -> set[str]:
    """The locals of the kernel that a statement may use."""
    names = (node.id for node in ast.walk(statement) if isinstance(node, ast.Name))
    return {name for name in names if name[0] in "snvdobk"}


def _indented(text: str) -> str:
    return "\n".join("    " + line if line else line for line in text.split("\n"))


PRODUCTIONS = Productions(declare=declare, kernel=wrap)
