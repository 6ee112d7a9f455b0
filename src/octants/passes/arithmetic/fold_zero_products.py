"""Takes what is multiplied by a constant zero for zero, which `fast_math` allows.

Before::

    array @x: f32, 0, field, () [primal]
    serial {
      %0: f32 = constant<0.0>()
      %1: f32 = load<@x, primal>()
      %2: f32 = binary<mul>(%1, %0)
      %3: f32 = unary<exp>(%1)
      %4: f32 = binary<add>(%2, %3)
      store<@x, primal>(%4)
    }

After::

    serial {
      %0: f32 = load<@x, primal>()
      %1: f32 = unary<exp>(%0)
      store<@x, primal>(%1)
    }

That is so for all numbers but infinities and NaN. A matrix whose zeros are written down, such as a
skew-symmetric one, is multiplied as if by hand.
"""

from __future__ import annotations

from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.core import Block, Module, Operation, Value, replace_operands
from octants.simplify.dead_code import prune


@staged("fold_zero_products")
def fold_zero_products(module: Module) -> None:
    """Drop products with zeros and sums with them from every task, in place."""
    dropped = False
    for task in module.tasks:
        known = _Known()
        known.visit(task.body)
        dropped |= bool(known.same)
    if dropped:
        prune(module)


class _Known:
    """Which values are constant zeros, and which are the same as others."""

    def __init__(self) -> None:
        self.zeros: set[Value] = set()
        self.same: dict[Value, Value] = {}

    def visit(self, block: Block) -> None:
        kept: list[Operation] = []
        for op in block.ops:
            replace_operands(op, lambda value: self.same.get(value, value))
            same = self._existing_value(op)
            if same is not None:
                self.same[op.results[0]] = same
                continue
            kept.append(op)
            for region in op.regions:
                self.visit(region)
        block.ops[:] = kept

    def _existing_value(self, op: Operation) -> Value | None:
        """The value that an operation gives, if it is one that is there."""
        if isinstance(op, ops.Constant):
            if op.result.type.is_float and op.value == 0:
                self.zeros.add(op.result)
        elif isinstance(op, ops.Binary) and op.fn in ("mul", "add", "sub"):
            for one, other in ((op.rhs, op.lhs), (op.lhs, op.rhs)):
                if one in self.zeros and op.fn == "mul":
                    return one
                if one in self.zeros and (op.fn == "add" or one is op.rhs):
                    return other
        elif isinstance(op, ops.Fma) and not self.zeros.isdisjoint((op.x, op.y)):
            return op.z
        return None
