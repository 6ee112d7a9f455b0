"""Builds the body of a reverse task, with its constants at the start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Block, Operation, Value
from octants.types.scalars import DType, convert, i64


class EntryBuilder(Builder):
    """Builds each constant once, at the start of the whole body, where everything sees it.

    Whoever builds the body puts `entry` before its operations in the end.
    """

    def __init__(self, block: Block, *, contracts: bool = False) -> None:
        super().__init__(block, contracts=contracts)
        self.entry: list[Operation] = []
        self.entry_values: set[Value] = set()
        self._known: dict[tuple[DType, str], Value] = {}

    def early(self, make: Callable[[], Value], *operands: Value) -> Value:
        """A value that is computed once, at the start, if its operands are."""
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

    def only_if(self, condition: Value, block: Block) -> None:
        """Build an if with one side, to which the yield is added here."""
        orelse = Block()
        for side in (block, orelse):
            with self.into(side):
                self.yield_()
        self.if_(condition, block, orelse)

    def longest(self, count: Value) -> Value:
        """The greatest count of the work items that run in step."""
        if count in self.entry_values:
            return count
        return self.append(ops.Longest(count, results=[Value(i64)])).result

    def distance(self, lower: Value, counter: Value) -> Value:
        """How often a `for` has run when its counter has come to some value (i64)."""
        return self.binary("sub", self.cast(counter, i64), self.cast(lower, i64))

    def trips(self, lower: Value, upper: Value) -> Value:
        """How often a `for` runs (i64): in i32 the difference of its bounds might overflow."""
        return self.distance(lower, self.binary("max", lower, upper))

    def counted_down(self, count: Value, step: Value) -> Value:
        """The number, of so many, at which a loop is in a step that takes them last first."""
        back = self.binary("sub", count, step)
        return self.binary("sub", back, self.constant(1, i64))
