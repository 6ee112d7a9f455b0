"""Finds sum groups whose updates are the products of an outer product.

The gradient of a matrix that all work items multiply by a vector is such a sum: each thread adds
`a[r] * b[c]` to element (r, c). The threads of a subgroup can exchange the factors instead of the
products. Each then multiplies and adds up for a few elements, in a fraction of the operations that
it takes to add up all products by exchanges (`codegen.sums_of_products`).

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

MOST_FACTORS = 24
"""The most factors of the products of a group."""

PIECE = 4
"""The columns of the tile of an outer product that a lane adds up."""


@dataclass(frozen=True, slots=True)
class SumsOfProducts:
    """The updates of a group: in order, the products of each row with each column.

    Some updates may be zero where the product is not a number if they are `guarded`.
    """

    rows: tuple[Value, ...]
    columns: tuple[Value, ...]
    guarded: bool

    def fits(self, lanes: int) -> bool:
        """Whether lanes can divide the outer product into tiles."""
        width = len(self.columns)
        is_power = not width & (width - 1)
        return is_power and PIECE <= width <= lanes and len(self.rows) % (lanes // width) == 0


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
        firsts, seconds = [a for a, _ in pairs], [b for _, b in pairs]
        if len(pairs) > 1 and firsts[0] is not firsts[1]:
            firsts, seconds = seconds, firsts
        rows, columns = dict.fromkeys(firsts), dict.fromkeys(seconds)
        if not pairs or len(rows) + len(columns) > MOST_FACTORS:
            return None
        if list(zip(firsts, seconds, strict=True)) != [(a, b) for a in rows for b in columns]:
            return None
        is_guarded = any(isinstance(self._by_result[op.value], ops.Select) for op in group.updates)
        return SumsOfProducts(tuple(rows), tuple(columns), is_guarded)

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
