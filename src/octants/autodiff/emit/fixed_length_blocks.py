"""Emits loops in blocks of one length, and records iterations behind the last block one by one.

If code generation unrolls a block, its records stay in registers; so each block must have the same
number of iterations. Other blocks are faster, too, if the first sweep leaves nothing but their
checkpoints::

    %blocks = %trips > 32 ? %trips // 16 : 0
    for(0, %blocks, %inits) { (%k, %carried):
      if(%k > 0) { record_push<#checkpoint>(%checkpoint_base, %slot, %carried) }
      for(0, 16, %carried) { (%i, %carried): ... }
    }
    for(%blocks * 16, %upper, %carried) { (%i, %carried):
      record_push<#rest>(%base, %i - %blocks * 16, %carried)
      ...
    }

Each block is run again before it is reversed; a loop that local memory can hold has no blocks. Such
loops are innermost, so that nothing else is recorded meanwhile. A `while` has no known number of
blocks until it has run: it records all iterations in local memory, where those behind the last
block remain.
"""

from __future__ import annotations

from octants.autodiff.emit import checkpoints, local_record_blocks
from octants.autodiff.emit.checkpoints import Capacity
from octants.autodiff.emit.loop_recording import (
    Checkpoints,
    LoopInBlocks,
    agree_on_blocks,
    at_iteration,
    counter,
)
from octants.autodiff.emit.primal_sweep import Sweep
from octants.autodiff.emit.recording_strategy import Iterations, Strategy
from octants.autodiff.emit.records import RecordStack
from octants.autodiff.emit.stored_loops import StoredLoops
from octants.ir import ops
from octants.ir.core import Block, Record, Value
from octants.types.scalars import i64


class LoopInFixedLengthBlocks(Strategy):
    """A loop in blocks of one length, and iterations behind the last block."""

    def __init__(self, sweep: Sweep, stores: StoredLoops, op: ops.Loop, capacity: Capacity) -> None:
        self._sweep = sweep
        self._op = op
        self._capacity = capacity
        self._checkpoints = Checkpoints(sweep, op, capacity)
        self._uneven = LoopInBlocks(sweep, stores, op, capacity)

    # -- recording ---------------------------------------------------------------------------------

    def record(self, stack: RecordStack) -> None:
        sweep, op = self._sweep, self._op
        if isinstance(op, ops.For):
            lower, upper, *inits = sweep.values.mapped(op.operands)
            self._record_for(op, sweep.count(op, lower, upper), inits, stack)
            return
        assert isinstance(op, ops.While)
        base, remainder = stack.position, sweep.records.remainder_of(op)

        def iteration(number: Value, carried: list[Value], _: list[Value]) -> list[Value]:
            sweep.records.push(remainder, base, number, carried)
            sweep.emit_block(op.body)
            return []

        self._uneven.record_while(op, iteration, stack)
        length = self._capacity.local
        blocks = local_record_blocks.blocks_of(sweep.builder, sweep.values[op, "count"], length)
        sweep.values.note(
            op, blocks=sweep.builder.longest(blocks), remainder_base=sweep.values[op, "base"]
        )

    def _record_for(
        self, op: ops.For, count: Value, inits: list[Value], stack: RecordStack
    ) -> None:
        sweep, builder, base = self._sweep, self._sweep.builder, stack.position
        zero = builder.constant(0, i64)
        split = checkpoints.split(
            builder, builder.longest(count), self._capacity, fixed_length=True
        )
        sweep.values.note(
            op, base=base, count=count, length=split.length, width=split.width, checkpoint_base=base
        )
        body = Block([Value(i64), *(Value(value.type) for value in inits)])
        with builder.into(body):
            number, *carried = body.args
            self._checkpoints.push(number, zero, carried)
            first = builder.binary("mul", number, split.length)
            builder.yield_(self._run_block(first, carried, None))
        carried = builder.for_(zero, split.count, inits, body).results
        stack.position = self._checkpoints.end(base, split.slots)
        sweep.values.note(op, blocks=split.count, end=stack.position)
        sweep.values.bind_all(op.results, self._record_remainder(op, carried))

    def _run_block(self, first: Value, carried: list[Value], record: Record | None) -> list[Value]:
        """Run the iterations of a block, and record them if there is a record."""
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

    def _record_remainder(self, op: ops.For, carried: list[Value]) -> list[Value]:
        """Run and record the iterations that are in no block."""
        sweep, builder, base = self._sweep, self._sweep.builder, self._sweep.values[op, "end"]
        remainder = sweep.records.remainder_of(op)
        first, left = self._after_blocks()
        sweep.values.note(op, remainder_base=base, remainder=left)
        start = counter(sweep, op, first)
        stop = builder.binary("add", start, builder.cast(left, start.type))
        body = Block([Value(arg.type, arg.name) for arg in op.body.args])
        with sweep.into(body, op.body.args):
            now, begin = builder.cast(body.args[0], i64), builder.cast(start, i64)
            number = builder.binary("sub", now, begin)
            sweep.records.push(remainder, base, number, body.args[1:])
            sweep.emit_block(op.body)
            builder.yield_(sweep.values.mapped(op.body.yielded))
        return builder.for_(start, stop, carried, body).results

    def _after_blocks(self) -> tuple[Value, Value]:
        """The first iteration behind the blocks, and how many there are from there on."""
        builder, values, op = self._sweep.builder, self._sweep.values, self._op
        first = builder.binary("mul", values[op, "blocks"], values[op, "length"])
        return first, builder.binary("sub", values[op, "count"], first)

    # -- the backward sweep ------------------------------------------------------------------------

    def reverse(self, iterations: Iterations, adjoints: list[Value]) -> list[Value]:
        """Reverse the iterations behind the blocks, then run and reverse each block."""
        sweep, op, builder = self._sweep, self._op, self._sweep.builder
        zero, length = builder.constant(0, i64), sweep.values[op, "length"]
        after, left = self._after_blocks()
        remainder = sweep.records.remainder_of(op), sweep.values[op, "remainder_base"]
        with iterations.in_separate_code():
            adjoints = iterations.reverse(after, left, [], adjoints, remainder)
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
        """Record the block before ``following`` again, and the checkpoints of its own."""
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

    def furthest_end(self, start: Value, count: Value, stored: Value | None) -> Value:
        return self._uneven.furthest_end(start, count, stored)
