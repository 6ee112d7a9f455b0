"""A reverse kernel that counts what it records, and adds nothing to any gradient.

It runs as the reverse kernel does, and so what it counts is what that one takes.
`kernel.grad.explain` launches it.
"""

from __future__ import annotations

from dataclasses import dataclass

from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Array, Block, Companion, Module, Operation, Record, Space, Value
from octants.ir.rewriter import copy_module
from octants.types.scalars import i64

PER_RECORD = 3  # the slots that it needs, its pushes, its pops


@dataclass(frozen=True)
class Counting:
    """The module that counts, its records, and where it counts.

    `counts` is an array of one element, which holds for record r at 3 r the most slots that it had
    at one time, at 3 r + 1 how often was pushed, and at 3 r + 2 how often popped.
    """

    module: Module
    records: list[Record]
    counts: Array


def count_records(reverse: Module) -> Counting:
    """The counting variant of a reverse kernel, which stays as it is."""
    module = copy_module(reverse)
    module.name = f"{reverse.name}_counting"
    records = list({op.record: None for op in module.walk() if isinstance(op, ops.RecordPush)})
    size = max(1, PER_RECORD * len(records))
    counts = Array("tape_counts", i64, 0, Space.TEMPORARY, (size,), {Companion.PRIMAL: None})
    module.arrays.append(counts)
    counter = _Counter({record: k for k, record in enumerate(records)}, counts)
    for task in module.tasks:
        counter.rewrite(task.body)
    return Counting(module, records, counts)


class _Counter:
    def __init__(self, numbers: dict[Record, int], counts: Array) -> None:
        self.numbers = numbers
        self.counts = counts

    def rewrite(self, block: Block) -> None:
        """Drop what changes adjoints, and count what is recorded and read back."""
        builder = Builder(Block())
        for op in block.ops:
            for region in op.regions:
                self.rewrite(region)
            if _changes_adjoints(op):
                self._read_instead(builder, op)
                continue
            if isinstance(op, (ops.RecordPush, ops.RecordPop)) and op.record in self.numbers:
                self._count(builder, op)
            builder.block.ops.append(op)
        block.ops[:] = builder.block.ops

    def _count(self, builder: Builder, op: ops.RecordPush | ops.RecordPop) -> None:
        first = PER_RECORD * self.numbers[op.record]
        one = builder.constant(1, i64)
        if isinstance(op, ops.RecordPop):
            self._update(builder, "add", first + 2, one)
            return
        index = builder.cast(op.index, i64)
        self._update(builder, "max", first, builder.binary("add", index, one))
        self._update(builder, "add", first + 1, one)

    def _update(self, builder: Builder, fn: str, place: int, value: Value) -> None:
        builder.atomic(fn, self.counts, [builder.index(place)], value, Companion.PRIMAL)

    def _read_instead(self, builder: Builder, op: Operation) -> None:
        """What an update would have returned may be used."""
        if op.results:
            load = ops.Load(op.array, op.companion, op.indices, results=op.results)  # type: ignore[attr-defined]
            builder.block.ops.append(load)


def _changes_adjoints(op: Operation) -> bool:
    writes = isinstance(op, (ops.Store, ops.Atomic, ops.CompareExchange))
    return writes and op.companion is not Companion.PRIMAL  # type: ignore[attr-defined]
