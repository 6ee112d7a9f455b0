"""Lets loops of the backward sweep that only sum run from the first iteration to the last.

Before::                                             After::

    %y = for(0, %n, %init) { (%k, %sum):                 %y = for(0, %n, %init) { (%k, %sum):
      %left = sub(%n, %k)                                  %x = load<@x>(%k)
      %j = sub(%left, 1)                                   %more = add(%sum, %x)
      %x = load<@x>(%j)                                    yield(%more)
      %more = add(%sum, %x)                              }
      yield(%more)
    }

A backward sweep reverses the last iteration first. Where no iteration needs what another one left,
as in the gradient of a sum, the order does not matter (`analysis.sums.serial_sums.has_free_order`).
From the first one on there is no distance to the end to compute, addresses ascend, and work items
that run in step are at the same iteration, so that inner loops whose bounds depend on it take as
long as in the primal loop.

A loop with which inner loops may be stored reverses the last iteration first even if they are run
again, so that the gradient has the same bits: frames are found from the last one on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from octants.analysis.sums.serial_sums import has_free_order
from octants.ir import ops
from octants.ir.core import Module, Operation, Value, replace_operands

LastFirst = Mapping[Operation, tuple[Operation, Value]]
"""Loops over iterations, the last one first: for each the loop that it reverses, and the number of
the iteration (i64)."""


def run_first_to_last(
    module: Module, last_first: LastFirst, with_frames: Collection[Operation]
) -> None:
    """Run the loops whose order is free from the first iteration to the last, in place.

    Args:
        module: a reverse kernel.
        last_first: the loops of its backward sweeps.
        with_frames: the primal loops with which inner loops may be stored.
    """
    counters: dict[Value, Value] = {}
    for op in module.walk():
        if not isinstance(op, ops.For) or op not in last_first:
            continue
        reversed_loop, number = last_first[op]
        if reversed_loop not in with_frames and has_free_order(op, module.noalias):
            counters[number] = op.body.args[0]
    if counters:
        for op in module.walk():
            replace_operands(op, lambda value: counters.get(value, value))
