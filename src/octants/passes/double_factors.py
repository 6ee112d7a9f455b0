"""Doubles a constant factor of a product, where the product would be doubled.

Before::

    array @x: f32, 1, ndarray, () [primal]
    array @y: f32, 1, ndarray, () [primal]
    array @z: f32, 1, ndarray, () [primal]
    parallel (%2: i32 < shape<@x, 0>()) {
      %3: f32 = load<@x, primal>(%2)
      %4: f32 = load<@y, primal>(%2)
      %5: f32 = constant<-1.5>()
      %6: f32 = binary<mul>(%5, %3)
      %7: f32 = binary<mul>(%4, %6)
      %8: f32 = binary<add>(%7, %7)
      store<@z, primal>(%8, %2)
    }

After::

    parallel (%2: i32 < shape<@x, 0>()) {
      %3: f32 = load<@x, primal>(%2)
      %4: f32 = load<@y, primal>(%2)
      %5: f32 = constant<-1.5>()
      %6: f32 = constant<-3.0>()
      %7: f32 = binary<mul>(%3, %6)
      %8: f32 = binary<mul>(%4, %7)
      store<@z, primal>(%8, %2)
    }

The derivative of a square is twice a product, and that of a power of a distance begins with a
constant. To double a number is exact unless it overflows or is subnormal. So this is for numbers on
which no branch, trip count or index depends, which a replay must reproduce, and not for f16, of
which everyday numbers overflow.
"""

from __future__ import annotations

from collections import Counter
from typing import TypeGuard

from octants.analysis.replay_strictness import is_free
from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.core import Block, Module, Operation, Task, Value
from octants.lazy_dataclass import dataclass

_LARGE = 1 << 14
"""A limit of constants that are doubled."""


@staged("double_factors")
def double_factors(module: Module) -> None:
    """Double factors in every task, in place."""
    for task in module.tasks:
        found = _find(task)
        if found and is_free(task, "", [each.sum.result for each in found]):
            _rewrite(task.body, found)


@dataclass(frozen=True, slots=True)
class _Doubled:
    """A product that is doubled: its sum with itself, its two factors.

    `scaled` makes one of them, from `constant` and another number.
    """

    sum: ops.Binary
    product: ops.Binary
    other: Value
    scaled: ops.Binary
    constant: ops.Constant


def _find(task: Task) -> list[_Doubled]:
    """Find doubled products with a scaled factor all of whose products are doubled."""
    uses = Counter(value for op in task.body.walk() for value in op.operands)
    makers = {value: op for op in task.body.walk() for value in op.results}
    found: list[_Doubled] = []
    for op in task.body.walk():
        if isinstance(op, ops.Binary) and op.fn == "add" and op.lhs is op.rhs:
            product = makers.get(op.lhs)
            if uses[op.lhs] == 2 and _is_product(product):
                found += _doubled(op, product, makers)[:1]
    times = Counter(each.scaled for each in found)
    return [each for each in found if times[each.scaled] == uses[each.scaled.result]]


def _doubled(op: ops.Binary, product: ops.Binary, makers: dict[Value, Operation]) -> list[_Doubled]:
    """Describe a doubled product once for each factor that has a constant factor."""
    found: list[_Doubled] = []
    for factor, other in ((product.lhs, product.rhs), (product.rhs, product.lhs)):
        scaled = makers.get(factor)
        if _is_product(scaled) and factor is not other:
            constants = [makers.get(value) for value in scaled.operands]
            found += [
                _Doubled(op, product, other, scaled, each)
                for each in constants
                if isinstance(each, ops.Constant) and abs(each.value) < _LARGE
            ]
    return found


def _is_product(op: Operation | None) -> TypeGuard[ops.Binary]:
    if not isinstance(op, ops.Binary) or op.fn != "mul":
        return False
    return op.result.type.is_float and op.result.type.bits >= 32


def _rewrite(block: Block, found: list[_Doubled]) -> None:
    """Let the doubled factors and the products take the place of factors, products and sums."""
    instead: dict[Operation, list[Operation]] = {}
    for each in found:
        scaled, constant = each.scaled, each.constant
        if scaled not in instead:
            rest = scaled.rhs if scaled.lhs is constant.result else scaled.lhs
            twice = ops.Constant(2 * constant.value, results=[Value(constant.result.type)])
            twice.location = scaled.location
            scaled.lhs, scaled.rhs = rest, twice.result
            instead[scaled] = [twice, scaled]
        product = ops.Binary("mul", each.other, scaled.result, results=each.sum.results)
        product.location = each.product.location
        instead |= {each.product: [], each.sum: [product]}
    _replace(block, instead)


def _replace(block: Block, instead: dict[Operation, list[Operation]]) -> None:
    for op in block.ops:
        for region in op.regions:
            _replace(region, instead)
    block.ops[:] = [new for op in block.ops for new in instead.get(op, [op])]
