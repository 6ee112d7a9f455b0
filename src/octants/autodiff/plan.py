"""How the loops of a task are recorded: the plan, made from facts before anything is emitted.

Each loop with a reverse is recorded whole, or in blocks (see `checkpoints`), of which those whose
record is local may all have one length (see `fixed_length_blocks`). A loop in one that is recorded
leaves its records with it (see `stored_nests`), or is run again and recorded when an iteration
around it is reversed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field
from typing import Any

from octants.autodiff import unrolling
from octants.autodiff.stored_nests import IN_CACHE, Nests, nests
from octants.ir import ops
from octants.ir.core import Block, Operation, Record, Value
from octants.lazy_dataclass import dataclass
from octants.target import Capabilities

LEAST_IN_BLOCK, MOST_IN_BLOCK = 4, 16
"""Iterations of a block whose record is local: more would be in memory that is not near."""

REPLAY, STORE = "replay", "store"
"""Ways to record loops in loops: one execution at a time; all of them, be the cache too small."""


@dataclass(frozen=True)
class Plan:
    """How the loops of a task are recorded.

    `in_blocks` has the loops that may be recorded in blocks, `parts` the parts into which the share
    is cut, each of which has as many bytes as are `sure`, at least. `local` tells of the loops
    whose records are local how many iterations these hold; those in `even` blocks have no shorter
    ones, and those that are `unrolled` no other loops: each iteration of them is written out.
    """

    parts: int = 1
    sure: int = 0
    in_blocks: frozenset[Operation] = frozenset()
    nests: Nests = field(default_factory=Nests)
    local: Mapping[Operation, int] = field(default_factory=dict)
    even: frozenset[Operation] = frozenset()
    unrolled: frozenset[Operation] = frozenset()

    @property
    def is_whole(self) -> bool:
        """Whether all iterations of all loops are recorded on the tape, each loop on its own."""
        return not (self.in_blocks or self.nests.around or self.local)


def plan(
    body: Block,
    records: Mapping[Operation, Record],
    saving: Collection[Operation],
    machine: Capabilities,
) -> Plan:
    """How the loops of a task are best recorded on a machine.

    ``records`` are those of its loops, pruned; to store the loops ``saving`` would save a run. Of
    a forced capacity, all loops are recorded whole, each on its own.
    """
    if machine.capacity:
        return Plan()
    strides = {op: record.offsets()[1] for op, record in records.items()}
    strides = {op: stride for op, stride in strides.items() if stride}
    if machine.tape_local:
        return _plan_nearby(body, strides, machine)
    around = {} if machine.nests == REPLAY else nests(body, strides, saving)
    weights = {op: 1 + (op in around.values()) for op in strides}
    parts = max(1, _most_at_once(body, weights)[0])
    found = _in_blocks(body, strides, parts, machine) if machine.tape_whole else frozenset()
    stored = Nests(around, 0 if machine.nests == STORE else IN_CACHE)
    return Plan(parts, in_blocks=found, nests=stored)


def _plan_nearby(body: Block, strides: Mapping[Operation, int], machine: Capabilities) -> Plan:
    """Blocks whose records are local: all loops have some, but those that surely are one block."""
    constants = {op.result: op.value for op in body.walk() if isinstance(op, ops.Constant)}
    local, in_blocks, even, unrolled = {}, set(), set(), set()
    left = unrolling.MOST_IN_TASK
    for op, stride in strides.items():
        length = unrolling.unrolled_turns(op, stride, left)
        if length:
            unrolled.add(op)
            left -= length * unrolling.work_of(op.regions[-1])
        else:
            length = min(MOST_IN_BLOCK, max(LEAST_IN_BLOCK, machine.tape_local // stride))
        if op in unrolled or unrolling.is_worth_twice(op):
            even.add(op)
        if _surely_fits(op, length, constants):
            local[op] = max(1, constants[op.upper] - constants[op.lower])  # type: ignore[attr-defined]
        else:
            local[op] = length
            in_blocks.add(op)
    parts = max(1, _most_at_once(body, dict.fromkeys(in_blocks, 1))[0])
    return Plan(
        parts,
        machine.tape_whole // (parts * machine.tape_sharers),
        frozenset(in_blocks),
        Nests({}, 0),
        local,
        frozenset(even),
        frozenset(unrolled),
    )


def _in_blocks(
    body: Block, strides: Mapping[Operation, int], parts: int, machine: Capabilities
) -> frozenset[Operation]:
    """The loops of a task that may be recorded in blocks."""
    constants = {op.result: op.value for op in body.walk() if isinstance(op, ops.Constant)}
    room = machine.tape_whole // (parts * machine.tape_sharers)
    return frozenset(
        op
        for op, stride in strides.items()
        if not _surely_fits(op, max(1, room // stride), constants)
    )


def _most_at_once(block: Block, weights: Mapping[Operation, int]) -> tuple[int, int]:
    """The weight of the loops with records on the stack, at most while and after a block runs."""
    most = held = 0
    for op in block.ops:
        inside = [_most_at_once(region, weights) for region in op.regions]
        held += weights.get(op, 0)
        most = max(most, held, *(held + above for above, _ in inside))
        if isinstance(op, ops.If):
            held += max(left for _, left in inside)
    return most, held


def _surely_fits(op: Operation, room: int, constants: Mapping[Value, Any]) -> bool:
    if not isinstance(op, ops.For) or op.lower not in constants or op.upper not in constants:
        return False
    return bool(constants[op.upper] - constants[op.lower] <= room)
