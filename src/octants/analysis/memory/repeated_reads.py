"""Finds what may differ each time it is computed, because it depends on memory that is read again.

A reverse task computes trip counts and branches again, from the same memory. If another thread
writes that memory in between, they differ. The gradient is then one of a program that has a race,
but its records must still be where it looks for them::

    for(%0, %n) { (%j: i32):
      %bound = load<@bounds, primal>(%j)     # values: %bound, %k
      for(%0, %bound) { (%k: i32):           # control: the loop
        record_push<#r>(%base, %k, %v)       # pushes
        ...

Scalar arguments, and temporary arrays of the launch, do not change while a task runs.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from octants.ir import ops
from octants.ir.core import Operation, Record, Space, Value

_CONSTANT = (Space.ARGUMENT, Space.TEMPORARY)


class RepeatedReads:
    """The values that may differ in a second run of some operations.

    `values` are the values that may differ, `control` the loops and ifs whose trip counts or
    conditions may, and `pushes` those that may be in another iteration, or at another position.
    What operations read ``once`` is the same in a second run.
    """

    def __init__(self, operations: Iterable[Operation], once: Container[Operation] = ()) -> None:
        self._once = once
        self.values: set[Value] = set()
        self.control: set[Operation] = set()
        self.pushes: set[Operation] = set()
        self._slots: set[tuple[Record, int]] = set()
        operations, before = list(operations), -1
        while before != (before := self._count()):
            self._walk(operations, differs=False)

    def _count(self) -> int:
        return len(self.values) + len(self.control) + len(self.pushes) + len(self._slots)

    def _walk(self, operations: list[Operation], *, differs: bool) -> None:
        """Visit the operations of a block, which may run other iterations if it ``differs``."""
        for op in operations:
            if isinstance(op, ops.For):
                self._visit_loop(op, differs=differs or self._is_any((op.lower, op.upper)))
            elif isinstance(op, ops.While):
                self._walk(op.condition.ops, differs=differs)
                self._visit_loop(op, differs=differs or self._is_any(op.condition.yielded))
            elif isinstance(op, ops.If):
                self._visit_if(op, differs=differs or op.condition in self.values)
            elif isinstance(op, ops.RecordPush):
                self._visit_push(op, differs=differs)
            elif isinstance(op, ops.RecordPop) and not self._is_any((op.base, op.index)):
                slots = enumerate(op.results)
                self.values.update(value for k, value in slots if (op.record, k) in self._slots)
            elif op not in self._once and (self._is_any(op.operands) or _reads_memory(op)):
                self.values.update(op.results)

    def _visit_loop(self, op: ops.For | ops.While, *, differs: bool) -> None:
        if differs:
            self.control.add(op)
            self.values.update([*op.body.args, *op.results])
        conditions = op.condition.args if isinstance(op, ops.While) else op.carried
        for group in zip(
            op.inits, op.body.yielded, op.carried, conditions, op.results, strict=True
        ):
            if self._is_any(group):
                self.values.update(group[2:])
        self._walk(op.body.ops, differs=differs)

    def _visit_if(self, op: ops.If, *, differs: bool) -> None:
        if differs:
            self.control.add(op)
        for block in (op.then, op.orelse):
            self._walk(block.ops, differs=differs)
        for pair in zip(op.results, op.then.yielded, op.orelse.yielded, strict=True):
            if differs or self._is_any(pair):
                self.values.add(pair[0])

    def _visit_push(self, op: ops.RecordPush, *, differs: bool) -> None:
        if differs or self._is_any((op.base, op.index)):
            self.pushes.add(op)
        slots = enumerate(op.values)
        self._slots.update((op.record, k) for k, value in slots if differs or value in self.values)

    def _is_any(self, values: Iterable[Value]) -> bool:
        return not self.values.isdisjoint(values)


def _reads_memory(op: Operation) -> bool:
    return op.reads and op.array.space not in _CONSTANT  # type: ignore[attr-defined]
