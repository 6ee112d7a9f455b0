"""Differences whose opposite is known: which are shared."""

from __future__ import annotations

import pytest

from octants.ir.printer import to_text
from octants.ir.verifier import verify
from octants.passes.arithmetic.share_differences import share_differences
from tests.ir.parser import parse

KERNEL = """\
kernel @k
array @x: f32, 1, ndarray, () [primal]
array @y: f32, 1, field, () [primal (8,) ((0, 1, 0, 4),) ()]
array @n: i32, 1, field, () [primal (8,) ((0, 1, 0, 4),) ()]
record #r: f32
parallel @k_0 {{
  %0: i32 = constant<0>()
  %1: i32 = shape<@x, 0>()
  yield(%0, %1)
}} {{ (%2: i32):
  %3: f32 = load<@x, primal>(%2)
  %11: i32 = constant<0>()
  %4: f32 = load<@x, primal>(%11)
  %5: f32 = binary<sub>(%3, %4)
  {body}
  yield()
}}
"""
DIFFERENCE = "%6: f32 = binary<sub>(%4, %3)\n"
SUM = "%9: f32 = fma(%6, %6, %3)\nstore<@y, primal>(%9, %2)\n"
OPPOSITE = DIFFERENCE + SUM


def is_shared(body: str) -> bool:
    module = parse(KERNEL.format(body=body))
    verify(module)
    share_differences(module)
    verify(module)
    return "unary<neg>" in to_text(module)


def test_what_is_shared() -> None:
    assert is_shared(OPPOSITE)
    loop = "%7: i32 = constant<3>()\nfor(%7, %7) { (%8: i32):\n" + OPPOSITE + "yield()\n}\n"
    assert is_shared(loop)
    product = "%7: f32 = binary<mul>(%6, %3)\n%8: f32 = binary<add>(%7, %4)\n"
    square = "%10: f32 = binary<mul>(%6, %6)\n%11: f32 = binary<div>(%3, %10)\n"
    assert is_shared(OPPOSITE + product + square)


ALONE = {
    "the same difference": "%6: f32 = binary<sub>(%3, %4)\nstore<@y, primal>(%6, %2)\n",
    "another difference": "%6: f32 = binary<sub>(%4, %4)\nstore<@y, primal>(%6, %2)\n",
    "one that a branch needs": OPPOSITE
    + "%7: u1 = compare<lt>(%6, %3)\nif(%7) {\nstore<@y, primal>(%3, %2)\nyield()\n} {\n"
    "yield()\n}\n",
    "one that becomes an index": OPPOSITE
    + "%7: i32 = cast(%6)\n%8: i32 = load<@n, primal>(%7)\nstore<@n, primal>(%8, %2)\n",
    "one that is stored": DIFFERENCE + "store<@y, primal>(%6, %2)\n",
    "a divisor": OPPOSITE + "%7: f32 = binary<div>(%3, %6)\n",
    "a product that is a divisor": OPPOSITE
    + "%7: f32 = binary<mul>(%3, %6)\n%8: f32 = binary<div>(%3, %7)\n",
    "a side of an angle": OPPOSITE + "%7: f32 = binary<atan2>(%6, %3)\n",
    "a factor of what a loop carries": OPPOSITE
    + "%7: i32 = constant<3>()\n%8: f32 = for(%7, %7, %6) { (%10: i32, %12: f32):\n"
    "yield(%12)\n}\n",
    "one in a task with records": OPPOSITE
    + "%7: i64 = constant<0>()\nrecord_push<#r>(%7, %7, %6)\n",
}


@pytest.mark.parametrize("name", ALONE)
def test_what_is_not(name: str) -> None:
    assert not is_shared(ALONE[name])
