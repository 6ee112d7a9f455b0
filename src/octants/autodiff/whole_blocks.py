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
from octants.autodiff.nests import Loop
from octants.autodiff.recording import Recorder
from octants.autodiff.replay import Turn
from octants.ir import ops
from octants.ir.core import REST, Block, Operation, Record, Value
from octants.types.scalars import i64


class WholeBlocks(Recorder):
    """A recorder of such loops, too.

    What is known of them more: where the record of the iterations that are left begins, "rest", and
    how many there are, "left".
    """

    def _record_for_in_blocks(self, op: ops.For, count: Value, inits: list[Value]) -> None:
        if not self.has_whole_blocks(op):
            super()._record_for_in_blocks(op, count, inits)
            return
        builder, base, zero = self.builder, self.stack, self.builder.constant(0, i64)
        split = checkpoints.split(builder, self._longest(count), self.rooms[op], whole=True)
        self._know(op, base=base, count=count, length=split.length, width=split.width, middle=base)
        body = Block([Value(i64), *(Value(value.type) for value in inits)])
        with builder.into(body):
            number, *carried = body.args
            self._push_checkpoint(op, number, zero, carried)
            first = builder.binary("mul", number, split.length)
            builder.yield_(self._whole_block(op, first, carried, None))
        carried = builder.for_(zero, split.count, inits, body).results
        self._end_blocks(op, base, split.count, split.places)
        self._bind_all(op.results, self._record_rest(op, carried))

    def _record_while_in_blocks(self, op: ops.While) -> None:
        super()._record_while_in_blocks(op)
        if self.has_whole_blocks(op):
            blocks = checkpoints.whole_blocks(
                self.builder, self.values[op, "count"], self.rooms[op]
            )
            self._know(op, blocks=self._longest(blocks), rest=self.values[op, "base"])

    def _recorded_turn(self, op: ops.While, base: Value) -> Turn:
        if not self.has_whole_blocks(op):
            return super()._recorded_turn(op, base)

        def turn(number: Value, carried: list[Value], _: list[Value]) -> list[Value]:
            self.builder.append(ops.RecordPush(self.rest(op), base, number, carried))
            self.plain(op.body)
            return []

        return turn

    def has_whole_blocks(self, op: Operation) -> bool:
        """Whether a loop has blocks, all of one length."""
        return op in self.rooms and op in self.plan.whole

    def _whole_block(
        self, op: Loop, first: Value, carried: list[Value], record: Record | None
    ) -> list[Value]:
        """Run as many iterations as a block has, and record them; what is carried on."""
        builder, zero = self.builder, self.builder.constant(0, i64)
        body = Block([Value(i64), *(Value(value.type) for value in carried)])
        with builder.into(body):
            turn, *args = body.args
            self._bind_all(op.body.args[len(op.body.args) - len(args) :], args)
            if isinstance(op, ops.For):
                self.bind(op.body.args[0], self.counter(op, builder.binary("add", first, turn)))
            if record is not None:
                builder.append(ops.RecordPush(record, self.values[op, "base"], turn, args))
            self.plain(op.body)
            builder.yield_(self._mapped(op.body.yielded))
        return builder.for_(zero, self.values[op, "length"], carried, body).results

    def run_block(
        self, op: Loop, first: Value, size: Value, carried: list[Value]
    ) -> tuple[list[Value], list[Value]]:
        if not self.has_whole_blocks(op):
            return super().run_block(op, first, size, carried)
        return self._whole_block(op, first, carried, self._record(op)), []

    def _record_rest(self, op: ops.For, carried: list[Value]) -> list[Value]:
        """Run the iterations that are in no block, and record each on the stack."""
        builder, base, rest = self.builder, self.stack, self.rest(op)
        first, left = self.after_blocks(op)
        end = self._end(rest, base, left)
        self._know(op, rest=base, left=left, end=end)
        start = self.counter(op, first)
        stop = builder.binary("add", start, builder.cast(left, start.type))
        body = Block([Value(arg.type, arg.name) for arg in op.body.args])
        with self._into(body, op.body.args):
            turn = builder.binary("sub", builder.cast(body.args[0], i64), builder.cast(start, i64))
            builder.append(ops.RecordPush(rest, base, turn, body.args[1:]))
            self.plain(op.body)
            builder.yield_(self._mapped(op.body.yielded))
        self.stack = end
        return builder.for_(start, stop, carried, body).results

    def after_blocks(self, op: Loop) -> tuple[Value, Value]:
        """The first iteration behind the blocks, and how many there are from there on."""
        builder, count = self.builder, self.values[op, "count"]
        first = builder.binary("mul", self.values[op, "blocks"], self.values[op, "length"])
        return first, builder.binary("sub", count, first)

    def rest(self, op: Loop) -> Record:
        """The record of the iterations that are in no block."""
        if op not in self.rests:
            local = 0 if isinstance(op, ops.For) else self.plan.local[op]
            self.rests[op] = Record(REST, self._slots(op), op.location, 0, local)
        return self.rests[op]

    def end_of(self, op: Loop, start: Value, count: Value, stored: Value | None) -> Value:
        end = super().end_of(op, start, count, stored)
        if not self.has_whole_blocks(op) or isinstance(op, ops.While):
            return end
        most = self.builder.constant(self.plan.local[op] - 1, i64)
        return self._end(self.rest(op), end, self.builder.binary("min", count, most))
