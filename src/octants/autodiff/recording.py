"""Emits the primal computation with records of its loops, from which they can be reversed.

A loop with a room (see `checkpoints`) runs in blocks, each of which pushes to the same place, so
that in the end the last block's records are there::

    %length, %blocks = ...
    for(0, %blocks, %inits) { (%k, %carried):
      if(%k > 0) { record_push<#checkpoint>(%middle, %place, %carried) }
      for(%first, %last, %carried) { (%i, %carried):
        record_push<#record>(%base, %i - %first, %carried)
        ...
      }
    }

The records of a block begin at `base`, the checkpoints at `middle`, and the stack goes on at `end`.
Of the loops in there, which are recorded later, the first sweep finds out how far they will reach,
and has room made for them: what comes later needs no more memory (see `reach`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from octants.autodiff import checkpoints, overflow
from octants.autodiff.checkpoints import Room
from octants.autodiff.hazards import Log
from octants.autodiff.inductions import Steps, advanced, inductions
from octants.autodiff.reach import Reach
from octants.autodiff.replay import EntryBuilder, Flag, Replayer
from octants.ir import ops
from octants.ir.core import CHECKPOINT, Array, Block, Operation, Record, Value
from octants.types.scalars import i64


class Recorder(Replayer):
    """A replayer that records; `parts` has the loops that may be recorded in blocks.

    What `reverse` needs to know of a loop is in `values`, by (operation, what): its count of
    iterations, base and end on the stack, and where it has blocks their length, their number, the
    checkpoints on the first level, and the middle between the records and the checkpoints.
    """

    def __init__(
        self,
        builder: EntryBuilder,
        arrays: dict[Array, Array],
        flag: Flag,
        log: Log | None,
        capacity: int,
        parts: Mapping[Operation, int],
    ) -> None:
        super().__init__(builder, arrays, flag, log, capacity)
        self.parts = parts
        self.rooms: dict[Operation, Room] = {}
        self.checkpoints: dict[Operation, Record] = {}
        self._inductions: dict[Operation, dict[int, Steps]] = {}

    def find_rooms(self, body: Block) -> None:
        """Let the loops of a body that may have blocks know their room on the tape from here on."""
        for op in body.walk():
            if isinstance(op, (ops.For, ops.While)) and op in self.parts:
                records = self._record(op), self._checkpoint(op)
                self.rooms[op] = Room.of(self.builder, *records, self.parts[op], self.stack)

    def record(self, op: Operation) -> None:
        self.builder.location = op.location
        is_first = self.checks_plain and isinstance(op, (ops.For, ops.While))
        if is_first:
            self.reach = Reach(self.builder.constant(0, i64))
        _RECORD[type(op)](self, op)
        if is_first:
            self._make_room(self.values[op, "end"])

    def _make_room(self, start: Value) -> None:
        """Make room for what will be recorded from a position on."""
        assert self.reach is not None
        for op, end in self.reach.ends.items():
            far = self.builder.binary("add", start, end)
            self.builder.append(ops.RecordReserve(self.records[op], far))
        self.reach = None

    def end_of(self, op: ops.For | ops.While, start: Value, count: Value) -> Value:
        """At most there a record ends that begins at a position, of so many iterations."""
        builder, record = self.builder, self._record(op)
        if op not in self.rooms:
            return builder.early(lambda: self._end(record, start, count), start, count)
        room = self.rooms[op]
        one_more = builder.binary("add", room.whole, builder.constant(1, i64))
        end = self._end(record, start, builder.binary("min", count, one_more))
        most, none = builder.constant(checkpoints.MOST_LEVELS, i64), builder.constant(0, i64)
        is_long = builder.compare("gt", count, room.whole)
        return self._end(self._checkpoint(op), end, builder.select(is_long, most, none))

    # -- loops -------------------------------------------------------------------------------------

    def _record_for(self, op: ops.For) -> None:
        lower, upper, *inits = self._mapped(op.operands)
        count = overflow.trips(self.builder, lower, upper)
        overflow.check(self.builder, self._record(op), count)
        if op in self.rooms:
            self._record_for_in_blocks(op, count, inits)
            return
        base = self.stack
        self._bind_all(op.results, self._push_turns(op, base, lower, upper, inits))
        self.stack = self._end(self._record(op), base, count)
        self._know(op, base=base, count=count, end=self.stack)

    def _push_turns(
        self, op: ops.For, base: Value, start: Value, stop: Value, carried: list[Value]
    ) -> list[Value]:
        """Run iterations from one value of the counter to another; the values carried on."""
        body = Block([Value(arg.type, arg.name) for arg in op.body.args])
        with self._into(body, op.body.args), self._reaching() as around:
            turn = overflow.distance(self.builder, start, body.args[0])
            self.builder.append(ops.RecordPush(self._record(op), base, turn, body.args[1:]))
            self.plain(op.body)
            far = self._reached(body)
            self.builder.yield_([*self._mapped(op.body.yielded), *far])
        inits = [*carried, *self._zeros(far)]
        results = self.builder.for_(start, stop, inits, body).results
        self._leave(around, results[len(carried) :])
        return results[: len(carried)]

    def _record_while(self, op: ops.While) -> None:
        if op in self.rooms:
            self._record_while_in_blocks(op)
            return
        base = self.stack
        count = self._counted_while(op, self._pusher(op, base))
        overflow.check(self.builder, self._record(op), count)
        self.stack = self._end(self._record(op), base, count)
        self._know(op, base=base, count=count, end=self.stack)

    def _pusher(self, op: ops.While, base: Value) -> Callable[[Value, list[Value]], None]:
        def push(turn: Value, carried: list[Value]) -> None:
            self.builder.append(ops.RecordPush(self._record(op), base, turn, carried))

        return push

    def _end(self, record: Record, base: Value, count: Value) -> Value:
        end = ops.RecordEnd(record, base, count, results=[Value(i64)])
        return self.builder.append(end).result

    def _know(self, op: Operation, **facts: Value) -> None:
        for what, value in facts.items():
            self.bind((op, what), value)

    # -- loops in blocks ---------------------------------------------------------------------------

    def _record_for_in_blocks(self, op: ops.For, count: Value, inits: list[Value]) -> None:
        builder, base = self.builder, self.stack
        split = checkpoints.split(builder, count, self.rooms[op])
        length, blocks, zero = split.length, split.count, builder.constant(0, i64)
        middle = self._end(self._record(op), base, length)
        self._know(op, base=base, count=count, length=length, width=split.width, middle=middle)
        body = Block([Value(i64), Value(i64), *(Value(value.type) for value in inits)])
        with builder.into(body), self._reaching() as around:
            number, first, *carried = body.args
            self._push_checkpoint(op, number, zero, carried)
            following = builder.binary("min", builder.binary("add", first, length), count)
            size = builder.binary("sub", following, first)
            results = self.run_block(op, first, size, carried)
            far = self._reached(body)
            builder.yield_([following, *results, *far])
        inits = [zero, *inits, *self._zeros(far)]
        _, *results = builder.for_(zero, blocks, inits, body).results
        self._leave(around, results[len(op.results) :])
        self._bind_all(op.results, results)
        self._end_blocks(op, middle, blocks)

    def _record_while_in_blocks(self, op: ops.While) -> None:
        builder, base = self.builder, self.stack
        length, width = checkpoints.unknown(builder, self.rooms[op])
        full = self._end(self._record(op), base, length)
        self._know(op, base=base, length=length, width=width, middle=full)
        zero, one = builder.constant(0, i64), builder.constant(1, i64)
        inits = [*self._mapped(op.inits), zero, zero]
        condition = self._condition(op, [Value(i64), Value(i64)])
        body = Block([Value(value.type) for value in inits])
        with builder.into(body), self._reaching() as around:
            *carried, count, number = body.args
            self._push_checkpoint(op, number, zero, carried)
            turns = self._counted_while(op, self._pusher(op, base), carried, length)
            count = builder.binary("add", count, turns)
            following = builder.binary("add", number, one)
            far = self._reached(condition, body)
            builder.yield_([*self._mapped(op.results), count, following, *far])
        results = builder.while_([*inits, *self._zeros(far)], condition, body).results
        self._leave(around, results[len(inits) :])
        *carried, count, blocks = results[: len(inits)]
        self._bind_all(op.results, carried)
        middle = self._end(self._record(op), base, builder.binary("min", count, length))
        self._know(op, count=count)
        self._end_blocks(op, middle, blocks)

    def _checkpoint(self, op: ops.For | ops.While) -> Record:
        """The record of the checkpoints of a loop."""
        if op not in self.checkpoints:
            types = [value.type for value in op.inits]
            self.checkpoints[op] = Record(CHECKPOINT, types, op.location)
        return self.checkpoints[op]

    def _push_checkpoint(
        self, op: ops.For | ops.While, number: Value, start: Value, carried: list[Value]
    ) -> None:
        """Keep what is carried into a block, unless that is the one that is started from."""
        builder = self.builder
        then, orelse = Block(), Block()
        with builder.into(then):
            place, _ = checkpoints.place(builder, number, self.values[op, "width"])
            middle = self.values[op, "middle"]
            builder.append(ops.RecordPush(self._checkpoint(op), middle, place, carried))
            builder.yield_()
        with builder.into(orelse):
            builder.yield_()
        builder.if_(builder.compare("gt", number, start), then, orelse)

    def _end_blocks(self, op: ops.For | ops.While, middle: Value, blocks: Value) -> None:
        places = checkpoints.places(self.builder, blocks, self.values[op, "width"])
        self.stack = self._end(self._checkpoint(op), middle, places)
        self._know(op, blocks=blocks, end=self.stack)

    def run_block(
        self, op: ops.For | ops.While, first: Value, size: Value, carried: list[Value]
    ) -> list[Value]:
        """Run so many iterations, which the loop surely makes; the values carried on."""
        builder, base = self.builder, self.values[op, "base"]
        if isinstance(op, ops.For):
            start = self.counter(op, first)
            stop = builder.binary("add", start, builder.cast(size, start.type))
            return self._push_turns(op, base, start, stop, carried)
        body = Block([Value(i64), *(Value(value.type) for value in carried)])
        with builder.into(body):
            self._bind_all(op.body.args, body.args[1:])
            self._pusher(op, base)(body.args[0], body.args[1:])
            self.plain(op.body)
            builder.yield_(self._mapped(op.body.yielded))
        return builder.for_(builder.constant(0, i64), size, carried, body).results

    def rerun_block(self, op: ops.For | ops.While, following: Value) -> None:
        """Have the records of the block before one on the stack again, and its own checkpoints.

        The blocks from the nearest checkpoint on are run.
        """
        builder, size = self.builder, self.values[op, "length"]
        _, span = checkpoints.place(builder, following, self.values[op, "width"])
        start = builder.binary("sub", following, span)
        inits = self._from_checkpoint(op, start)
        body = Block([Value(i64), *(Value(value.type) for value in inits)])
        with builder.into(body):
            number, *carried = body.args
            first = builder.binary("mul", number, size)
            carried = self.at_iteration(op, first, carried)
            self._push_checkpoint(op, number, start, carried)
            builder.yield_(self.run_block(op, first, size, carried))
        builder.for_(start, following, inits, body)

    def _from_checkpoint(self, op: ops.For | ops.While, number: Value) -> list[Value]:
        """What a loop carries into a block."""
        builder = self.builder
        later, start = Block(), Block()
        with builder.into(later):
            results = [Value(value.type) for value in op.inits]
            place, _ = checkpoints.place(builder, number, self.values[op, "width"])
            middle = self.values[op, "middle"]
            pop = ops.RecordPop(self._checkpoint(op), middle, place, results=results)
            builder.append(pop)
            builder.yield_(results)
        with builder.into(start):
            builder.yield_(self._mapped(op.inits))
        is_later = builder.compare("gt", number, builder.constant(0, i64))
        return builder.if_(is_later, later, start).results

    def at_iteration(
        self, op: ops.For | ops.While, iteration: Value, carried: list[Value]
    ) -> list[Value]:
        """What a loop carries into an iteration; of what it gives, only what must be recorded."""
        if op not in self._inductions:
            self._inductions[op] = inductions(op)
        found = list(carried)
        for k, steps in self._inductions[op].items():
            start = self.values[op.inits[k]]
            mapped = [(fn, self.values[step]) for fn, step in steps]
            found[k] = advanced(self.builder, start, iteration, mapped)
        return found

    def counter(self, op: ops.For, iteration: Value) -> Value:
        """The counter of a loop in an iteration."""
        lower = self.values[op.lower]
        return self.builder.binary("add", lower, self.builder.cast(iteration, lower.type))

    # -- branches ----------------------------------------------------------------------------------

    def _record_if(self, op: ops.If) -> None:
        """Both branches hand out all that they define, so that nothing need be computed twice."""
        start = self.stack
        then, orelse = [self._branch(block, start) for block in (op.then, op.orelse)]
        exports = {**then.exports, **orelse.exports}
        for branch in (then, orelse):
            given = [
                branch.exports.get(key) or self.builder.constant(0, value.type)
                for key, value in exports.items()
            ]
            with self.builder.into(branch.block):
                self.builder.yield_([*branch.results, *given, branch.end])
        new = self.builder.if_(self.values[op.condition], then.block, orelse.block)
        keys: list[Hashable] = [*op.results, *exports]
        for key, value in zip(keys, new.results[:-1], strict=True):
            self.bind(key, value)
        self.stack = new.results[-1]

    def _branch(self, primal: Block, start: Value) -> _Branch:
        """Emit one side of an if that is recorded, without its yield."""
        block, mark = Block(), len(self.journal)
        self.stack = start
        with self.builder.into(block):
            self.recorded(primal)
        own = {value for op in block.ops for value in op.results}
        bound = [key for key in self.journal[mark:] if self.values[key] in own]
        exports = {key: self.values[key] for key in bound}
        return _Branch(block, self._mapped(primal.yielded), exports, self.stack)


@dataclass(eq=False, slots=True)
class _Branch:
    """A recorded side of an if: its results, what else it defines, where the stack ends."""

    block: Block
    results: list[Value]
    exports: dict[Hashable, Value]
    end: Value


_RECORD: dict[type[Operation], Callable[[Recorder, Any], None]] = {
    ops.For: Recorder._record_for,
    ops.While: Recorder._record_while,
    ops.If: Recorder._record_if,
}
