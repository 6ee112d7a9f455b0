"""Divides f32 by an instruction that is right to two units of the last digit: `fast_math`.

Before::

    array @x: f32, 1, ndarray, () [primal]
    parallel (%2: i32 < shape<@x, 0>()) {
      %3: f32 = load<@x, primal>(%2)
      %4: f32 = unary<exp>(%3)
      %5: f32 = binary<div>(%3, %4)
      store<@x, primal>(%5, %2)
    }

After::

    parallel (%2: i32 < shape<@x, 0>()) {
      %3: f32 = load<@x, primal>(%2)
      %4: f32 = unary<exp>(%3)
      %5: f32 = binary<approximate_div>(%3, %4)
      store<@x, primal>(%5, %2)
    }

The exact quotient takes NVIDIA's GPUs more than twice as many instructions, and a branch. Quotients
are approximated before derivatives are taken, so that a replay divides as what it replays; those
that are rounded to integers or compared are left alone, as by `relax_divisions`.
"""

from __future__ import annotations

from octants.ir.core import Module
from octants.passes.arithmetic.relax_divisions import deciding, may_change


def approximate_quotients(module: Module) -> None:
    """Approximate them in each task, in place."""
    for task in module.tasks:
        if any(may_change(op, set()) for op in task.body.walk()):
            kept = deciding(task.body)
            for op in task.body.walk():
                if may_change(op, kept):
                    op.fn = "approximate_div"
