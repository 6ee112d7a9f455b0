"""Finds sum groups whose updates are products of a few factors, such as an outer product.

The gradient of a matrix that all work items multiply by a vector is such a sum: each thread adds
`a[r] * b[c]` to element (r, c). The threads of a subgroup can exchange the factors instead of the
products. Each then multiplies and adds up for one element, in a fraction of the operations that it
takes to add up all products by exchanges (`codegen.sums_of_products`).

Reverse mode guards a contribution that may not be finite where its adjoint is zero::

    %p = binary<mul>(%adjoint, %x)
    %v = select(%adjoint_is_not_zero, %p, %zero)

A sum of unguarded products differs only if a product of a zero is a NaN. Then so is the sum.
"""

from __future__ import annotations

from collections.abc import Sequence

from octants.analysis.sum_groups import SumGroup
from octants.ir import ops
from octants.ir.core import Task, Value
from octants.lazy_dataclass import dataclass
from octants.types.scalars import f32

Factors = tuple[Value, Value]

MOST_FACTORS = 20
"""The most factors of the products of a group."""


@dataclass(frozen=True, slots=True)
class SumsOfProducts:
    """The products of a group's updates, in order: pairs of positions in `factors`.

    Some updates may be zero where the product is not a number if they are `guarded`.
    """

    factors: tuple[Value, ...]
    pairs: tuple[tuple[int, int], ...]
    guarded: bool


class ProductFinder:
    """Finds the products that the updates of a task add."""

    def __init__(self, task: Task) -> None:
        self._by_result = {value: op for op in task.body.walk() for value in op.results}
        self._zeros = {
            value for value, number in ops.constants_in(task.body).items() if number == 0
        }

    def find(self, group: SumGroup) -> SumsOfProducts | None:
        """The products of a group of f32 sums; None for others, and if they have many factors."""
        pairs = self.factors(group.updates)
        positions = {value: k for k, value in enumerate(dict.fromkeys(sum(pairs, ())))}
        if not pairs or len(positions) > MOST_FACTORS:
            return None
        return SumsOfProducts(
            tuple(positions),
            tuple((positions[a], positions[b]) for a, b in pairs),
            any(isinstance(self._by_result[op.value], ops.Select) for op in group.updates),
        )

    def factors(self, updates: Sequence[ops.Atomic]) -> list[Factors]:
        """The factors of the products that updates add to f32 numbers; none if some are others."""
        if any(op.fn != "add" or op.array.dtype is not f32 for op in updates):
            return []
        found = [self._factors(op.value) for op in updates]
        pairs = [pair for pair in found if pair is not None]
        return pairs if len(pairs) == len(found) else []

    def _factors(self, value: Value) -> Factors | None:
        """The factors of a product, perhaps guarded by whether one of them is zero."""
        op = self._by_result.get(value)
        if not isinstance(op, ops.Select):
            return self._product(value)
        factors, guard = self._product(op.on_true), self._by_result.get(op.condition)
        if factors is None or not isinstance(guard, ops.Compare) or op.on_false not in self._zeros:
            return None
        is_right = guard.fn == "ne" and guard.lhs in factors and guard.rhs in self._zeros
        return factors if is_right else None

    def _product(self, value: Value) -> Factors | None:
        op = self._by_result.get(value)
        if isinstance(op, ops.Binary) and op.fn == "mul":
            return op.lhs, op.rhs
        return None
