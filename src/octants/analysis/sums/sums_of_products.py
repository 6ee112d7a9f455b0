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

from octants.analysis.sums.sum_groups import SumGroup
from octants.ir import ops
from octants.ir.core import Task, Value
from octants.lazy_dataclass import dataclass
from octants.types.scalars import f32

Factors = tuple[Value, Value]

MOST_FACTORS = 24
"""The most factors of the products of a group."""

PIECE = 4
"""The columns of the tile of an outer product that a lane adds up."""


ROWS, COLUMNS, MIXED = "rows", "columns", "mixed"
"""The factors that guard the products of a group."""


@dataclass(frozen=True, slots=True)
class SumsOfProducts:
    """The updates of a group: in order, the products of each row with each column.

    All are zero where their row, or their column, is zero, whatever the other factor is, if that
    is the `guard`; some of them if it is `MIXED`, and none if it is "".
    """

    rows: tuple[Value, ...]
    columns: tuple[Value, ...]
    guard: str

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
        guards = {self._guard(op, row) for op, row in zip(group.updates, firsts, strict=True)}
        guard = guards.pop() if len(guards) == 1 else MIXED
        return SumsOfProducts(tuple(rows), tuple(columns), guard)

    def _guard(self, update: ops.Atomic, row: Value) -> str:
        """The factor that guards the product that an update adds; "" if none does."""
        select = self._by_result[update.value]
        if not isinstance(select, ops.Select):
            return ""
        guard = self._by_result[select.condition]
        return ROWS if guard.operands[0] is row else COLUMNS

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
