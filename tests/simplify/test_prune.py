"""Dead code that only a record uses."""

from __future__ import annotations

from octants.ir import ops
from octants.simplify.dead_code import prune
from tests.ir.parser import parse

NEVER_PUSHED = """\
kernel @k
array @x: i64, 0, field, () [primal]
record #r0: f64
serial @k_0 {
  %0: i64 = constant<3>()
  %1: i64 = load<@x, primal>()
  %2: i64 = record_end<#r0>(%1, %0)
  store<@x, primal>(%2)
  yield()
}
"""


def test_a_record_that_nobody_writes_takes_nothing() -> None:
    """What is recorded in a loop without a turn is gone before the position after it is."""
    module = parse(NEVER_PUSHED)
    prune(module)
    (end,) = (op for op in module.walk() if isinstance(op, ops.RecordEnd))
    assert not end.record.slots
