"""Blocks whose records are local: all have one length, which is a compile-time constant.

Their checkpoints are on levels as in `checkpoints`. But there are many short blocks, and GPUs have
no instruction for division: so the base of a level is a power of two, half that of the level
before. The number of bits of its digits describes a level; it is `FLAT` if each block has a slot
for its checkpoint.
"""

from __future__ import annotations

from octants.ir.builder import Builder
from octants.ir.core import Block, Value
from octants.types.scalars import i64, u64

FLAT = 62
"""Bits of a digit that holds the number of any block."""


def blocks_of(builder: Builder, trips: Value, length: int) -> Value:
    """How many blocks so many iterations (i64) fill."""
    whole = builder.binary("floordiv", builder.cast(trips, u64), builder.constant(length, u64))
    return builder.cast(whole, i64)


def blocks_with_last(builder: Builder, trips: Value, length: int) -> Value:
    """How many blocks so many iterations (i64) need, at least one."""
    up = builder.binary("add", trips, builder.constant(length - 1, i64))
    return builder.binary("max", blocks_of(builder, up, length), builder.constant(1, i64))


def flat(builder: Builder) -> Value:
    """The bits of the first level if each block has a slot for its checkpoint."""
    return builder.constant(FLAT, i64)


def bits_for(builder: Builder, count: Value, capacity: Value) -> Value:
    """The bits of the first level, for so many blocks and capacity for so many checkpoints."""
    is_flat = builder.compare("le", count, capacity)
    return builder.select(is_flat, flat(builder), bits_within(builder, capacity))


def bits_within(builder: Builder, capacity: Value) -> Value:
    """The bits of the first level for an unknown number of blocks.

    Most of the capacity is for the lower levels; the levels of one checkpoint have an eighth of it.
    """
    one, most = builder.constant(1, i64), builder.constant(63, i64)
    half, eighth = (builder.binary("shr", capacity, builder.constant(k, i64)) for k in (1, 3))
    base = builder.binary("add", builder.binary("sub", half, eighth), one)
    return builder.binary("max", one, builder.binary("sub", most, builder.unary("clz", base)))


def slot(builder: Builder, number: Value, bits: Value) -> tuple[Value, Value]:
    """The slot of the checkpoint of a block, and the number of blocks since the checkpoint before.

    That checkpoint is on the same level or a higher one. ``number`` is not 0.
    """
    one, near, levels = builder.constant(1, i64), Block(), Block()
    if builder.constant_of(bits) == FLAT:
        return builder.binary("sub", number, one), one
    with builder.into(near):
        builder.yield_([builder.binary("sub", number, one), one])
    with builder.into(levels):
        left, start, level, shift = _climb(builder, number, bits, by_digits=True)
        digit = builder.binary("and", left, _mask(builder, level))
        where = builder.binary("add", start, builder.binary("sub", digit, one))
        builder.yield_([where, builder.binary("shl", one, shift)])
    is_flat = builder.compare("eq", bits, flat(builder))
    found, span = builder.if_(is_flat, near, levels).results
    return found, span


def slots(builder: Builder, count: Value, bits: Value) -> Value:
    """How many slots the checkpoints of so many blocks need."""
    none, one = builder.constant(0, i64), builder.constant(1, i64)
    others = builder.binary("max", none, builder.binary("sub", count, one))
    if builder.constant_of(bits) == FLAT:
        return others
    number, start, _, _ = _climb(builder, others, bits, by_digits=False)
    return builder.binary("add", start, number)


def _climb(builder: Builder, number: Value, bits: Value, *, by_digits: bool) -> list[Value]:
    """Go up the levels while the last digit is zero, or else while there are other digits.

    Returns:
        The remaining digits, the first slot of the level, its bits, and the bits of all digits
        before.
    """
    zero, one = (builder.constant(k, i64) for k in (0, 1))
    condition, body = (Block([Value(i64) for _ in range(4)]) for _ in range(2))
    with builder.into(condition):
        left, _, level, _ = condition.args
        mask = _mask(builder, level)
        if by_digits:
            goes_on = builder.compare("eq", builder.binary("and", left, mask), zero)
        else:
            goes_on = builder.compare("gt", left, mask)
        builder.yield_([goes_on])
    with builder.into(body):
        left, start, level, shift = body.args
        start = builder.binary("add", start, _mask(builder, level))
        higher = builder.binary("ushr", left, level)
        lower = builder.binary("max", one, builder.binary("sub", level, one))
        builder.yield_([higher, start, lower, builder.binary("add", shift, level)])
    return builder.while_([number, zero, bits, zero], condition, body).results


def _mask(builder: Builder, bits: Value) -> Value:
    one = builder.constant(1, i64)
    return builder.binary("sub", builder.binary("shl", one, bits), one)
