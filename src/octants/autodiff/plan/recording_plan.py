"""Plans how the loops of a task are recorded, from facts alone, before anything is emitted.

Each loop with a reverse is recorded whole or in blocks (`checkpoints`). Blocks whose records are
local, in memory of the work item, may all have one length (`fixed_length_blocks`). They are not
local if a checkpoint would take half as much memory as the records of a block: a loop that changes
one element of a long vector in each iteration carries more than it records. An inner loop
either stores the records of all its executions while the loop around it is recorded
(`stored_nests`), or is run again and recorded when an iteration around it is reversed: in the
replay of the iteration, or late, when its turn to be reversed comes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from octants.analysis.sums.serial_sums import unread_sums
from octants.autodiff.plan import records_in_registers
from octants.autodiff.plan.stored_nests import (
    IN_CACHE,
    LoopUses,
    StoredNests,
    find_inner_results,
    find_nested,
    find_stored_nests,
)
from octants.ir import ops
from octants.ir.cooperative_tasks import first_cooperative
from octants.ir.core import Block, Operation, Value
from octants.lazy_dataclass import dataclass
from octants.target import Capabilities

MIN_BLOCK, MAX_BLOCK = 4, 16
"""Bounds on the iterations of a block with local records: longer ones would leave fast memory."""

MAX_BLOCK_AROUND_LOOPS = 64
"""The same for a loop around others: to run these again takes longer than slower memory."""

AROUND_LOOPS = 4
"""How many times the usual bytes such a loop takes if it needs no blocks then, on most machines."""

AROUND_RESULTS = 8
"""The same for a loop that also records the results of loops in it."""

WHOLE = 2
"""How many times the bytes of a checkpoint those of the records of a block may take that are all in
the record buffer: nothing runs again then, and records may yet hold functions of what they hold.
"""

MAX_WHOLE = 1 << 12
"""The most bytes of a constant number of iterations that are in the record buffer without blocks:
so few that a launch of fewer threads at a time always has the space.
"""

MAX_UNBLOCKED = 32
"""The most iterations, recorded one by one, of a loop whose blocks are unrolled."""

NESTED = 32
"""How many times the usual bytes the records of loops take that are recorded with a loop around, on
most machines."""

REPLAY, STORE = "replay", "store"
"""How to record inner loops: one execution at a time, or all, even if they exceed the cache."""


@dataclass(frozen=True)
class RecordingPlan:
    """How the loops of a task are recorded.

    `in_blocks` are the loops that may be recorded in blocks. The share of a work item is divided
    into `partitions`, of at least `guaranteed_bytes` each. `nests` are the loops that are stored
    with a loop around them. `local` maps each loop with local records to the number of iterations
    that these hold. `fixed_length` are the loops all of whose blocks have one length, `unrolled`
    those whose blocks code generation unrolls. `unblocked` maps each `for` of fixed-length blocks
    to the number of iterations up to which it has no blocks: they are recorded one by one. The
    `late` loops are run and recorded when they are reversed, by the code that runs blocks again:
    nothing needs their results before. `results` maps loops with local records to the loops in
    them whose results are recorded, too. `nested` maps loops to the loop around them with which
    they are recorded: their local records hold all their executions, so they do not run again.
    """

    partitions: int = 1
    guaranteed_bytes: int = 0
    in_blocks: frozenset[Operation] = frozenset()
    nests: StoredNests = field(default_factory=StoredNests)
    local: Mapping[Operation, int] = field(default_factory=dict)
    fixed_length: frozenset[Operation] = frozenset()
    unrolled: frozenset[Operation] = frozenset()
    unblocked: Mapping[Operation, int] = field(default_factory=dict)
    late: frozenset[Operation] = frozenset()
    results: Mapping[Operation, Collection[ops.For]] = field(default_factory=dict)
    nested: Mapping[Operation, Operation] = field(default_factory=dict)

    def recorded_results(self, op: Operation) -> list[Value]:
        """The results of loops in a loop that its record holds besides what it carries."""
        return [value for inner in self.results.get(op, ()) for value in inner.results]

    def has_recorded_results(self, op: Operation) -> bool:
        """Whether the loop around a loop records its results."""
        return any(op in inner for inner in self.results.values())

    @property
    def is_whole(self) -> bool:
        """Whether the record buffer holds all iterations of all loops, one execution at a time."""
        return not (self.in_blocks or self.nests.around or self.local)


def plan(body: Block, uses: LoopUses, machine: Capabilities) -> RecordingPlan:
    """Plan how the loops of a task are recorded on a machine.

    Args:
        body: the body of the primal task.
        uses: how its loops are used in a draft that records all loops whole, pruned.
        machine: if it forces a record capacity, all loops are recorded whole.

    Returns:
        The plan.
    """
    if machine.capacity:
        return RecordingPlan()
    found = _plan_records(body, uses, machine)
    return replace(found, late=_late(body, uses, found))


def loops_with_frames(
    body: Block, uses: LoopUses, machine: Capabilities, planned: RecordingPlan
) -> set[Operation]:
    """The loops with which the machine could store inner loops, even if its options prevent that.

    Args:
        body: the body of the primal task.
        uses: how its loops are used in the draft.
        machine: the machine.
        planned: what `plan` gives for them.
    """
    nests = planned.nests
    if (machine.nests == REPLAY or machine.capacity) and not machine.local_record_bytes:
        nests = find_stored_nests(body, uses, IN_CACHE)
    return set(nests.around.values())


def _plan_records(body: Block, uses: LoopUses, machine: Capabilities) -> RecordingPlan:
    """Plan how loops are recorded; `_late` decides when they are run."""
    if machine.local_record_bytes:
        return _plan_local(body, uses, machine)
    strides = uses.strides
    nests = StoredNests()
    if machine.nests != REPLAY:
        nests = find_stored_nests(body, uses, 0 if machine.nests == STORE else IN_CACHE)
    for op, outer in nests.around.items():
        strides.setdefault(outer, max(1, sum(value.type.size for value in op.results)))
    weights = {op: 1 + nests.has_frames(op) for op in strides}
    partitions = max(1, _most_at_once(body, weights)[0])
    found = (
        _in_blocks(body, strides, partitions, machine)
        if machine.whole_record_bytes
        else frozenset()
    )
    return RecordingPlan(partitions, in_blocks=found, nests=nests)


def _plan_local(body: Block, uses: LoopUses, machine: Capabilities) -> RecordingPlan:
    """Plan local records: a loop has blocks unless its trip count is known to fit one."""
    constants, strides = ops.constants_in(body), uses.strides
    results = dict[Operation, Collection[ops.For]]()
    for op, (inner, stride) in _recorded_inner_results(body, uses, machine, constants).items():
        results[op], strides[op] = inner, stride
    local: dict[Operation, int] = {}
    in_blocks, fixed_length, unrolled = set[Operation](), set[Operation](), set[Operation]()
    unblocked: dict[Operation, int] = {}
    left = records_in_registers.MAX_WORK_IN_TASK
    for op, stride in strides.items():
        length = records_in_registers.unrolled_iterations(op, stride, left)
        is_unrolled = bool(length) and op not in results
        if not is_unrolled:
            times = AROUND_LOOPS * machine.nested_records
            times = max(times, AROUND_RESULTS) if op in results else times
            length = _block_length(op, stride, times, machine, constants)
        if isinstance(op, ops.For) and WHOLE * _checkpoint_bytes(op) >= length * stride:
            if not _surely_fits(op, MAX_WHOLE // stride, constants):
                in_blocks.add(op)
            continue
        if is_unrolled:
            unrolled.add(op)
            left -= length * records_in_registers.work_of(op.regions[-1])
        if op in unrolled or records_in_registers.is_worth_duplicating(op):
            fixed_length.add(op)
            if isinstance(op, ops.For):
                unblocked[op] = max(
                    length - 1, min(MAX_UNBLOCKED, machine.local_record_bytes // stride)
                )
        if _surely_fits(op, length, constants):
            local[op] = max(1, constants[op.upper] - constants[op.lower])  # type: ignore[attr-defined]
        else:
            local[op] = length
            in_blocks.add(op)
    outer = {op: n for op, n in local.items() if op not in fixed_length}
    nbytes = NESTED * machine.nested_records * machine.local_record_bytes
    nested = find_nested(body, uses, outer, in_blocks, nbytes)
    for op, (around, inner) in nested.items():
        local[op] = local[around] * (op.trips(constants) or 0)
        results[around] = dict.fromkeys([*results.get(around, ()), op])
        if inner:
            results[op] = inner
    partitions = max(1, _most_at_once(body, dict.fromkeys(in_blocks, 1))[0])
    return RecordingPlan(
        partitions,
        machine.whole_record_bytes // (partitions * machine.record_buffer_sharers),
        frozenset(in_blocks),
        StoredNests({}, 0),
        local,
        frozenset(fixed_length),
        frozenset(unrolled),
        unblocked,
        results=results,
        nested={op: outer for op, (outer, _) in nested.items()},
    )


def _recorded_inner_results(
    body: Block, uses: LoopUses, machine: Capabilities, constants: Mapping[Value, Any]
) -> dict[Operation, tuple[list[ops.For], int]]:
    """The loops whose local records hold results of inner loops: these, and the record's bytes."""
    found = dict[Operation, tuple[list[ops.For], int]]()
    strides = uses.strides
    read_back = set[Operation]()  # these do not run where others are recorded: they record nothing
    for op, inner in find_inner_results(body, uses).items():
        if op in read_back:
            continue
        stride = strides.get(op, 0) + sum(v.type.size for each in inner for v in each.results)
        most = min(MAX_BLOCK_AROUND_LOOPS, AROUND_RESULTS * machine.local_record_bytes // stride)
        if _surely_fits(op, most, constants):
            found[op] = inner, stride
            read_back.update(inner)
    return found


def _block_length(
    op: Operation,
    stride: int,
    times: int,
    machine: Capabilities,
    constants: Mapping[Value, Any],
) -> int:
    """The iterations of a block with local records that code generation does not unroll.

    A loop around others has one block if its records take at most ``times`` the usual bytes.
    """
    most = MAX_BLOCK_AROUND_LOOPS if _has_loops(op) else MAX_BLOCK
    length = min(most, max(MIN_BLOCK, machine.local_record_bytes // stride))
    whole = times * machine.local_record_bytes // stride
    if _has_loops(op) and _surely_fits(op, whole, constants):
        return max(length, whole)
    return length


def _checkpoint_bytes(op: ops.For) -> int:
    """The bytes of the floats that a block begins with; 0 for a loop around others."""
    if _has_loops(op):
        return 0
    sums = unread_sums(op)
    return sum(arg.type.size for arg in op.carried if arg.type.is_float and arg not in sums)


def _has_loops(op: Operation) -> bool:
    """Whether there are loops in a loop."""
    return any(isinstance(each, ops.Loop) for each in op.regions[-1].walk())


def _in_blocks(
    body: Block, strides: Mapping[Operation, int], partitions: int, machine: Capabilities
) -> frozenset[Operation]:
    """The loops of a task that may be recorded in blocks."""
    constants = ops.constants_in(body)
    capacity = machine.whole_record_bytes // (partitions * machine.record_buffer_sharers)
    return frozenset(
        op
        for op, stride in strides.items()
        if not _surely_fits(op, max(1, capacity // stride), constants)
    )


def _late(body: Block, uses: LoopUses, planned: RecordingPlan) -> frozenset[Operation]:
    """The loops in loops that need not have run before they are reversed.

    Where the records of a loop with frames end is known after its run only, so nothing may be
    recorded behind them.
    """
    return frozenset(
        op
        for op, is_last in _loops_in_loops(body)
        if isinstance(op, ops.For)
        and op in planned.in_blocks
        and op not in planned.fixed_length
        and uses.replayed.get(op) == 0
        and (is_last or not planned.nests.has_frames(op))
        and first_cooperative(op.body) is None
    )


def _loops_in_loops(
    block: Block, *, is_inside: bool = False, is_last: bool = True
) -> Iterator[tuple[Operation, bool]]:
    """The loops in loops of a block, and whether no loop is behind them in an iteration around."""
    for op in reversed(block.ops):
        is_loop = isinstance(op, ops.Loop)
        if is_loop and is_inside:
            yield op, is_last
        for region in op.regions:
            yield from _loops_in_loops(
                region, is_inside=is_inside or is_loop, is_last=is_loop or is_last
            )
        is_last = is_last and not op.REGIONS


def _most_at_once(block: Block, weights: Mapping[Operation, int]) -> tuple[int, int]:
    """The weights of the loops with records in the buffer at one time: at most, and at the end."""
    most = held = 0
    for op in block.ops:
        inside = [_most_at_once(region, weights) for region in op.regions]
        held += weights.get(op, 0)
        most = max(most, held, *(held + above for above, _ in inside))
        if isinstance(op, ops.If):
            held += max(left for _, left in inside)
    return most, held


def _surely_fits(op: Operation, capacity: int, constants: Mapping[Value, Any]) -> bool:
    """Whether the trip count of a loop is a compile-time constant that fits a capacity."""
    if not isinstance(op, ops.For) or op.lower not in constants or op.upper not in constants:
        return False
    return bool(constants[op.upper] - constants[op.lower] <= capacity)
