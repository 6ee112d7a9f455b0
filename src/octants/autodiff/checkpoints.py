"""Which loops record blocks of their iterations only, how long a block is, what is kept of others.

A loop that is recorded in blocks keeps the records of one block at a time, and checkpoints, which
are records too: what the loop carried into a block. Before a block is reversed it is run again from
the nearest checkpoint that is there, which leaves checkpoints on its way. A loop that fits one
block takes n records for n iterations, and is not run again.

A loop gets a share of its worker's tape, which the launch passes: `Capacity`. Blocks and
checkpoints of the square root of n each hold S * S / 4 iterations in S records, for one more
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

from collections.abc import Callable

from octants.autodiff import local_blocks
from octants.autodiff.plan import Plan
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Block, Record, Value
from octants.lazy_dataclass import dataclass
from octants.types.scalars import f64, i64, u64

MOST_LEVELS = 64
"""More than blocks that can be counted have."""


End = Callable[[Value, Value], Value]
"""Where a record ends that begins at a position, of so many iterations."""


@dataclass(frozen=True, slots=True)
class Capacity:
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
    ) -> Capacity:
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
            blocks = local_blocks.blocks_of(builder, count, self.local)
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

    All are i64. Where records are local the first level is told as in `local_blocks`.
    """

    length: Value
    count: Value
    width: Value
    places: Value


def split(builder: Builder, trips: Value, room: Capacity, *, even: bool = False) -> Blocks:
    """The blocks of so many iterations; where they are ``even`` without those that are left."""
    if room.local:
        return _split_nearby(builder, trips, room, even=even)
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


def _split_nearby(builder: Builder, trips: Value, room: Capacity, *, even: bool) -> Blocks:
    """Blocks of a length that is the same for all loops; a last one is shorter, or not there."""
    blocks = local_blocks.blocks_of if even else local_blocks.blocks_with_last
    count = blocks(builder, trips, room.local)
    known = builder.constant_of(count)
    is_flat = known is not None and known <= room.sure
    bits = (
        local_blocks.flat(builder) if is_flat else local_blocks.bits_for(builder, count, room.mixed)
    )
    length = builder.constant(room.local, i64)
    return Blocks(length, count, bits, local_blocks.places(builder, count, bits))


def even_blocks(builder: Builder, trips: Value, room: Capacity) -> Value:
    """The blocks that so many iterations fill where all have one length."""
    return local_blocks.blocks_of(builder, trips, room.local)


def unknown(builder: Builder, room: Capacity) -> tuple[Value, Value]:
    """The length of a block and the checkpoints on the first level where trips are not known."""
    one = builder.constant(1, i64)
    if room.local:
        length = builder.constant(room.local, i64)
        return length, local_blocks.bits_within(builder, room.mixed)

    def part(k: int) -> Value:
        return builder.binary("shr", room.mixed, builder.constant(k, i64))

    shared = builder.binary("sub", room.mixed, part(3))
    half, quarter = (
        builder.binary("max", one, builder.binary("shr", shared, builder.constant(k, i64)))
        for k in (1, 2)
    )
    return half, quarter


def place(builder: Builder, number: Value, width: Value, room: Capacity) -> tuple[Value, Value]:
    """Where the checkpoint of a block stands, and how many blocks there are to the one before it.

    That one is on its level, or a higher one; it is not the first block.
    """
    if room.local:
        return local_blocks.place(builder, number, width)
    number, start, width, span = _climb(builder, number, width, by_digits=True)
    digit = _modulo(builder, number, width)
    last = builder.binary("sub", digit, builder.constant(1, i64))
    return builder.binary("add", start, last), span


def places(builder: Builder, count: Value, width: Value, room: Capacity) -> Value:
    """How many places the checkpoints of so many blocks take."""
    if room.local:
        return local_blocks.places(builder, count, width)
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
