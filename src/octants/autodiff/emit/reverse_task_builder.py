"""Builds the body of a reverse task, with its constants hoisted to the start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Block, Operation, Value
from octants.types.scalars import DType, convert, i64


class EntryBuilder(Builder):
    """Builds each constant once, at the start of the body, where it dominates all uses.

    The caller inserts `entry` before the operations of the body at the end. `entry_values` are the
    values that `entry` defines.
    """

    def __init__(self, block: Block, *, contracts: bool = False) -> None:
        super().__init__(block, contracts=contracts)
        self.entry: list[Operation] = []
        self.entry_values: set[Value] = set()
        self._known: dict[tuple[DType, str], Value] = {}

    def hoisted(self, make: Callable[[], Value], *operands: Value) -> Value:
        """A value that is computed at the start of the body if all its operands are."""
        if not self.entry_values.issuperset(operands):
            return make()
        with self.into(Block([], self.entry)):
            result = make()
        self.entry_values.add(result)
        return result

    def constant(self, value: Any, dtype: DType) -> Value:
        key = (dtype, repr(convert(value, dtype)))
        if key not in self._known:
            with self.into(Block([], self.entry)):
                self._known[key] = super().constant(value, dtype)
            self.entry_values.add(self._known[key])
        return self._known[key]

    def longest(self, count: Value) -> Value:
        """The greatest count among the work items that run in step."""
        if count in self.entry_values:
            return count
        return self.append(ops.Longest(count, results=[Value(i64)])).result

    def distance(self, lower: Value, counter: Value) -> Value:
        """The number of the iteration (i64) in which the counter of a `for` has a value."""
        return self.binary("sub", self.cast(counter, i64), self.cast(lower, i64))

    def trips(self, lower: Value, upper: Value) -> Value:
        """The trip count of a `for` (i64); in i32 the difference of its bounds might overflow."""
        return self.distance(lower, self.binary("max", lower, upper))

    def counted_down(self, count: Value, step: Value) -> Value:
        """The iteration that a loop over ``count`` of them, last first, handles in a step (i64)."""
        back = self.binary("sub", count, step)
        return self.binary("sub", back, self.constant(1, i64))
