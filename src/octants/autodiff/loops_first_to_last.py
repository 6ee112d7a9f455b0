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
as in the gradient of a sum, the order does not matter (`analysis.serial_sums.has_free_order`). From
the first one on there is no distance to the end to compute, addresses ascend, and work items that
run in step are at the same iteration, so that inner loops whose bounds depend on it take as long as
in the primal loop.
"""

from __future__ import annotations

from collections.abc import Mapping

from octants.analysis.serial_sums import has_free_order
from octants.ir import ops
from octants.ir.core import Module, Operation, Value, replace_operands

LastFirst = Mapping[Operation, Value]
"""Loops over iterations, the last one first, and the number of the iteration (i64) in each."""


def run_first_to_last(module: Module, last_first: LastFirst) -> None:
    """Run the loops whose order is free from the first iteration to the last, in place.

    Args:
        module: a reverse kernel.
        last_first: the loops of its backward sweeps.
    """
    counters: dict[Value, Value] = {}
    for op in module.walk():
        if isinstance(op, ops.For) and op in last_first and has_free_order(op, module.noalias):
            counters[last_first[op]] = op.body.args[0]
    if counters:
        for op in module.walk():
            replace_operands(op, lambda value: counters.get(value, value))
