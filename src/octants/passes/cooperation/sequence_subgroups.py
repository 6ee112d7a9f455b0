"""Subgroup operations whose work items run one after the other.

Of a subgroup either all work items are in a mask, or none.
"""

from __future__ import annotations

from octants.ir import ops
from octants.ir.core import Array, Value
from octants.ir.ops.cooperation import SCANS
from octants.passes.cooperation.values_across_barriers import BlockValues
from octants.types.scalars import u64


def subgroup(block: BlockValues, op: ops.Subgroup, mask: Array | None) -> None:
    """A subgroup operation; either all lanes of a subgroup are in the mask, or none."""
    if op.lane:
        block.each(mask, lambda thread: _shuffle(block, op, thread))
    elif op.fn in SCANS:
        _scan(block, op, mask)
    else:
        _reduce(block, op, mask)


def _shuffle(block: BlockValues, op: ops.Subgroup, thread: Value) -> None:
    build, chosen = block.builder, block.at(op.lane[0], thread)
    lane = build.binary("and", thread, build.index(block.subgroup_size - 1))
    fn = {"shuffle_up": "sub", "shuffle_down": "add", "shuffle_xor": "xor"}.get(op.fn)
    source = chosen if fn is None else build.binary(fn, lane, chosen)
    start = build.binary("sub", thread, lane)
    limit = build.binary(
        "min", build.index(block.subgroup_size), build.binary("sub", block.count, start)
    )
    is_there = build.binary(
        "and", build.compare("ge", source, block.zero), build.compare("lt", source, limit)
    )
    source_thread = build.select(is_there, build.binary("add", start, source), thread)
    block.store(op.result, thread, block.at(op.value, source_thread))


def _reduce(block: BlockValues, op: ops.Subgroup, mask: Array | None) -> None:
    """Neighbours first, then neighbouring pairs; the first of a group has it in the end."""
    build, is_ballot = block.builder, op.fn == "ballot"
    total = block.array("total", op.result.type)
    fn, lanes = ("or", block.subgroup_size) if is_ballot else (op.fn, op.lanes)

    def begin(thread: Value) -> None:
        value = block.at(op.value, thread)
        build.store(total, [thread], _bit(block, value, thread) if is_ballot else value)

    block.each(mask, begin)
    step = 1
    while step < lanes:
        block.each(mask, lambda thread, step=step: _pair(block, fn, total, thread, step))  # type: ignore[misc]
        step *= 2

    def end(thread: Value) -> None:
        first = build.binary("and", thread, build.index(-lanes))
        block.store(op.result, thread, build.load(total, [first]))

    block.each(mask, end)


def _bit(block: BlockValues, value: Value, thread: Value) -> Value:
    build = block.builder
    lane = build.binary("and", thread, build.index(block.subgroup_size - 1))
    bit = build.binary("shl", build.constant(1, u64), build.cast(lane, u64))
    return build.select(value, bit, build.constant(0, u64))


def _pair(block: BlockValues, fn: str, total: Array, thread: Value, step: int) -> None:
    """The first of so many takes in what the other half has."""
    build = block.builder
    inside = build.binary("and", thread, build.index(2 * step - 1))
    other = build.binary("add", thread, build.index(step))
    is_first = build.compare("eq", inside, block.zero)
    takes = build.binary("and", is_first, build.compare("lt", other, block.count))
    with build.only_if(takes):
        halves = build.load(total, [thread]), build.load(total, [other])
        build.store(total, [thread], build.binary(fn, *halves))


def _scan(block: BlockValues, op: ops.Subgroup, mask: Array | None) -> None:
    """Each takes in what the one 1, 2, 4, ... before it has; the last ones first."""
    build, fn = block.builder, op.fn.removeprefix("inclusive_")
    total, step = block.array_of(op.result), 1
    block.each(mask, lambda thread: block.store(op.result, thread, block.at(op.value, thread)))
    while step < op.lanes:

        def fill(number: Value, step: int = step) -> None:
            last = build.binary("sub", block.count, build.index(1))
            thread = build.binary("sub", last, number)
            inside = build.binary("and", thread, build.index(op.lanes - 1))
            takes = build.compare("ge", inside, build.index(step))
            if mask is not None:
                takes = build.binary("and", takes, build.load(mask, [thread]))
            with build.only_if(takes):
                before = build.binary("sub", thread, build.index(step))
                both = build.load(total, [before]), build.load(total, [thread])
                build.store(total, [thread], build.binary(fn, *both))

        block.each(None, fill)
        step *= 2
