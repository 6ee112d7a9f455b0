"""Replaces values that have derivatives of their own by plain ones, once derivatives are taken.

Before::

    array @x: f32, 0, field, () [primal]
    serial {
      %0: f32 = load<@x, primal>()
      %1: f32 = unary<floor>(%0)
      %2: f32 = custom_derivative<{ (%3: f32, %4: f32): yield(%4) }>(%1, %0)
      store<@x, primal>(%2)
    }

After::

    serial {
      %0: f32 = load<@x, primal>()
      %1: f32 = unary<floor>(%0)
      store<@x, primal>(%1)
    }
"""

from __future__ import annotations

from octants.ir import ops
from octants.ir.core import Block, Module, Value, replace_operands
from octants.simplify.dead_code import prune


def drop_custom_derivatives(module: Module) -> None:
    """Replace them in every task, in place."""
    if not any(isinstance(op, ops.CustomDerivative) for op in module.walk()):
        return
    replaced: dict[Value, Value] = {}
    for block in module.blocks():
        _drop(block, replaced)
    prune(module)  # inputs that nothing else used


def _drop(block: Block, replaced: dict[Value, Value]) -> None:
    left = []
    for op in block.ops:
        replace_operands(op, lambda value: replaced.get(value, value))
        if isinstance(op, ops.CustomDerivative):
            replaced.update(zip(op.results, op.values, strict=True))
            continue
        left.append(op)
        for region in op.regions:
            _drop(region, replaced)
    block.ops[:] = left
