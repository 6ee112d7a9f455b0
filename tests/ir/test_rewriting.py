"""Blocks are rewritten as a whole: rules see what surrounds an operation as it was."""

from __future__ import annotations

from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Operation
from octants.ir.printer import to_text
from octants.ir.rewriting import rewrite
from octants.ir.verifier import verify
from tests.ir.parser import parse

NEST = """\
kernel @k
array @x: f32, 1, field, () [primal (8,) ((0, 1, 0, 4),) ()]
serial @k_1 {
  %0: i32 = constant<0>()
  %1: i32 = constant<3>()
  for(%0, %1) { (%2: i32):
    %3: f32 = load<@x, primal>(%2)
    %4: f32 = for(%0, %2, %3) { (%5: i32, %6: f32):
      %7: f32 = binary<mul>(%6, %6)
      yield(%7)
    }
    store<@x, primal>(%4, %2)
    yield()
  }
  yield()
}
"""


def test_a_rule_sees_all_operations() -> None:
    module = parse(NEST)
    (task,) = module.tasks
    before, seen = to_text(module), list[int]()

    def keep(builder: Builder, op: Operation) -> bool:
        seen.append(len([*task.body.walk()]))
        return False

    rewrite(task.body, keep)
    assert seen == [len([*task.body.walk()])] * len(seen)
    assert to_text(module) == before


def test_operations_are_replaced_in_their_blocks() -> None:
    module = parse(NEST)

    def add_instead(builder: Builder, op: Operation) -> bool:
        if not isinstance(op, ops.Binary):
            return False
        builder.append(ops.Binary("add", op.lhs, op.rhs, results=op.results))
        return True

    rewrite(module.tasks[0].body, add_instead)
    verify(module)
    assert to_text(module) == NEST.replace("<mul>", "<add>")
