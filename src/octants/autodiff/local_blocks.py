"""Blocks of loops whose records are local: all have one length, a number that is known here.

Their checkpoints stand as `checkpoints` says. But blocks are short, and a GPU has no instruction to
divide: the base of a level is a power of two, half that of the level before it. A level is told by
the number of bits of its digits, `FLAT` where there is a place for the checkpoint of each block.
"""

from __future__ import annotations

from octants.ir.builder import Builder
from octants.ir.core import Block, Value
from octants.types.scalars import i64, u64

FLAT = 62
"""Bits of a digit that holds the number of any block."""


def blocks_of(builder: Builder, trips: Value, length: int) -> Value:
    """How many blocks so many iterations fill."""
    whole = builder.binary("floordiv", builder.cast(trips, u64), builder.constant(length, u64))
    return builder.cast(whole, i64)


def blocks_with_last(builder: Builder, trips: Value, length: int) -> Value:
    """The same with a block for those that are left; one at least."""
    up = builder.binary("add", trips, builder.constant(length - 1, i64))
    return builder.binary("max", blocks_of(builder, up, length), builder.constant(1, i64))


def flat(builder: Builder) -> Value:
    """The bits on the first level where each block surely has a place for its checkpoint."""
    return builder.constant(FLAT, i64)


def bits_for(builder: Builder, count: Value, room: Value) -> Value:
    """The bits on the first level, for so many blocks and room for so many checkpoints."""
    is_flat = builder.compare("le", count, room)
    return builder.select(is_flat, flat(builder), bits_within(builder, room))


def bits_within(builder: Builder, room: Value) -> Value:
    """The same where the number of blocks is not known: most of the room is for lower levels.

    Those of one checkpoint each have an eighth of it.
    """
    one, most = builder.constant(1, i64), builder.constant(63, i64)
    half, eighth = (builder.binary("shr", room, builder.constant(k, i64)) for k in (1, 3))
    base = builder.binary("add", builder.binary("sub", half, eighth), one)
    return builder.binary("max", one, builder.binary("sub", most, builder.unary("clz", base)))


def place(builder: Builder, number: Value, bits: Value) -> tuple[Value, Value]:
    """Where the checkpoint of a block stands, and how many blocks there are to the one before it.

    That one is on its level, or a higher one; it is not the first block.
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


def places(builder: Builder, count: Value, bits: Value) -> Value:
    """How many places the checkpoints of so many blocks take."""
    none, one = builder.constant(0, i64), builder.constant(1, i64)
    others = builder.binary("max", none, builder.binary("sub", count, one))
    if builder.constant_of(bits) == FLAT:
        return others
    number, start, _, _ = _climb(builder, others, bits, by_digits=False)
    return builder.binary("add", start, number)


def _climb(builder: Builder, number: Value, bits: Value, *, by_digits: bool) -> list[Value]:
    """Go up the levels while the last digit is zero, or else while there are other digits.

    Gives what is left of the number, the place where the level begins, its bits, and the bits of
    all digits before.
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
