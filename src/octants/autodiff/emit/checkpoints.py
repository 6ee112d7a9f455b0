"""Plans the blocks and checkpoints of a loop at run time, by the capacity of record buffers.

A loop in blocks keeps the records of one block at a time, and checkpoints: records of the values
that the loop carries into a block. Before a block is reversed, it is run again from the nearest
checkpoint, which leaves further checkpoints on the way. A loop that fits one block needs n records
for n iterations, and is not run again.

Each loop gets a `Capacity`: an equal part of the work item's share of a record buffer, which the
launch passes. If S records fit, blocks and checkpoints of the square root of n each cover S * S / 4
iterations, for one more execution. If n is larger or unknown, an eighth of the capacity is left to
the highest levels, which have one checkpoint each; half of the remainder is the block. The other
half holds checkpoints on levels, in a quarter, an eighth, and so on: on a level of w checkpoints,
each (w + 1)th block has its checkpoint on the next level. So block numbers are written in a mixed
base, and the last non-zero digit of a block's number selects the slot of its checkpoint::

    base 3, 2, 2, ...        block    0  1  2  3  4  5  6  7  8 ...
                             level       0  0  1  0  0  2  0  0 ...
                             slot        0  1  2  0  1  3  0  1 ...

A checkpoint overwrites one that no block needs any more, of a lower level first. So k levels of w
checkpoints cover about w**k blocks, for k more executions.

A GPU runs so many work items at once that their record buffers do not stay in caches, while each
has a little local memory. There the records of one block are local, all blocks have one length, and
only checkpoints are in the record buffer, with all of the capacity. If the number of blocks is a
constant and the guaranteed capacity holds all their checkpoints, these have no levels.
"""

from __future__ import annotations

from collections.abc import Callable

from octants.autodiff.emit import local_record_blocks
from octants.autodiff.plan.recording_plan import RecordingPlan
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Block, Record, Value
from octants.lazy_dataclass import dataclass
from octants.types.scalars import f32, i64, u64

MAX_LEVELS = 64
"""More levels than any number of blocks that fits an i64 needs."""


End = Callable[[Value, Value], Value]
"""Maps (the position of a record, a number of iterations) to the position at which these end."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much of a loop's records fits its part of the share.

    `iterations` is how many iterations fit, `either` how many iterations or checkpoints, whichever
    is less. If records are `local`, they hold a block of so many iterations, and at least
    `guaranteed` checkpoints fit at each launch; else both are 0. A loop of up to `unblocked`
    iterations has no blocks.
    """

    iterations: Value
    either: Value
    local: int = 0
    guaranteed: int = 0
    unblocked: int = 0

    @classmethod
    def of(
        cls,
        builder: Builder,
        record: Record,
        checkpoint: Record,
        plan: RecordingPlan,
        taken: Value,
        unblocked: int = 0,
    ) -> Capacity:
        """Emit the queries of the capacity of a loop.

        Args:
            builder: where they are emitted.
            record: the record of its iterations.
            checkpoint: the record of its checkpoints.
            plan: how many loops divide the share.
            taken: the bytes of the share that are in use (i64).
            unblocked: the number of iterations up to which it has no blocks.

        Returns:
            The capacity.
        """
        whole, other = (
            builder.append(
                ops.RecordCapacity(each, plan.partitions, taken, results=[Value(i64)])
            ).result
            for each in (record, checkpoint)
        )
        if record.local:
            guaranteed = plan.guaranteed_bytes // max(1, checkpoint.offsets()[1])
            most = builder.constant(max(record.local, unblocked), i64)
            return cls(most, other, record.local, guaranteed, unblocked)
        return cls(whole, builder.binary("min", whole, other))

    def furthest(
        self,
        builder: Builder,
        start: Value,
        count: Value,
        ends: tuple[End, End],
        stored: Value | None,
    ) -> Value:
        """The furthest position at which a loop ends.

        Args:
            builder: where this is computed.
            start: the position at which its records begin (i64, bytes).
            count: its trip count (i64).
            ends: give the ends of its record and of its checkpoints.
            stored: the bytes that its blocks may store besides.

        Returns:
            The position (i64, bytes).
        """
        none, most = builder.constant(0, i64), builder.constant(MAX_LEVELS, i64)
        one, (of_record, of_checkpoints) = builder.constant(1, i64), ends
        is_long = builder.compare("gt", count, self.iterations)
        if self.local:
            blocks = local_record_blocks.blocks_of(builder, count, self.local)
            held = builder.binary("min", blocks, builder.binary("add", self.either, one))
            held = builder.select(is_long, held, none) if self.unblocked else held
            end = of_checkpoints(start, held)
        else:
            most_whole = builder.binary("add", self.iterations, one)
            end = of_record(start, builder.binary("min", count, most_whole))
        if stored is not None:  # the checkpoints begin behind what blocks may store
            end = builder.select(is_long, builder.binary("add", end, stored), end)
        return of_checkpoints(end, builder.select(is_long, most, none))


@dataclass(frozen=True, slots=True)
class BlockSplit:
    """The blocks of a loop, and its checkpoints; all are i64.

    `length` is the iterations of a block, `count` the number of blocks, `width` the checkpoints of
    the first level, `slots` those of all levels. If records are local, `width` is a number of bits
    instead (`local_record_blocks`).
    """

    length: Value
    count: Value
    width: Value
    slots: Value


