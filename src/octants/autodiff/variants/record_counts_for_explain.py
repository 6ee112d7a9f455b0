"""Makes the variant of a reverse kernel that counts what it records and changes no gradient.

It runs as the reverse kernel does, so that it counts what that kernel records.
`kernel.grad.explain` launches it.
"""

from __future__ import annotations

from octants.autodiff.variants.count_records_below import count_records_below
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.cloning import copy_module, without_effects
from octants.ir.core import (
    CHECKPOINT,
    LOG,
    Array,
    Block,
    Companion,
    Module,
    Operation,
    Record,
    Space,
    Value,
)
from octants.ir.rewriting import rewrite
from octants.lazy_dataclass import dataclass
from octants.types.scalars import i64

PER_RECORD = 4
"""Counters of a record: the most slots in use, pushes, pops, pushes in a sweep that stores it."""


@dataclass(frozen=True)
class Counting:
    """The kernel that counts, and its counters.

    `counts` is a launch-temporary (i64) with `PER_RECORD` counters for each of `records`. `around`
    maps a record to that of the loop around its loop; `storable` are the records that the sweep of
    the loop around may push.
    """

    module: Module
    records: list[Record]
    counts: Array
    around: dict[Record, Record]
    storable: frozenset[Record]


def count_records(reverse: Module) -> Counting:
    """The counting variant of a reverse kernel, which is not changed."""
    module = copy_module(reverse)
    module.name = f"{reverse.name}_counting"
    records = list({op.record: None for op in module.walk() if isinstance(op, ops.RecordPush)})
    size = max(1, PER_RECORD * len(records))
    counts = Array("record_counts", i64, 0, Space.TEMPORARY, (size,), {Companion.PRIMAL: None})
    module.arrays.append(counts)
    around, stored = _nesting(module)
    counter = _PushCounter({record: k for k, record in enumerate(records)}, counts, stored)
    for task in module.tasks:
        for record in records:
            counter.base_counts.update(count_records_below(task.body, record))
        rewrite(task.body, counter.count)
    storable = frozenset(op.record for op in stored)
    return Counting(module, records, counts, around, storable)


def _nesting(module: Module) -> tuple[dict[Record, Record], set[ops.RecordPush]]:
    """The record of the loop around that of each record, and the pushes in the sweep of that loop.

    An inner loop is recorded where an iteration of the outer one is reversed, after a pop of its
    record. A push that comes earlier stores the loop.
    """
    sites: dict[Record, list[tuple[ops.RecordPush, Record | None]]] = {}

    def walk(block: Block, around: Record | None) -> None:
        for op in block.ops:
            if isinstance(op, ops.RecordPop) and op.record.name not in (CHECKPOINT, LOG):
                around = op.record
            elif isinstance(op, ops.RecordPush) and around is not op.record:
                sites.setdefault(op.record, []).append((op, around))
            for region in op.regions:
                walk(region, around)

    for task in module.tasks:
        walk(task.body, None)
    last = {record: pushes[-1][1] for record, pushes in sites.items()}
    stored = {
        push for pushes in sites.values() for push, around in pushes if around != pushes[-1][1]
    }
    return {record: around for record, around in last.items() if around is not None}, stored


class _PushCounter:
    def __init__(
        self, numbers: dict[Record, int], counts: Array, stored: set[ops.RecordPush]
    ) -> None:
        self.numbers = numbers
        self.counts = counts
        self.stored = stored
        self.base_counts: dict[Operation, Value] = {}

    def count(self, builder: Builder, op: Operation) -> bool:
        """Drop the changes of adjoints, and count pushes and pops."""
        if isinstance(op, ops.Write) and op.companion is not Companion.PRIMAL:
            reading = without_effects(op)
            builder.block.ops += [reading] if reading is not None else []
            return True
        if isinstance(op, ops.RecordAccess) and op.record in self.numbers:
            self._count(builder, op)
        return False

    def _count(self, builder: Builder, op: ops.RecordAccess) -> None:
        """Count a push of a record: the greatest size, and how many pushes; or count a pop."""
        first = PER_RECORD * self.numbers[op.record]
        one = builder.constant(1, i64)
        if isinstance(op, ops.RecordPop):
            self._update(builder, "add", first + 2, one)
            return
        held = builder.binary("add", builder.cast(op.index, i64), one)
        if op in self.base_counts:
            held = builder.binary("add", held, self.base_counts[op])
        self._update(builder, "max", first, held)
        self._update(builder, "add", first + (3 if op in self.stored else 1), one)

    def _update(self, builder: Builder, fn: str, index: int, value: Value) -> None:
        builder.atomic(fn, self.counts, [builder.index(index)], value, Companion.PRIMAL)
