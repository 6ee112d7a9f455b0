"""Doubles a constant factor in place of the product that it is in, which `fast_math` allows.

Before::

    kernel @k
    array @x: f32, 0, field, () [primal, adjoint]
    serial @k_0 {
      %0: f32 = load<@x, primal>()
      %1: f32 = constant<-1.5>()
      %2: f32 = binary<mul>(%1, %0)
      %3: f32 = load<@x, adjoint>()
      %4: f32 = binary<mul>(%3, %2)
      %5: f32 = binary<add>(%4, %4)
      store<@x, adjoint>(%5)
      yield()
    }

After::

    kernel @k
    array @x: f32, 0, field, () [primal, adjoint]
    serial @k_0 {
      %0: f32 = load<@x, primal>()
      %1: f32 = constant<-1.5>()
      %2: f32 = constant<-3.0>()
      %3: f32 = binary<mul>(%2, %0)
      %4: f32 = load<@x, adjoint>()
      %5: f32 = binary<mul>(%4, %3)
      store<@x, adjoint>(%5)
      yield()
    }

Derivatives of squares are twice something. The bits are the same, but where a number overflows, or
is so small that it loses digits.
"""

from __future__ import annotations

import math
from collections import Counter

from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.core import Block, Module, Operation, Task, Value
from octants.types.scalars import convert


@staged("fold_doublings")
def fold_doublings(module: Module) -> None:
    """Fold in every task, in place."""
    for task in module.tasks:
        _Doubles(task).fold(task.body)


class _Doubles:
    """What a task says of its constants, and who uses what."""

    def __init__(self, task: Task) -> None:
        self._uses = Counter(value for op in task.body.walk() for value in op.operands)
        made = (op for op in task.body.walk() if isinstance(op, ops.Constant))
        self._numbers = {op.result: op.value for op in made if op.result.type.is_float}

    def fold(self, block: Block) -> None:
        """Fold in a block and its regions."""
        products: dict[Value, ops.Binary] = {}
        kept: list[Operation] = []
        constants: dict[Operation, ops.Constant] = {}
        for op in block.ops:
            for region in op.regions:
                self.fold(region)
            if isinstance(op, ops.Binary) and op.fn == "mul" and op.result.type.is_float:
                products[op.result] = op
            elif isinstance(op, ops.Binary) and self._is_double(op):
                factor = self._factor(op.lhs, products)
                if factor is not None:
                    constants[factor[0]] = _doubled(*factor)
                    products[op.result] = products[op.lhs]
                    products[op.result].results[:] = op.results
                    continue
            kept.append(op)
        before = ([constants[op], op] if op in constants else [op] for op in kept)
        block.ops[:] = [op for group in before for op in group]

    def _is_double(self, op: ops.Binary) -> bool:
        """Whether it is the sum of a value with itself, and the only use of that value."""
        return op.fn == "add" and op.lhs is op.rhs and self._uses[op.lhs] == 2

    def _factor(
        self, value: Value, products: dict[Value, ops.Binary]
    ) -> tuple[ops.Binary, str, float] | None:
        """The product in a value that has a constant factor, the side of that, and the number.

        Nothing else uses the products in between.
        """
        product = products.get(value)
        if product is None:
            return None
        for side, factor in (("lhs", product.lhs), ("rhs", product.rhs)):
            number = self._numbers.get(factor)
            if number is not None and math.isfinite(convert(2 * number, value.type)):
                return product, side, number
        factors = [x for x in (product.lhs, product.rhs) if self._uses[x] == 1]
        found = (self._factor(factor, products) for factor in factors)
        return next((each for each in found if each is not None), None)


def _doubled(product: ops.Binary, side: str, number: float) -> ops.Constant:
    """Twice a constant, which takes its place as a factor."""
    value = Value(product.result.type)
    setattr(product, side, value)
    return ops.Constant(2 * number, results=[value])
