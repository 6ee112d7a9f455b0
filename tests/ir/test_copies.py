"""Copies of modules: what they do not share with the original."""

from __future__ import annotations

from octants.ir import ops
from octants.ir.cloning import copy_module
from octants.ir.printer import to_text
from octants.simplify.dead_code import prune
from tests.ir.parser import parse

KERNEL = """\
kernel @k
array @x: f32, 1, field, () [primal (8,) ((0, 1, 0, 4),) ()]
record #r: f32, f32
parallel @k_0 {
  %0: i32 = constant<0>()
  %1: i32 = constant<8>()
  yield(%0, %1)
} { (%2: i32):
  %3: f32 = load<@x, primal>(%2)
  %4: i64 = constant<0>()
  record_push<#r>(%4, %4, %3, %3)
  %5: f32, %6: f32 = record_pop<#r>(%4, %4)
  store<@x, primal>(%6, %2)
  yield()
}
"""


def test_a_slot_that_is_dropped_from_a_copy_stays_in_the_original() -> None:
    """Code is made of one module several times, such as with `noalias` and without."""
    module = parse(KERNEL)
    before = to_text(module)
    copy = copy_module(module)
    prune(copy)
    (push,) = (op for op in copy.walk() if isinstance(op, ops.RecordPush))
    assert len(push.record.slots) == 1
    assert to_text(module) == before
