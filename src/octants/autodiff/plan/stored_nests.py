"""Decides which inner loops store their records while the loop around them is recorded.

An inner loop is usually replayed and recorded when an iteration around it is reversed: its records
exist for one such iteration at a time. If the sweep that records the outer loop has to run the
inner one anyway, to compute what its iterations carry, the records of all executions can be stored
then, which saves one run. So can the results of an inner loop that the backward sweep would run
again for nothing else, such as a sum over many products. Both are stored while they fit part of the
share and of the cache; later executions are replayed. Storing a loop that the sweep need not run
saves nothing.

In local memory only loops with constant trip counts are stored, all executions or none
(`find_nested`).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import field

from octants.analysis.cost_model import Costs
from octants.analysis.memory.repeated_reads import RepeatedReads
from octants.ir import ops
from octants.ir.core import Block, Operation, Record
from octants.lazy_dataclass import dataclass
from octants.types.scalars import DType, i64, u1, u32

IN_CACHE = 1 << 22
"""The most bytes that are stored with a loop, so that they stay in the cache of a core."""

_TRIPS = 16  # of a loop whose trip count is unknown
_WORTH_STORING = 32
"""The cost of an inner loop (`analysis.cost_model`) from which each of its results is stored."""

_WORTH_A_BYTE = 2
"""The cost of an iteration, for each byte of its record, from which on a nested loop records it."""


@dataclass(frozen=True)
class StoredNests:
    """The stored loops of a task.

    `around` maps each stored loop to the loop around it, which has a record then. The loops that
    are stored with one loop take no more than ``most`` bytes; 0 for no limit. `varying` are loops
    and ifs whose trip counts and conditions depend on memory that is read again.
    """

    around: Mapping[Operation, Operation] = field(default_factory=dict)
    most: int = 0
    varying: Collection[Operation] = ()

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

    def stored_in(self, block: Block) -> list[ops.Loop]:
        """The loops of a block, including its branches, that are stored with the loop around it."""
        found: list[ops.Loop] = []
        for op in block.ops:
            if op in self.around:
                assert isinstance(op, ops.Loop)
                found.append(op)
            elif isinstance(op, ops.If):
                found += self.stored_in(op.then) + self.stored_in(op.orelse)
        return found

    def exports(self, block: Block) -> dict[Hashable, DType]:
        """The values of stored loops that the reverse of a block needs: `PrimalValues` keys, types.

        The trip counts and branches tell where their records are, so they are not computed again
        if they may differ then.
        """
        keys: dict[Hashable, DType] = {(op, "taken"): u1 for op in self._varying_ifs(block)}
        for op in self.stored_in(block):
            if isinstance(op, ops.While):
                keys[op, "count"] = i64
            elif isinstance(op, ops.For) and op in self.varying:
                keys[op, "trips"] = trips_type(op)
            if self.has_frames(op):
                keys[op, "size"] = i64
            keys.update((result, result.type) for result in op.results)
        return keys

    def _varying_ifs(self, block: Block) -> Iterator[Operation]:
        """The varying ifs of a block, including its branches, with stored loops in them."""
        for op in block.ops:
            if isinstance(op, ops.If) and self.stored_in(Block([], [op])):
                if op in self.varying:
                    yield op
                for region in op.regions:
                    yield from self._varying_ifs(region)


def trips_type(op: ops.For) -> DType:
    """The type of the trip count of a loop in a record."""
    return i64 if op.lower.type.size > u32.size else u32


@dataclass(frozen=True)
class LoopUses:
    """How a draft of the reverse of a task uses the loops of the task.

    `records` are the records of its loops, pruned. The `saving` loops are run anyway by the sweep
    that records the loop around them, the loops `in_first_sweep` by the first sweep. `replayed`
    gives how many results of a loop the backward sweep needs, and runs the loop again for.
    """

    records: Mapping[Operation, Record]
    saving: Collection[Operation]
    in_first_sweep: Collection[Operation]
    replayed: Mapping[Operation, int]

    @property
    def strides(self) -> dict[Operation, int]:
        """The bytes that each loop records for an iteration, without loops that record nothing."""
        sizes = ((op, record.offsets()[1]) for op, record in self.records.items())
        return {op: size for op, size in sizes if size}


def find_stored_nests(body: Block, uses: LoopUses, most: int) -> StoredNests:
    """Find the loops to be stored.

    Args:
        body: the body of the task.
        uses: how a draft of its reverse uses the loops.
        most: the most bytes that are stored with one loop; 0 for no limit.
    """
    finder = _Finder(body, uses)
    finder.walk(body, None, is_first=True)
    varying = RepeatedReads(outermost_loops(body)).control if finder.found else ()
    return StoredNests(finder.found, most, varying)


def find_inner_results(body: Block, uses: LoopUses) -> dict[Operation, list[ops.For]]:
    """Find the loops whose results are better recorded than replayed, by the loops around them.

    They record nothing themselves, and the sweep that records the loop around them runs them.
    """
    costs, found = Costs(body, _TRIPS), dict[Operation, list[ops.For]]()
    for op in body.walk():
        if isinstance(op, ops.Loop):
            inner = _results_worth_storing(op, uses, costs, uses.saving)
            if inner:
                found[op] = inner
    return found


def _results_worth_storing(
    op: ops.Loop, uses: LoopUses, costs: Costs, run: Collection[Operation]
) -> list[ops.For]:
    """The loops in a loop, among those that ``run``, whose results are better recorded."""
    return [
        inner
        for inner in op.body.ops
        if isinstance(inner, ops.For)
        and inner in run
        and inner not in uses.strides
        and (needed := uses.replayed.get(inner, 0))
        and costs.of_operation(inner) >= needed * _WORTH_STORING
    ]


def find_nested(
    body: Block,
    uses: LoopUses,
    local: Mapping[Operation, int],
    in_blocks: Collection[Operation],
    nbytes: int,
) -> dict[ops.For, tuple[ops.Loop, list[ops.For]]]:
    """Find the loops that are recorded with the loop around them, in local memory.

    The sweep that records the loop around runs them in any case, and their trip counts are known.

    Args:
        body: the body of the task.
        uses: how a draft of its reverse uses the loops.
        local: how many iterations of loops have local records.
        in_blocks: the loops that have more iterations.
        nbytes: the most bytes that the records of all these loops take.

    Returns:
        For each loop the one around it, and the loops in it whose results it records.
    """
    costs, strides, constants = Costs(body, _TRIPS), uses.strides, ops.constants_in(body)
    found, around = dict[ops.For, tuple[ops.Loop, list[ops.For]]](), set[Operation]()
    for outer, count in local.items():
        if not isinstance(outer, ops.Loop) or outer in found:
            continue
        for op in outer.body.ops:
            if not isinstance(op, ops.For) or op not in uses.saving or op in around:
                continue
            if op in strides and (op not in local or op in in_blocks):
                continue
            inner = _results_worth_storing(op, uses, costs, uses.in_first_sweep)
            inner = [each for each in inner if each not in local]  # which are not run to record
            stride = strides.get(op, 0) + sum(v.type.size for each in inner for v in each.results)
            size = count * (op.trips(constants) or 0) * stride
            is_worth_it = costs.of(op.body) >= _WORTH_A_BYTE * stride
            needed = uses.replayed.get(op, 0) * _WORTH_STORING
            if 0 < size <= nbytes and is_worth_it and costs.of_operation(op) >= needed:
                found[op] = outer, inner
                around.add(outer)
                nbytes -= size
    return found


class _Finder:
    def __init__(self, body: Block, uses: LoopUses) -> None:
        self.found: dict[Operation, Operation] = {}
        self._uses = uses
        self._strides = uses.strides
        self._costs = Costs(body, _TRIPS)
        self._exporting: dict[Operation, bool] = {}

    def walk(self, block: Block, around: Operation | None, *, is_first: bool) -> None:
        """Find the loops of a block that are stored with the loop ``around``.

        Args:
            block: the block.
            around: the loop around it, if iterations of that can have frames.
            is_first: the first sweep records the loop around, and not the backward sweep.
        """
        for op in block.ops:
            if not isinstance(op, ops.Loop):
                for region in op.regions:
                    self.walk(region, around, is_first=is_first)
                continue
            is_stored = around is not None and self._is_stored(op, is_first)
            if around is not None and is_stored:
                self.found[op] = around
            can_have_frames = op in self._strides or self._takes_exports(op)
            is_recorded_first = is_first and (is_stored or around is None)
            self.walk(op.body, op if can_have_frames else None, is_first=is_recorded_first)

    def _is_stored(self, op: ops.Loop, is_first: bool) -> bool:
        saving = self._uses.saving
        if op in self._strides and op in saving:
            return True
        return op in (self._uses.in_first_sweep if is_first else saving) and self._exports(op)

    def _exports(self, op: ops.Loop) -> bool:
        """Whether a loop, or one in it, has results that are better recorded than replayed."""
        if op not in self._exporting:
            needed = self._uses.replayed.get(op, 0)
            self._exporting[op] = (
                needed > 0 and self._costs.of_operation(op) >= needed * _WORTH_STORING
            ) or self._takes_exports(op)
        return self._exporting[op]

    def _takes_exports(self, op: ops.Loop) -> bool:
        """Whether a loop records results of loops in it."""
        return any(
            inner in self._uses.in_first_sweep and self._exports(inner)
            for inner in outermost_loops(op.body)
        )


def outermost_loops(block: Block) -> Iterator[ops.Loop]:
    """The loops of a block, including its branches, without those in loops."""
    for op in block.ops:
        if isinstance(op, ops.Loop):
            yield op
        else:
            for region in op.regions:
                yield from outermost_loops(region)