def split(
    builder: Builder, trips: Value, capacity: Capacity, *, fixed_length: bool = False
) -> BlockSplit:
    """Split so many iterations into blocks that fit a capacity.

    Args:
        builder: where this is computed.
        trips: the trip count (i64).
        capacity: the capacity of the loop.
        fixed_length: leave iterations that do not fill a block out.

    Returns:
        The blocks.
    """
    if capacity.local:
        return _split_local(builder, trips, capacity, fixed_length=fixed_length)
    fits, splits = Block(), Block()
    one = builder.constant(1, i64)
    with builder.into(fits):
        builder.yield_([trips, one, one, builder.constant(0, i64)])
    with builder.into(splits):
        length = _root(builder, trips)
        both = builder.binary("add", length, length)
        is_flat = builder.compare("le", both, capacity.either)
        half, quarter = split_unknown(builder, capacity)
        length = builder.select(is_flat, length, half)
        up = builder.binary("add", trips, builder.binary("sub", length, one))
        count = _divided(builder, up, length)
        width = builder.select(is_flat, count, quarter)
        builder.yield_([length, count, width, _slots(builder, count, width)])
    is_short = builder.compare("le", trips, capacity.iterations)
    return BlockSplit(*builder.if_(is_short, fits, splits).results)


def _root(builder: Builder, number: Value) -> Value:
    """The root of a positive i64, rounded up: that of an f32, which each device has, corrected."""
    one = builder.constant(1, i64)
    estimate = builder.unary("sqrt", builder.cast(number, f32))
    root = builder.cast(builder.unary("ceil", estimate), i64)
    less = builder.binary("sub", root, one)
    is_high = builder.compare("ge", builder.binary("mul", less, less), number)
    root = builder.select(is_high, less, root)
    is_low = builder.compare("lt", builder.binary("mul", root, root), number)
    return builder.select(is_low, builder.binary("add", root, one), root)


def _split_local(
    builder: Builder, trips: Value, capacity: Capacity, *, fixed_length: bool
) -> BlockSplit:
    """Blocks of a constant length; the last one may be shorter, or left out."""
    blocks = local_record_blocks.blocks_of if fixed_length else local_record_blocks.blocks_with_last
    count = blocks(builder, trips, capacity.local)
    if capacity.unblocked:
        is_short = builder.compare("le", trips, builder.constant(capacity.unblocked, i64))
        count = builder.select(is_short, builder.constant(0, i64), count)
    known = builder.constant_of(count)
    is_flat = known is not None and known <= capacity.guaranteed
    bits = (
        local_record_blocks.flat(builder)
        if is_flat
        else local_record_blocks.bits_for(builder, count, capacity.either)
    )
    length = builder.constant(capacity.local, i64)
    return BlockSplit(length, count, bits, local_record_blocks.slots(builder, count, bits))


def split_unknown(builder: Builder, capacity: Capacity) -> tuple[Value, Value]:
    """The length of a block and the width of the first level, for an unknown trip count."""
    one = builder.constant(1, i64)
    if capacity.local:
        length = builder.constant(capacity.local, i64)
        return length, local_record_blocks.bits_within(builder, capacity.either)

    eighth = builder.binary("shr", capacity.either, builder.constant(3, i64))
    shared = builder.binary("sub", capacity.either, eighth)
    half, quarter = (
        builder.binary("max", one, builder.binary("shr", shared, builder.constant(k, i64)))
        for k in (1, 2)
    )
    return half, quarter


def slot(builder: Builder, number: Value, width: Value, capacity: Capacity) -> tuple[Value, Value]:
    """The slot of the checkpoint of a block, and the number of blocks since the checkpoint before.

    That checkpoint is on the same level or a higher one. ``number`` is not 0.
    """
    if capacity.local:
        return local_record_blocks.slot(builder, number, width)
    number, start, width, span = _climb(builder, number, width, by_digits=True)
    digit = _modulo(builder, number, width)
    last = builder.binary("sub", digit, builder.constant(1, i64))
    return builder.binary("add", start, last), span


def slots(builder: Builder, count: Value, width: Value, capacity: Capacity) -> Value:
    """How many slots the checkpoints of so many blocks need."""
    if capacity.local:
        return local_record_blocks.slots(builder, count, width)
    some, none = Block(), Block()
    with builder.into(some):
        builder.yield_([_slots(builder, count, width)])
    with builder.into(none):
        builder.yield_([builder.constant(0, i64)])
    has_some = builder.compare("gt", count, builder.constant(1, i64))
    return builder.if_(has_some, some, none).results[0]


def _slots(builder: Builder, count: Value, width: Value) -> Value:
    """The same for more than one block."""
    others = builder.binary("sub", count, builder.constant(1, i64))
    number, start, _, _ = _climb(builder, others, width, by_digits=False)
    return builder.binary("add", start, number)


def _climb(builder: Builder, number: Value, width: Value, *, by_digits: bool) -> list[Value]:
    """Go up the levels while the last digit is zero, or else while there are other digits.

    Returns:
        The remaining digits, the first slot of the level, its width, and how many blocks a unit of
        the remaining digits counts.
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
    """A function of non-negative integers; unsigned division takes less code."""
    result = builder.binary(fn, builder.cast(lhs, u64), builder.cast(rhs, u64))
    return builder.cast(result, i64)
