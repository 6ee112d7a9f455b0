"""Which loops leave their records in the sweep that records the loop around them.

A loop in a loop is run again, and recorded, when an iteration around it is reversed: its records
are there for one such iteration at a time. If the loop around it has to run it anyway, to find what
its iterations carry, the records of all its executions can be kept from there, and one run is
saved. They are kept as long as they fit a share of the budget, and of the cache; what comes after
is run again. Nothing is saved by keeping the records of a loop that need not run for the sweep.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import field

from octants.ir import ops
from octants.ir.core import Block, Operation
from octants.lazy_dataclass import dataclass
from octants.types.scalars import DType, i64

IN_CACHE = 1 << 22
"""The most bytes that are kept where they are to stay in the cache of a core."""

Loop = ops.For | ops.While


@dataclass(frozen=True)
class Nests:
    """`around` gives the loop around each loop that is stored.

    Those in one loop take no more than ``most`` bytes, if that is not 0.
    """

    around: Mapping[Operation, Operation] = field(default_factory=dict)
    most: int = 0

    def has_frames(self, op: Operation | None) -> bool:
        """Whether there are loops that are stored with this one."""
        return op in self.around.values()

    def is_stored_in(self, op: Operation, outer: Operation) -> bool:
        """Whether a loop is stored with one around it, or in one that is."""
        while op in self.around:
            op = self.around[op]
            if op is outer:
                return True
        return False

    def stored_in(self, block: Block) -> list[Loop]:
        """The loops of a block, those in branches too, that are stored with the loop around it."""
        found: list[Loop] = []
        for op in block.ops:
            if op in self.around:
                assert isinstance(op, (ops.For, ops.While))
                found.append(op)
            elif isinstance(op, ops.If):
                found += self.stored_in(op.then) + self.stored_in(op.orelse)
        return found

    def handed(self, block: Block) -> dict[Hashable, DType]:
        """What the reverse of a block must know of what was stored, by the keys of a replayer."""
        keys: dict[Hashable, DType] = {}
        for op in self.stored_in(block):
            if isinstance(op, ops.While):
                keys[op, "count"] = i64
            if self.has_frames(op):
                keys[op, "size"] = i64
            keys.update((result, result.type) for result in op.results)
        return keys


def nests(
    body: Block, recorded: Collection[Operation], saving: Collection[Operation]
) -> dict[Operation, Operation]:
    """The loop around each loop to be stored: of ``recorded`` ones, those that save a run by it."""
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
