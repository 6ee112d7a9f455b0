"""Multiplies by both parts of a reciprocal in place of dividing by a constant: `fast_math`.

Before::

    array @x: f32, 0, field, () [primal]
    serial {
      %0: f32 = load<@x, primal>()
      %1: f32 = constant<3.0>()
      %2: f32 = binary<div>(%0, %1)
      %3: f32 = unary<floor>(%2)
      store<@x, primal>(%3)
    }

After::

    serial {
      %0: f32 = load<@x, primal>()
      %1: f32 = constant<3.0>()
      %2: f32 = constant<0.3333333134651184>()
      %3: f32 = constant<1.9868215517249155e-08>()
      %4: f32 = binary<mul>(%0, %3)
      %5: f32 = fma(%0, %2, %4)
      %6: f32 = unary<floor>(%5)
      store<@x, primal>(%6)
    }

The second constant is what the first lacks of the reciprocal, and the sum is rounded once, on
machines that do so. So a quotient that is a float is exact, and others are rounded correctly, but
for a few nearly halfway between two floats (Brisebarre, Muller and Raina, 2004: Accelerating
correctly rounded floating-point division when the divisor is known in advance). It is done late,
since a quotient has a simpler derivative, and always in the same way, so that a replay has the bits
of what it replays.
"""

from __future__ import annotations

from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Block, Module, Operation, Task, Value
from octants.ir.reciprocals import in_two_parts
from octants.ir.rewriting import rewrite
from octants.types.scalars import f32, f64

Parts = dict[Value, tuple[float, float]]
"""The two parts of the reciprocals of constants."""


def expand_divisions(module: Module) -> None:
    """Expand those of f32 and f64 in every task, in place."""
    for task in module.tasks:
        found = [op for op in task.body.walk() if isinstance(op, ops.Binary) and op.fn == "div"]
        if not found:
            continue
        divisors = {op.rhs for op in found}
        parts: Parts = {}
        for op in task.body.walk():
            if isinstance(op, ops.Constant) and op.result in divisors:
                both = op.result.type in (f32, f64) and in_two_parts(op.value, op.result.type)
                if both:
                    parts[op.result] = both
        if parts:
            _expand(task, parts)


def _expand(task: Task, parts: Parts) -> None:
    known: dict[tuple[Block, Value], list[Value]] = {}

    def expand(builder: Builder, op: Operation) -> bool:
        if not (isinstance(op, ops.Binary) and op.fn == "div" and op.rhs in parts):
            return False
        key = builder.block, op.rhs
        if key not in known:
            known[key] = [builder.constant(part, op.rhs.type) for part in parts[op.rhs]]
        large, small = known[key]
        rest = builder.binary("mul", op.lhs, small)
        builder.append(ops.Fma(op.lhs, large, rest, results=op.results))
        return True

    rewrite(task.body, expand)
