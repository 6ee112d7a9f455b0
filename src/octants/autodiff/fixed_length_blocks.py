"""Emits loops in blocks of one length, and records what is left behind the last one as it is.

Where code generation writes out each turn of a block, what it records lives in registers, with a
place for each turn: so all of them have as many turns. Other blocks are quicker, too, if the first
sweep leaves nothing of them but their checkpoints::

    %blocks = %trips // 16
    for(0, %blocks, %inits) { (%k, %carried):
      if(%k > 0) { record_push<#checkpoint>(%middle, %place, %carried) }
      for(0, 16, %carried) { (%i, %carried): ... }
    }
    for(%blocks * 16, %upper, %carried) { (%i, %carried):
      record_push<#rest>(%base, %i - %blocks * 16, %carried)
      ...
    }

and each block is run again before it is reversed. There are no loops in them, so that nothing else
is recorded meanwhile. A `while` does not know how many blocks it has until it has run: it records
all iterations in memory of the work item's own, of which those behind the last block stay there.
"""

from __future__ import annotations

from octants.autodiff import checkpoints
from octants.autodiff.checkpoints import Capacity
from octants.autodiff.loop_recording import (
    Checkpoints,
    LoopInBlocks,
    agree_on_blocks,
    at_iteration,
    counter,
)
from octants.autodiff.recording_strategy import Iterations
from octants.autodiff.records import Stack
from octants.autodiff.stored_loops import StoredLoops
from octants.autodiff.stored_nests import Loop
from octants.autodiff.sweep import Sweep
from octants.ir import ops
from octants.ir.core import Block, Operation, Record, Value
from octants.types.scalars import i64


