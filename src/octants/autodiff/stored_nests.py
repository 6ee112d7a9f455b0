"""Decides which inner loops store their records while the loop around them is recorded.

An inner loop is usually replayed and recorded when an iteration around it is reversed: its records
exist for one such iteration at a time. If the sweep that records the outer loop has to run the
inner one anyway, to compute what its iterations carry, the records of all executions can be stored
then, which saves one run. They are stored while they fit part of the share and of the
cache; later executions are replayed. Storing a loop that the sweep need not run saves nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import field

from octants.ir import ops
from octants.ir.core import Block, Operation
from octants.lazy_dataclass import dataclass
from octants.types.scalars import DType, i64

IN_CACHE = 1 << 22
"""The most bytes that are stored with a loop, so that they stay in the cache of a core."""

ForOrWhile = ops.For | ops.While


@dataclass(frozen=True)
class StoredNests:
    """The stored loops of a task.

    `around` maps each stored loop to the recorded loop around it. The loops that are stored with
    one loop take no more than ``most`` bytes; 0 for no limit.
    """

    around: Mapping[Operation, Operation] = field(default_factory=dict)
    most: int = 0

    def has_frames(self, op: Operation | None) -> bool:
        """Whether there are loops that are stored with a loop."""
        return op in self.around.values()

    def is_stored_in(self, op: Operation, outer: Operation) -> bool:
        """Whether a loop is stored with ``outer``, or with a loop that is."""
        while op in self.around:
            op = self.around[op]
            if op is outer:
                return True
        return False

    def stored_in(self, block: Block) -> list[ForOrWhile]:
        """The loops of a block, including its branches, that are stored with the loop around it."""
        found: list[ForOrWhile] = []
        for op in block.ops:
            if op in self.around:
                assert isinstance(op, (ops.For, ops.While))
                found.append(op)
            elif isinstance(op, ops.If):
                found += self.stored_in(op.then) + self.stored_in(op.orelse)
        return found

    def exports(self, block: Block) -> dict[Hashable, DType]:
        """What the reverse of a block needs of stored loops: keys of `PrimalValues`, and types."""
        keys: dict[Hashable, DType] = {}
        for op in self.stored_in(block):
            if isinstance(op, ops.While):
                keys[op, "count"] = i64
            if self.has_frames(op):
                keys[op, "size"] = i64
            keys.update((result, result.type) for result in op.results)
        return keys


def find_stored_nests(
    body: Block, recorded: Collection[Operation], saving: Collection[Operation]
) -> dict[Operation, Operation]:
    """Find the loops to be stored.

    Args:
        body: the body of the task.
        recorded: its loops with records.
        saving: its loops that the first sweep has to run anyway.

    Returns:
        The recorded loop around each loop to be stored.
    """
    found: dict[Operation, Operation] = {}

    def walk(block: Block, around: Operation | None) -> None:
        for op in block.ops:
            if around is not None and op in recorded and op in saving:
                found[op] = around
            inside = around
            if isinstance(op, (ops.For, ops.While)):
                inside = op if op in recorded else None
            for region in op.regions:
                walk(region, inside)

    walk(body, None)
    return found
