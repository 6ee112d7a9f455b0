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
from octants.autodiff.emit.primal_emitter import PrimalEmitter
from octants.autodiff.emit.recording_strategy import Iterations, Strategy
from octants.autodiff.emit.records import RecordStack
from octants.autodiff.emit.stored_loops import StoredLoops
from octants.ir import ops
from octants.ir.core import Block, Record, Value
from octants.types.scalars import i64


class LoopInFixedLengthBlocks(Strategy):
    """A loop in blocks of one length, and iterations behind the last block."""

    def __init__(
        self, emitter: PrimalEmitter, stored_loops: StoredLoops, op: ops.Loop, capacity: Capacity
    ) -> None:
        self._emitter = emitter
        self._op = op
        self._capacity = capacity
        self._checkpoints = Checkpoints(emitter, op, capacity)
        self._uneven = LoopInBlocks(emitter, stored_loops, op, capacity)

    # -- recording ---------------------------------------------------------------------------------

    def record(self, stack: RecordStack) -> None:
        emitter, op = self._emitter, self._op
        if isinstance(op, ops.For):
            lower, upper, *inits = emitter.values.mapped(op.operands)
            self._record_for(op, emitter.count(op, lower, upper), inits, stack)
            return
        assert isinstance(op, ops.While)
        base, remainder = stack.position, emitter.records.remainder_of(op)

        def iteration(number: Value, carried: list[Value], _: list[Value]) -> list[Value]:
            emitter.records.push(remainder, base, number, carried)
            emitter.emit_block(op.body)
            return []

        self._uneven.record_while(op, iteration, stack)
        length = self._capacity.local
        blocks = local_record_blocks.blocks_of(emitter.builder, emitter.values[op, "count"], length)
        emitter.values.note(
            op, blocks=emitter.builder.longest(blocks), remainder_base=emitter.values[op, "base"]
        )

    def _record_for(
        self, op: ops.For, count: Value, inits: list[Value], stack: RecordStack
    ) -> None:
        emitter, builder, base = self._emitter, self._emitter.builder, stack.position
        zero = builder.constant(0, i64)
        split = checkpoints.split(
            builder, builder.longest(count), self._capacity, fixed_length=True
        )
        emitter.values.note(
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
        emitter.values.note(op, blocks=split.count, end=stack.position)
        emitter.values.bind_all(op.results, self._record_remainder(op, carried))

    def _run_block(self, first: Value, carried: list[Value], record: Record | None) -> list[Value]:
        """Run the iterations of a block, and record them if there is a record."""
        emitter, op, builder = self._emitter, self._op, self._emitter.builder
        body = Block([Value(i64), *(Value(value.type) for value in carried)])
        with builder.into(body):
            number, *args = body.args
            emitter.values.bind_all(op.carried, args)
            if isinstance(op, ops.For):
                now = counter(emitter, op, builder.binary("add", first, number))
                emitter.values.bind(op.body.args[0], now)
            if record is not None:
                emitter.records.push(record, emitter.values[op, "base"], number, args)
            emitter.emit_block(op.body)
            builder.yield_(emitter.values.mapped(op.body.yielded))
        length = emitter.values[op, "length"]
        return builder.for_(builder.constant(0, i64), length, carried, body).results

    def _record_remainder(self, op: ops.For, carried: list[Value]) -> list[Value]:
        """Run and record the iterations that are in no block."""
        emitter, builder, base = (
            self._emitter,
            self._emitter.builder,
            self._emitter.values[op, "end"],
        )
        remainder = emitter.records.remainder_of(op)
        first, left = self._after_blocks()
        emitter.values.note(op, remainder_base=base, remainder=left)
        start = counter(emitter, op, first)
        stop = builder.binary("add", start, builder.cast(left, start.type))
        body = Block([Value(arg.type, arg.name) for arg in op.body.args])
        with emitter.into(body, op.body.args):
            now, begin = builder.cast(body.args[0], i64), builder.cast(start, i64)
            number = builder.binary("sub", now, begin)
            emitter.records.push(remainder, base, number, body.args[1:])
            emitter.emit_block(op.body)
            builder.yield_(emitter.values.mapped(op.body.yielded))
        return builder.for_(start, stop, carried, body).results

    def _after_blocks(self) -> tuple[Value, Value]:
        """The first iteration behind the blocks, and how many there are from there on."""
        builder, values, op = self._emitter.builder, self._emitter.values, self._op
        first = builder.binary("mul", values[op, "blocks"], values[op, "length"])
        return first, builder.binary("sub", values[op, "count"], first)

    # -- the backward sweep ------------------------------------------------------------------------

    def reverse(self, iterations: Iterations, adjoints: list[Value]) -> list[Value]:
        """Reverse the iterations behind the blocks, then run and reverse each block."""
        emitter, op, builder = self._emitter, self._op, self._emitter.builder
        zero, length = builder.constant(0, i64), emitter.values[op, "length"]
        after, left = self._after_blocks()
        remainder = emitter.records.remainder_of(op), emitter.values[op, "remainder_base"]
        with iterations.in_separate_code():
            adjoints = iterations.reverse(after, left, [], adjoints, remainder)
        agree_on_blocks(emitter, op)
        blocks = emitter.values[op, "blocks"]
        body = Block([Value(i64), *(Value(value.type) for value in adjoints)])
        with builder.into(body):
            step, *inner = body.args
            self._rerun_block(builder.binary("sub", blocks, step))
            first = builder.binary("mul", builder.counted_down(blocks, step), length)
            builder.yield_(iterations.reverse(first, length, [], inner))
        return builder.for_(zero, blocks, adjoints, body).results

    def _rerun_block(self, following: Value) -> None:
        """Record the block before ``following`` again, and the checkpoints of its own."""
        emitter, op, builder = self._emitter, self._op, self._emitter.builder
        start, inits = self._checkpoints.before(following)
        body = Block([Value(i64), *(Value(value.type) for value in inits)])
        with builder.into(body):
            number, *carried = body.args
            first = builder.binary("mul", number, emitter.values[op, "length"])
            carried = at_iteration(emitter, op, first, carried)
            self._checkpoints.push(number, start, carried)
            builder.yield_(self._run_block(first, carried, emitter.records.of(op)))
        builder.for_(start, following, inits, body)

    def furthest_end(self, start: Value, count: Value, stored: Value | None) -> Value:
        return self._uneven.furthest_end(start, count, stored)