class LoopInFixedLengthBlocks:
    """A loop in blocks, all of one length, and iterations behind the last one."""

    in_blocks = True

    def __init__(self, sweep: Sweep, stores: StoredLoops, op: Loop, room: Capacity) -> None:
        self._sweep = sweep
        self._op = op
        self._room = room
        self._checkpoints = Checkpoints(sweep, op, room)
        self._uneven = LoopInBlocks(sweep, stores, op, room)

    # -- recording ---------------------------------------------------------------------------------

    def record(self, stack: Stack) -> None:
        sweep, op = self._sweep, self._op
        if isinstance(op, ops.For):
            lower, upper, *inits = sweep.values.mapped(op.operands)
            self._record_for(op, sweep.count(op, lower, upper), inits, stack)
            return
        base, rest = stack.position, sweep.records.rest_of(op)

        def iteration(number: Value, carried: list[Value], _: list[Value]) -> list[Value]:
            sweep.records.push(rest, base, number, carried)
            sweep.emit_block(op.body)
            return []

        self._uneven.record_while(op, iteration, stack)
        blocks = checkpoints.even_blocks(sweep.builder, sweep.values[op, "count"], self._room)
        sweep.values.know(op, blocks=sweep.builder.longest(blocks), rest=sweep.values[op, "base"])

    def _record_for(self, op: ops.For, count: Value, inits: list[Value], stack: Stack) -> None:
        sweep, builder, base = self._sweep, self._sweep.builder, stack.position
        zero = builder.constant(0, i64)
        split = checkpoints.split(builder, builder.longest(count), self._room, even=True)
        sweep.values.know(
            op, base=base, count=count, length=split.length, width=split.width, middle=base
        )
        body = Block([Value(i64), *(Value(value.type) for value in inits)])
        with builder.into(body):
            number, *carried = body.args
            self._checkpoints.push(number, zero, carried)
            first = builder.binary("mul", number, split.length)
            builder.yield_(self._run_block(first, carried, None))
        carried = builder.for_(zero, split.count, inits, body).results
        stack.position = self._checkpoints.end(base, split.places)
        sweep.values.know(op, blocks=split.count, end=stack.position)
        sweep.values.bind_all(op.results, self._record_rest(op, carried, stack))

    def _run_block(self, first: Value, carried: list[Value], record: Record | None) -> list[Value]:
        """Run as many iterations as a block has, and record them; what is carried on."""
        sweep, op, builder = self._sweep, self._op, self._sweep.builder
        body = Block([Value(i64), *(Value(value.type) for value in carried)])
        with builder.into(body):
            number, *args = body.args
            sweep.values.bind_all(op.carried, args)
            if isinstance(op, ops.For):
                now = counter(sweep, op, builder.binary("add", first, number))
                sweep.values.bind(op.body.args[0], now)
            if record is not None:
                sweep.records.push(record, sweep.values[op, "base"], number, args)
            sweep.emit_block(op.body)
            builder.yield_(sweep.values.mapped(op.body.yielded))
        length = sweep.values[op, "length"]
        return builder.for_(builder.constant(0, i64), length, carried, body).results

    def _record_rest(self, op: ops.For, carried: list[Value], stack: Stack) -> list[Value]:
        """Run the iterations that are in no block, and record each on the stack."""
        sweep, builder, base = self._sweep, self._sweep.builder, stack.position
        rest = sweep.records.rest_of(op)
        first, left = self._after_blocks()
        end = sweep.records.end(rest, base, left)
        sweep.values.know(op, rest=base, left=left, end=end)
        start = counter(sweep, op, first)
        stop = builder.binary("add", start, builder.cast(left, start.type))
        body = Block([Value(arg.type, arg.name) for arg in op.body.args])
        with sweep.into(body, op.body.args):
            now, begin = builder.cast(body.args[0], i64), builder.cast(start, i64)
            number = builder.binary("sub", now, begin)
            sweep.records.push(rest, base, number, body.args[1:])
            sweep.emit_block(op.body)
            builder.yield_(sweep.values.mapped(op.body.yielded))
        stack.position = end
        return builder.for_(start, stop, carried, body).results

    def _after_blocks(self) -> tuple[Value, Value]:
        """The first iteration behind the blocks, and how many there are from there on."""
        builder, values, op = self._sweep.builder, self._sweep.values, self._op
        first = builder.binary("mul", values[op, "blocks"], values[op, "length"])
        return first, builder.binary("sub", values[op, "count"], first)

    # -- going back --------------------------------------------------------------------------------

    def reverse(self, iterations: Iterations, adjoints: list[Value]) -> list[Value]:
        """Reverse the iterations behind the blocks, then run and reverse each block."""
        sweep, op, builder = self._sweep, self._op, self._sweep.builder
        zero, length = builder.constant(0, i64), sweep.values[op, "length"]
        after, left = self._after_blocks()
        rest = sweep.records.rest_of(op), sweep.values[op, "rest"]
        with iterations.once_more():
            adjoints = iterations.reverse(after, left, [], adjoints, rest)
        agree_on_blocks(sweep, op)
        blocks = sweep.values[op, "blocks"]
        body = Block([Value(i64), *(Value(value.type) for value in adjoints)])
        with builder.into(body):
            step, *inner = body.args
            self._rerun_block(builder.binary("sub", blocks, step))
            first = builder.binary("mul", builder.counted_down(blocks, step), length)
            builder.yield_(iterations.reverse(first, length, [], inner))
        return builder.for_(zero, blocks, adjoints, body).results

    def _rerun_block(self, following: Value) -> None:
        """Have the records of the block before one there again, and its own checkpoints."""
        sweep, op, builder = self._sweep, self._op, self._sweep.builder
        start, inits = self._checkpoints.before(following)
        body = Block([Value(i64), *(Value(value.type) for value in inits)])
        with builder.into(body):
            number, *carried = body.args
            first = builder.binary("mul", number, sweep.values[op, "length"])
            carried = at_iteration(sweep, op, first, carried)
            self._checkpoints.push(number, start, carried)
            builder.yield_(self._run_block(first, carried, sweep.records.of(op)))
        builder.for_(start, following, inits, body)

    # -- what may be stored, and how far it reaches ------------------------------------------------

    def facts_if_stored(self, count: Value, stack: Stack) -> dict[str, Value]:
        """All iterations are one block then."""
        return self._uneven.facts_if_stored(count, stack)

    def furthest_end(self, start: Value, count: Value, stored: Value | None) -> Value:
        sweep, op, builder = self._sweep, self._op, self._sweep.builder
        end = self._uneven.furthest_end(start, count, stored)
        if isinstance(op, ops.While):
            return end
        most = builder.constant(sweep.plan.local[op] - 1, i64)
        rest = sweep.records.rest_of(op)
        return sweep.records.end(rest, end, builder.binary("min", count, most))

    def ends_unless_stored(
        self, ends: dict[Operation, Value], stored: Value
    ) -> dict[Operation, Value]:
        return self._uneven.ends_unless_stored(ends, stored)
