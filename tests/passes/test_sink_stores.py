"""Stores of constants behind loads of the same places: how far they go, and what holds them."""

from __future__ import annotations

from typing import Any

import pytest

from octants.ir.printer import to_text
from octants.ir.verifier import verify
from octants.passes.code_motion.sink_stores import sink_stores
from tests.ir.parser import parse

HEAD = """\
kernel @k
array @x: f32, 1, ndarray, () [primal]
array @y: f32, 1, ndarray, () [primal]
array @z: f32, 1, field exported, () [primal (8,) ((0, 1, 0, 4),) ()]
parallel @k_0 {
  %0: i32 = constant<0>()
  %1: i32 = shape<@x, 0>()
  yield(%0, %1)
} { (%2: i32):
  %3: f32 = constant<0.0>()
  %4: f32 = load<@x, primal>(%2)
"""
STORE = "  store<@x, primal>(%3, %2)\n"
END = "  yield()\n}\n"


def delayed(*lines: str, noalias: bool = True, first: str = STORE) -> str:
    """What follows the load, after the pass."""
    body = "".join(f"  {line}\n" for line in lines)
    module = parse(HEAD + first + body + END)
    sink_stores(module, noalias)
    verify(module)
    text = to_text(module)
    return text[text.index("load<@x, primal>(%2)\n") + len("load<@x, primal>(%2)\n") :]


FREE = [
    ("%5: f32 = load<@y, primal>(%2)",),
    ("%5: f32 = unary<sin>(%4)", "store<@z, primal>(%5, %2)"),
    ("%5: f32 = atomic<add, @y, primal>(%4, %2)",),
]


@pytest.mark.parametrize("lines", FREE)
def test_what_it_passes(lines: Any) -> None:
    assert delayed(*lines) == "".join(f"  {line}\n" for line in lines) + STORE + END


NESTED = """\
  %5: u1 = compare<lt>(%4, %3)
  if(%5) {{
    %6: f32 = load<@{array}, primal>(%2)
    store<@z, primal>(%6, %2)
    yield()
  }} {{
    yield()
  }}
"""


def test_branches() -> None:
    free, holding = NESTED.format(array="y"), NESTED.format(array="x")
    first, _, rest = holding.partition("\n")
    for lines, wanted in ((free, free + STORE), (holding, f"{first}\n{STORE}{rest}")):
        assert delayed(*lines[2:].rstrip().split("\n  ")) == wanted + END


HOLDING = [
    ("%5: f32 = load<@x, primal>(%2)",),
    ("store<@x, primal>(%4, %2)",),
    ("%5: i32 = constant<1>()", "%6: i32 = binary<add>(%2, %5)", "store<@x, primal>(%4, %6)"),
    ("%5: f32 = atomic<add, @x, primal>(%4, %2)",),
    ("%5: u1 = compare<lt>(%4, %3)", "assert<assertion, no>(%5)"),
]


@pytest.mark.parametrize("lines", HOLDING)
def test_what_holds_it(lines: Any) -> None:
    *before, last = lines
    wanted = "".join(f"  {line}\n" for line in before) + STORE + f"  {last}\n"
    assert delayed(*lines) == wanted + END


def test_arguments_may_be_one_array() -> None:
    line = "%5: f32 = load<@y, primal>(%2)"
    assert delayed(line, noalias=False) == STORE + f"  {line}\n" + END
    line = "%5: f32 = load<@z, primal>(%2)"
    assert delayed(line, noalias=False) == STORE + f"  {line}\n" + END


def test_other_stores_stay() -> None:
    line = "%5: f32 = load<@y, primal>(%2)"
    for first in ("  store<@x, primal>(%4, %2)\n", "  store<@y, primal>(%3, %2)\n"):
        assert delayed(line, first=first) == first + f"  {line}\n" + END
