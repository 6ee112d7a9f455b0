"""Makes one loop of two that do nothing but nest, such as those over the neighbours of a cell.

Before::

    %9: f32 = for(%low, %high, %8) { (%1: i32, %2: f32):
      %3: i32 = binary<add>(%x, %1)
      %4: f32 = for(%low, %high, %2) { (%5: i32, %6: f32):
        %7: f32 = ... of %3, %5 and %6
        yield(%7)
      }
      yield(%4)
    }

After, if the bounds are -1 and 2::

    %9: f32 = for(%0, %nine, %8) { (%10: i32, %6: f32):
      %1: i32 = %10 / 3 - 1
      %5: i32 = %10 % 3 - 1
      %3: i32 = binary<add>(%x, %1)
      %7: f32 = ... of %3, %5 and %6
      yield(%7)
    }

The bounds of both are constants, and an i32 can count all iterations. What the outer loop does
besides the inner one has no effects, and it is done again in each iteration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Block, Task, Value
from octants.types.scalars import i32

_TOO_MANY = 1 << 31  # iterations for the counter


def collapse_nests(task: Task, loops: set[ops.For], numbers: Mapping[Value, Any]) -> None:
    """Collapse loops of the body of a task with their inner loops, again and again.

    Args:
        task: what is rewritten.
        loops: its loops; those that are collapsed are replaced.
        numbers: the constants around them.
    """
    body: list[Any] = []
    for op in task.body.ops:
        while op in loops and (inner := _nested(op, numbers)) is not None:
            builder = Builder()
            new = _collapsed(op, inner, numbers, builder)
            numbers = {**numbers, **ops.constants_in(builder.block)}
            body += builder.block.ops
            loops.discard(op)
            loops.add(new)
            op = new
        body.append(op)
    task.body.ops[:] = body


def _nested(loop: ops.For, numbers: Mapping[Value, Any]) -> ops.For | None:
    """The loop that another one consists of, if they can be collapsed."""
    inner = [op for op in loop.body.ops if isinstance(op, ops.Loop)]
    if len(inner) != 1 or not isinstance(inner[0], ops.For):
        return None
    (found,) = inner
    assert isinstance(found, ops.For)
    others = (op for op in loop.body.ops[:-1] if op is not found)
    if any(op.has_effects or op.regions or not op.is_scalar for op in others):
        return None
    total = (found.trips(numbers) or 0) * (loop.trips(numbers) or 0)
    if not 0 < total < _TOO_MANY:
        return None
    if found.inits != loop.body.args[1:] or loop.body.yielded != found.results:
        return None
    return found


def _collapsed(
    loop: ops.For, inner: ops.For, numbers: Mapping[Value, Any], builder: Builder
) -> ops.For:
    """Emit the constants of one loop in place of two, and make that loop, with their results."""
    around, trips = loop.trips(numbers), inner.trips(numbers)
    assert around is not None
    assert trips is not None
    total = builder.constant(around * trips, i32)
    zero = builder.constant(0, i32)
    body = Block([Value(i32), *inner.body.args[1:]])
    with builder.into(body):
        builder.location = loop.location
        quotient = builder.binary("truncdiv", body.args[0], builder.constant(trips, i32))
        rest = builder.binary("truncmod", body.args[0], builder.constant(trips, i32))
        for each, count in ((loop, quotient), (inner, rest)):
            counter = each.body.args[0]
            first = builder.constant(numbers[each.lower], counter.type)
            number = builder.cast(count, counter.type)
            builder.append(ops.Binary("add", number, first, results=[counter]))
        body.ops += [op for op in loop.body.ops[:-1] if op is not inner]
        body.ops += inner.body.ops
    return ops.For(zero, total, list(loop.inits), body, results=loop.results)
