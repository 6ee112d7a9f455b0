"""Which loops record blocks of their iterations only, and how long a block is.

A loop that is recorded in blocks keeps the records of one block at a time, and a checkpoint, which
is a record too, at the start of each block but the first. Before a block is reversed it is run
again from its checkpoint. So n iterations in blocks of b take b + n / b records instead of n, for
one more execution; a loop that fits one block takes n, and is not run again.

A loop gets a share of the budget of its work item, which is that of the worker unless work items
share its tape (`ops.RecordShare`). A `for`, which knows its trips, is one block if they fit the
share, and else makes blocks of the square root of them, which takes the least memory. A `while`
does not know them, and gives its first block half of the share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Block, Operation, Record, Value
from octants.types.scalars import f64, i64, u64


def rooms(
    body: Block, records: Mapping[Operation, Record], budget: int, sharers: int
) -> dict[Operation, int]:
    """How many records fit the share of each loop of a task that may make more iterations.

    ``records`` are those of its loops, pruned; ``budget`` is in bytes and for a worker, whose tape
    up to so many work items may share.
    """
    strides = {op: record.offsets()[1] for op, record in records.items()}
    strides = {op: stride for op, stride in strides.items() if stride}
    share = budget // max(1, _most_at_once(body, strides)[0])
    found = {op: max(1, share // stride) for op, stride in strides.items()}
    constants = {op.result: op.value for op in body.walk() if isinstance(op, ops.Constant)}
    return {
        op: room for op, room in found.items() if not _surely_fits(op, room // sharers, constants)
    }


def _most_at_once(block: Block, recorded: Mapping[Operation, int]) -> tuple[int, int]:
    """How many recorded loops have records on the stack, at most while and after a block runs."""
    most = held = 0
    for op in block.ops:
        inside = [_most_at_once(region, recorded) for region in op.regions]
        held += op in recorded
        most = max(most, held, *(held + above for above, _ in inside))
        if isinstance(op, ops.If):
            held += max(left for _, left in inside)
    return most, held


def _surely_fits(op: Operation, room: int, constants: Mapping[Value, Any]) -> bool:
    if not isinstance(op, ops.For) or op.lower not in constants or op.upper not in constants:
        return False
    return bool(constants[op.upper] - constants[op.lower] <= room)


def split(builder: Builder, trips: Value, room: int) -> tuple[Value, Value]:
    """The length of a block (i64) and the number of blocks (i64) of so many iterations.

    ``room`` is that of a worker.
    """
    fits, splits = Block(), Block()
    one = builder.constant(1, i64)
    with builder.into(fits):
        builder.yield_([trips, one])
    with builder.into(splits):
        root = builder.unary("ceil", builder.unary("sqrt", builder.cast(trips, f64)))
        length = builder.cast(root, i64)
        last = builder.binary("sub", length, one)
        whole, part = builder.binary("add", trips, last), builder.cast(length, u64)
        blocks = builder.binary("floordiv", builder.cast(whole, u64), part)  # less code than signed
        builder.yield_([length, builder.cast(blocks, i64)])
    is_short = builder.compare("le", trips, share(builder, room))
    length, blocks = builder.if_(is_short, fits, splits).results
    return length, blocks


def share(builder: Builder, room: int) -> Value:
    """What of a worker's room is a work item's (i64)."""
    return builder.append(ops.RecordShare(room, results=[Value(i64)])).result
