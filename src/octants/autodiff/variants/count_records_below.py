"""Counts at run time how many records of a loop are in the record buffer below a position.

With stored loops, the record buffer holds the records of several executions of a loop, at positions
in bytes of all records together. Beside each position that depends on the end of a record of one
loop, a number of these records is computed in the same way, through branches and loops.
"""

from __future__ import annotations

from octants.analysis.reachability import reachable
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Block, Operation, Record, Value
from octants.types.scalars import i64


def count_records_below(block: Block, record: Record) -> dict[Operation, Value]:
    """Let a block count the records of a loop below the base of each push.

    Args:
        block: the body of a task, rewritten in place.
        record: the record of the loop.

    Returns:
        The count (i64) for each push of ``record``; empty if no push has others below it.
    """
    counter = _Counter(block, record)
    if not counter.has_stacked:
        return {}
    counter.rewrite(block)
    block.ops[:0] = counter.start.block.ops
    return counter.found


class _Counter:
    """Adds counts to a block; `counts` maps positions to counts, `found` pushes to counts."""

    def __init__(self, block: Block, record: Record) -> None:
        self.record = record
        self.start = Builder(Block())
        self.zero = self.start.constant(0, i64)
        self.counts: dict[Value, Value] = {}
        self.found: dict[Operation, Value] = {}
        self.positions = _positions(block, record)
        self.has_stacked = any(
            isinstance(op, ops.RecordPush) and op.record is record and op.base in self.positions
            for op in block.walk()
        )

    def rewrite(self, block: Block) -> None:
        """Add the counts to a block, in place."""
        builder = Builder(Block())
        for op in block.ops:
            if isinstance(op, ops.RecordPush) and op.record is self.record:
                self.found[op] = self._of(op.base)
            counts = self._carry(op)
            for region in op.regions:
                self.rewrite(region)
            if op.REGIONS:
                self._yield_counts(op)
            builder.block.ops.append(op)
            op.results = [*op.results, *counts]
            if op.results and op.results[0] in self.positions and not op.REGIONS:
                self.counts[op.results[0]] = self._after(builder, op)
        block.ops[:] = builder.block.ops

    def _of(self, position: Value) -> Value:
        return self.counts.get(position, self.zero)

    def _after(self, builder: Builder, op: Operation) -> Value:
        """The records below the position that an operation computes."""
        if isinstance(op, ops.RecordEnd):
            counts = self._of(op.base)
            is_own = op.record is self.record
            return builder.binary("add", counts, op.count) if is_own else counts
        if isinstance(op, ops.Select):
            return builder.select(op.condition, self._of(op.on_true), self._of(op.on_false))
        assert isinstance(op, ops.Binary)
        return builder.binary(op.fn, self._of(op.lhs), self._of(op.rhs))

    def _carry(self, op: Operation) -> list[Value]:
        """Let a loop carry counts beside positions; gives the results for them."""
        if not op.REGIONS:
            return []
        indices = [k for k, value in enumerate(op.results) if value in self.positions]
        counts = [Value(i64) for _ in indices]
        self.counts.update(zip((op.results[k] for k in indices), counts, strict=True))
        if isinstance(op, (ops.For, ops.While)):
            first = len(op.body.args) - len(op.inits)
            op.inits = [*op.inits, *(self._of(op.inits[k]) for k in indices)]
            for region in op.regions:
                added = [Value(i64) for _ in indices]
                args = (region.args[first + k] for k in indices)
                self.counts.update(zip(args, added, strict=True))
                region.args += added
        return counts

    def _yield_counts(self, op: Operation) -> None:
        """Let regions yield counts beside positions."""
        indices = [k for k, value in enumerate(op.results) if value in self.positions]
        for region in op.regions:
            if isinstance(op, ops.While) and region is op.condition:
                continue
            last = region.ops[-1]
            assert isinstance(last, ops.Yield)
            last.values = [*last.values, *(self._of(last.values[k]) for k in indices)]


def _positions(block: Block, record: Record) -> set[Value]:
    """The values that depend on the end of a record of the loop."""
    follow: dict[Value, list[Value]] = {}
    waiting: list[Value] = []

    def edge(source: Value, *targets: Value) -> None:
        follow.setdefault(source, []).extend(targets)

    for op in block.walk():
        if isinstance(op, ops.RecordEnd):
            edge(op.base, op.result)
            waiting += [op.result] if op.record is record else []
        elif isinstance(op, ops.Select) or (
            isinstance(op, ops.Binary) and op.fn in ("add", "sub") and op.result.type is i64
        ):
            for operand in op.operands[-2:]:
                edge(operand, op.result)
        elif isinstance(op, ops.If):
            for k, result in enumerate(op.results):
                edge(op.then.yielded[k], result)
                edge(op.orelse.yielded[k], result)
        elif isinstance(op, (ops.For, ops.While)):
            for k, result in enumerate(op.results):
                args = [region.args[k - len(op.inits)] for region in op.regions]
                edge(op.inits[k], *args, result)
                edge(op.body.yielded[k], *args, result)
                for arg in args:
                    edge(arg, *args, result)
    return reachable(waiting, follow)
