"""Whether a loop fits its record, where `ad_stack_size` forces records to a capacity.

Every loop that is recorded is checked where that happens, and the first sweep also checks those
that it runs plainly because they are recorded later, when an iteration around them is reversed. So
a work item that overflows ends before anything in it has been reversed. A `for` is checked before
it runs, a `while` after it has counted itself: both say what they need. `simplify.prune` removes
the checks of records that hold nothing.
"""

from __future__ import annotations

from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Record, Value
from octants.types.scalars import i64


def trips(builder: Builder, lower: Value, upper: Value) -> Value:
    """How often a `for` runs (i64): in i32 the difference of its bounds might overflow."""
    last = builder.binary("max", lower, upper)
    return distance(builder, lower, last)


def distance(builder: Builder, lower: Value, counter: Value) -> Value:
    """How often a `for` has run when its counter has come to some value (i64)."""
    return builder.binary("sub", builder.cast(counter, i64), builder.cast(lower, i64))


def check(builder: Builder, record: Record, count: Value) -> None:
    """End the work item unless a record holds so many iterations."""
    if record.capacity:
        builder.append(ops.RecordCheck(record, count))
