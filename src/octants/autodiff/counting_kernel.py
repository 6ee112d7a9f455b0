"""A reverse kernel that counts what it records, and adds nothing to any gradient.

It runs as the reverse kernel does, and so what it counts is what that one takes.
`kernel.grad.explain` launches it.
"""

from __future__ import annotations

from octants.autodiff.record_counts import records_below
from octants.ir import ops
from octants.ir.builder import Builder
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
from octants.ir.rewriter import copy_module, without_effects
from octants.lazy_dataclass import dataclass
from octants.types.scalars import i64

PER_RECORD = 4  # the slots that it needs, its pushes, its pops, its pushes where it is stored


@dataclass(frozen=True)
class Counting:
    """The module that counts, its records, and where it counts.

    `counts` is an array of one element, which holds for record r at 4 r the most slots that it had
    at one time, at 4 r + 1 how often was pushed, at 4 r + 2 how often popped, and at 4 r + 3 how
    often was pushed by the sweep of a loop around that of the record. `around` gives the record of
    that loop, `storable` are those that its sweep may push.
    """

    module: Module
    records: list[Record]
    counts: Array
    around: dict[Record, Record]
    storable: frozenset[Record]


def count_records(reverse: Module) -> Counting:
    """The counting variant of a reverse kernel, which stays as it is."""
    module = copy_module(reverse)
    module.name = f"{reverse.name}_counting"
    records = list({op.record: None for op in module.walk() if isinstance(op, ops.RecordPush)})
    size = max(1, PER_RECORD * len(records))
    counts = Array("tape_counts", i64, 0, Space.TEMPORARY, (size,), {Companion.PRIMAL: None})
    module.arrays.append(counts)
    around, stored = _nesting(module)
    counter = _Counter({record: k for k, record in enumerate(records)}, counts, stored)
    for task in module.tasks:
        for record in records:
            counter.below.update(records_below(task.body, record))
        counter.rewrite(task.body)
    storable = frozenset(op.record for op in stored)
    return Counting(module, records, counts, around, storable)


def _nesting(module: Module) -> tuple[dict[Record, Record], set[ops.RecordPush]]:
    """The record of the loop around that of each, and the pushes that stand in the sweep of it.

    An inner loop is recorded where an iteration of the outer one is reversed, after its record was
    popped. What is pushed elsewhere, and before, is stored.
    """
    places: dict[Record, list[tuple[ops.RecordPush, Record | None]]] = {}

    def walk(block: Block, around: Record | None) -> None:
        for op in block.ops:
            if isinstance(op, ops.RecordPop) and op.record.name not in (CHECKPOINT, LOG):
                around = op.record
            elif isinstance(op, ops.RecordPush) and around is not op.record:
                places.setdefault(op.record, []).append((op, around))
            for region in op.regions:
                walk(region, around)

    for task in module.tasks:
        walk(task.body, None)
    last = {record: pushes[-1][1] for record, pushes in places.items()}
    stored = {
        push for pushes in places.values() for push, around in pushes if around != pushes[-1][1]
    }
    return {record: around for record, around in last.items() if around is not None}, stored


class _Counter:
    def __init__(
        self, numbers: dict[Record, int], counts: Array, stored: set[ops.RecordPush]
    ) -> None:
        self.numbers = numbers
        self.counts = counts
        self.stored = stored
        self.below: dict[Operation, Value] = {}

    def rewrite(self, block: Block) -> None:
        """Drop what changes adjoints, and count what is recorded and read back."""
        builder = Builder(Block())
        for op in block.ops:
            for region in op.regions:
                self.rewrite(region)
            if isinstance(op, ops.Write) and op.companion is not Companion.PRIMAL:
                reading = without_effects(op)
                builder.block.ops += [reading] if reading is not None else []
                continue
            if isinstance(op, ops.RecordAccess) and op.record in self.numbers:
                self._count(builder, op)
            builder.block.ops.append(op)
        block.ops[:] = builder.block.ops

    def _count(self, builder: Builder, op: ops.RecordAccess) -> None:
        first = PER_RECORD * self.numbers[op.record]
        one = builder.constant(1, i64)
        if isinstance(op, ops.RecordPop):
            self._update(builder, "add", first + 2, one)
            return
        held = builder.binary("add", builder.cast(op.index, i64), one)
        if op in self.below:
            held = builder.binary("add", held, self.below[op])
        self._update(builder, "max", first, held)
        self._update(builder, "add", first + (3 if op in self.stored else 1), one)

    def _update(self, builder: Builder, fn: str, place: int, value: Value) -> None:
        builder.atomic(fn, self.counts, [builder.index(place)], value, Companion.PRIMAL)
