"""Which loops record blocks of their iterations only, how long a block is, what is kept of others.

A loop that is recorded in blocks keeps the records of one block at a time, and checkpoints, which
are records too: what the loop carried into a block. Before a block is reversed it is run again from
the nearest checkpoint that is there, which leaves checkpoints on its way. A loop that fits one
block takes n records for n iterations, and is not run again.

A loop gets a share of what its worker's tape should take, which the launch tells: `Room`. Blocks
and checkpoints of the square root of n each hold S * S / 4 iterations in S records, for one more
execution. Where n is more, or not known, an eighth is left to the highest levels, which have one
checkpoint each; half of the rest is the block. The other half holds checkpoints on levels, in a
quarter, an eighth, and so on: on a level of w checkpoints each (w + 1)th block has its checkpoint
on the next one, so that the blocks have numbers of mixed base, and a checkpoint's place is its
number's last digit that is not zero::

    base 3, 2, 2, ...        block    0  1  2  3  4  5  6  7  8 ...
                             level       0  0  1  0  0  2  0  0 ...
                             place       0  1  2  0  1  3  0  1 ...

A checkpoint takes the place of one that no block needs any more, those of lower levels before it.
So k levels of w checkpoints hold some w**k blocks, for k more executions.

A GPU has so many work items at once that their tapes are far away, while each has a little memory
of its own nearby. There all blocks have one length, so that the record of one is there, and only
checkpoints are on the tape; they have all of the share. Where the number of blocks is known, and
there surely is room for all of their checkpoints, these have no levels.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from typing import Any

from octants.autodiff import nearby, unrolling
from octants.autodiff.nests import IN_CACHE, Nests, nests
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Block, Operation, Record, Value
from octants.lazy_dataclass import dataclass
from octants.types.scalars import f64, i64, u64

MOST_LEVELS = 64
"""More than blocks that can be counted have."""


LEAST_IN_BLOCK, MOST_IN_BLOCK = 4, 16
"""Iterations of a block whose record is local: more would be in memory that is not near."""

REPLAY, STORE = "replay", "store"
"""Ways to record loops in loops: one execution at a time; all of them, be the cache too small."""


@dataclass(frozen=True)
class Allowance:
    """What records may take, and of whom.

    Loops that surely take a part of ``whole`` bytes, even if so many ``sharers`` share the tape,
    are not recorded in blocks; 0: none is. `nests` is a way to record loops in loops, or "auto".
    The record of a block is `local` if it takes no more than so many bytes.
    """

    whole: int = 0
    sharers: int = 1
    nests: str = "auto"
    local: int = 0


@dataclass(frozen=True)
class Plan:
    """How the loops of a task are recorded.

    `in_blocks` has the loops that may be recorded in blocks, `parts` the parts into which the share
    is cut, each of which has as many bytes as are `sure`, at least. `local` tells of the loops
    whose records are local how many iterations these hold; those that are `whole` have no shorter
    blocks, and those that are `unrolled` no other loops: each turn of them is written out.
    """

    parts: int = 1
    sure: int = 0
    in_blocks: frozenset[Operation] = frozenset()
    nests: Nests = field(default_factory=Nests)
    local: Mapping[Operation, int] = field(default_factory=dict)
    whole: frozenset[Operation] = frozenset()
    unrolled: frozenset[Operation] = frozenset()


def plan(
    body: Block,
    records: Mapping[Operation, Record],
    saving: Collection[Operation],
    allowance: Allowance,
) -> Plan:
    """How the loops of a task are best recorded.

    ``records`` are those of its loops, pruned; to store the loops ``saving`` would save a run.
    """
    strides = {op: record.offsets()[1] for op, record in records.items()}
    strides = {op: stride for op, stride in strides.items() if stride}
    if allowance.local:
        return _plan_nearby(body, strides, allowance)
    around = {} if allowance.nests == REPLAY else nests(body, strides, saving)
    weights = {op: 1 + (op in around.values()) for op in strides}
    parts = max(1, _most_at_once(body, weights)[0])
    found = _in_blocks(body, strides, parts, allowance) if allowance.whole else frozenset()
    stored = Nests(around, 0 if allowance.nests == STORE else IN_CACHE)
    return Plan(parts, in_blocks=found, nests=stored)


def _plan_nearby(body: Block, strides: Mapping[Operation, int], allowance: Allowance) -> Plan:
    """Blocks whose records are local: all loops have some, but those that surely are one block."""
    constants = {op.result: op.value for op in body.walk() if isinstance(op, ops.Constant)}
    local, in_blocks, whole, unrolled = {}, set(), set(), set()
    left = unrolling.MOST_IN_TASK
    for op, stride in strides.items():
        length = unrolling.unrolled_turns(op, stride, left)
        if length:
            unrolled.add(op)
            left -= length * unrolling.work_of(op.regions[-1])
        else:
            length = min(MOST_IN_BLOCK, max(LEAST_IN_BLOCK, allowance.local // stride))
        if op in unrolled or unrolling.is_worth_twice(op):
            whole.add(op)
        if _surely_fits(op, length, constants):
            local[op] = max(1, constants[op.upper] - constants[op.lower])  # type: ignore[attr-defined]
        else:
            local[op] = length
            in_blocks.add(op)
    parts = max(1, _most_at_once(body, dict.fromkeys(in_blocks, 1))[0])
    return Plan(
        parts,
        allowance.whole // (parts * allowance.sharers),
        frozenset(in_blocks),
        Nests({}, 0),
        local,
        frozenset(whole),
        frozenset(unrolled),
    )


def _in_blocks(
    body: Block, strides: Mapping[Operation, int], parts: int, allowance: Allowance
) -> frozenset[Operation]:
    """The loops of a task that may be recorded in blocks."""
    constants = {op.result: op.value for op in body.walk() if isinstance(op, ops.Constant)}
    room = allowance.whole // (parts * allowance.sharers)
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


End = Callable[[Value, Value], Value]
"""Where a record ends that begins at a position, of so many iterations."""


@dataclass(frozen=True, slots=True)
class Room:
    """How many iterations fit a loop's share, and how many of them, or checkpoints, whichever.

    Where records are `local`, they hold a block of so many iterations; else it is 0. Then so many
    checkpoints as are `sure` fit each launch.
    """

    whole: Value
    mixed: Value
    local: int = 0
    sure: int = 0

    @classmethod
    def of(
        cls, builder: Builder, record: Record, checkpoint: Record, plan: Plan, taken: Value
    ) -> Room:
        """The room of a loop with these records in what is left beyond the bytes that are taken."""
        whole, other = (
            builder.append(ops.RecordRoom(each, plan.parts, taken, results=[Value(i64)])).result
            for each in (record, checkpoint)
        )
        if record.local:
            sure = plan.sure // max(1, checkpoint.offsets()[1])
            return cls(builder.constant(record.local, i64), other, record.local, sure)
        return cls(whole, builder.binary("min", whole, other))

    def furthest(
        self,
        builder: Builder,
        start: Value,
        count: Value,
        ends: tuple[End, End],
        stored: Value | None,
    ) -> Value:
        """At most there a loop of so many iterations ends that begins at a position.

        ``ends`` give the ends of so many iterations of the record, and of the checkpoints; blocks
        may store so many bytes with them.
        """
        none, most = builder.constant(0, i64), builder.constant(MOST_LEVELS, i64)
        one, (of_record, of_checkpoints) = builder.constant(1, i64), ends
        is_long = builder.compare("gt", count, self.whole)
        if self.local:
            blocks = nearby.blocks_of(builder, count, self.local)
            held = builder.binary("min", blocks, builder.binary("add", self.mixed, one))
            end = of_checkpoints(start, held)
        else:
            most_whole = builder.binary("add", self.whole, one)
            end = of_record(start, builder.binary("min", count, most_whole))
        if stored is not None:  # the checkpoints stand behind as much as blocks may store
            end = builder.select(is_long, builder.binary("add", end, stored), end)
        return of_checkpoints(end, builder.select(is_long, most, none))


@dataclass(frozen=True, slots=True)
class Blocks:
    """The length of a block, their number, the checkpoints of the first level, and of all levels.

    All are i64. Where records are local the first level is told as in `nearby`.
    """

    length: Value
    count: Value
    width: Value
    places: Value


def split(builder: Builder, trips: Value, room: Room, *, whole: bool = False) -> Blocks:
    """The blocks of so many iterations; where they are ``whole`` without those that are left."""
    if room.local:
        return _split_nearby(builder, trips, room, whole=whole)
    fits, splits = Block(), Block()
    one = builder.constant(1, i64)
    with builder.into(fits):
        builder.yield_([trips, one, one, builder.constant(0, i64)])
    with builder.into(splits):
        root = builder.unary("ceil", builder.unary("sqrt", builder.cast(trips, f64)))
        length = builder.cast(root, i64)
        both = builder.binary("add", length, length)
        is_flat = builder.compare("le", both, room.mixed)
        half, quarter = unknown(builder, room)
        length = builder.select(is_flat, length, half)
        up = builder.binary("add", trips, builder.binary("sub", length, one))
        count = _divided(builder, up, length)
        width = builder.select(is_flat, count, quarter)
        builder.yield_([length, count, width, _places(builder, count, width)])
    is_short = builder.compare("le", trips, room.whole)
    return Blocks(*builder.if_(is_short, fits, splits).results)


def _split_nearby(builder: Builder, trips: Value, room: Room, *, whole: bool) -> Blocks:
    """Blocks of a length that is the same for all loops; a last one is shorter, or not there."""
    blocks = nearby.blocks_of if whole else nearby.blocks_with_last
    count = blocks(builder, trips, room.local)
    known = builder.constant_of(count)
    is_flat = known is not None and known <= room.sure
    bits = nearby.flat(builder) if is_flat else nearby.bits_for(builder, count, room.mixed)
    length = builder.constant(room.local, i64)
    return Blocks(length, count, bits, nearby.places(builder, count, bits))


def whole_blocks(builder: Builder, trips: Value, room: Room) -> Value:
    """The blocks that so many iterations fill where all have one length."""
    return nearby.blocks_of(builder, trips, room.local)


def unknown(builder: Builder, room: Room) -> tuple[Value, Value]:
    """The length of a block and the checkpoints on the first level where trips are not known."""
    one = builder.constant(1, i64)
    if room.local:
        length = builder.constant(room.local, i64)
        return length, nearby.bits_within(builder, room.mixed)

    def part(k: int) -> Value:
        return builder.binary("shr", room.mixed, builder.constant(k, i64))

    shared = builder.binary("sub", room.mixed, part(3))
    half, quarter = (
        builder.binary("max", one, builder.binary("shr", shared, builder.constant(k, i64)))
        for k in (1, 2)
    )
    return half, quarter


def place(builder: Builder, number: Value, width: Value, room: Room) -> tuple[Value, Value]:
    """Where the checkpoint of a block stands, and how many blocks there are to the one before it.

    That one is on its level, or a higher one; it is not the first block.
    """
    if room.local:
        return nearby.place(builder, number, width)
    number, start, width, span = _climb(builder, number, width, by_digits=True)
    digit = _modulo(builder, number, width)
    last = builder.binary("sub", digit, builder.constant(1, i64))
    return builder.binary("add", start, last), span


def places(builder: Builder, count: Value, width: Value, room: Room) -> Value:
    """How many places the checkpoints of so many blocks take."""
    if room.local:
        return nearby.places(builder, count, width)
    some, none = Block(), Block()
    with builder.into(some):
        builder.yield_([_places(builder, count, width)])
    with builder.into(none):
        builder.yield_([builder.constant(0, i64)])
    has_some = builder.compare("gt", count, builder.constant(1, i64))
    return builder.if_(has_some, some, none).results[0]


def _places(builder: Builder, count: Value, width: Value) -> Value:
    """The same where there is more than one block."""
    others = builder.binary("sub", count, builder.constant(1, i64))
    number, start, _, _ = _climb(builder, others, width, by_digits=False)
    return builder.binary("add", start, number)


def _climb(builder: Builder, number: Value, width: Value, *, by_digits: bool) -> list[Value]:
    """Go up the levels while the last digit is zero, or else while there are other digits.

    Gives what is left of the number, the place where the level begins, its width, and how many
    blocks a unit of it stands for.
    """
    zero, one = (builder.constant(k, i64) for k in (0, 1))
    condition, body = (Block([Value(i64) for _ in range(4)]) for _ in range(2))
    with builder.into(condition):
        left, _, level, _ = condition.args
        if by_digits:
            goes_on = builder.compare("eq", _modulo(builder, left, level), zero)
        else:
            goes_on = builder.compare("gt", left, level)
        builder.yield_([goes_on])
    with builder.into(body):
        left, start, level, span = body.args
        base = builder.binary("add", level, one)
        half = builder.binary("max", one, builder.binary("shr", level, one))
        start = builder.binary("add", start, level)
        higher = _divided(builder, left, base)
        builder.yield_([higher, start, half, builder.binary("mul", span, base)])
    return builder.while_([number, zero, width, one], condition, body).results


def _modulo(builder: Builder, number: Value, width: Value) -> Value:
    """The last digit of a number on a level."""
    base = builder.binary("add", width, builder.constant(1, i64))
    return _unsigned(builder, "mod", number, base)


def _divided(builder: Builder, number: Value, divisor: Value) -> Value:
    return _unsigned(builder, "floordiv", number, divisor)


def _unsigned(builder: Builder, fn: str, lhs: Value, rhs: Value) -> Value:
    """A function of integers that are not negative, which takes less code than one of others."""
    result = builder.binary(fn, builder.cast(lhs, u64), builder.cast(rhs, u64))
    return builder.cast(result, i64)
