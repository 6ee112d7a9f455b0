"""Emits the primal computation with records of its loops, from which they can be reversed.

A loop with a room (see `checkpoints`) runs in blocks, each of which pushes to the same place, so
that in the end the last block's records are there::

    %length, %blocks = ...
    for(0, %blocks, %inits) { (%k, %carried):
      if(%k > 0) { record_push<#checkpoint>(%middle, %place, %carried) }
      for(%k * %length, %last, %carried) { (%i, %carried):
        record_push<#record>(%base, %i - %k * %length, %carried)
        ...
      }
    }

Work items that run in step have the same blocks, those of the one with most iterations; one that
has less does nothing in the last blocks. So they agree on where records stand. The records of a
block begin at `base`, the checkpoints at `middle`, and the stack goes on at `end`. Of the loops in
there, which are recorded later, the first sweep finds out how far they will reach, and has room
made for them: what comes later needs no more memory (see `reach`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from octants.autodiff import checkpoints, overflow
from octants.autodiff.branches import Brancher
from octants.autodiff.checkpoints import Plan, Room
from octants.autodiff.hazards import Log
from octants.autodiff.inductions import Steps, advanced, inductions
from octants.autodiff.nests import Loop
from octants.autodiff.reach import Reach
from octants.autodiff.replay import EntryBuilder, Flag, Turn
from octants.ir import ops
from octants.ir.core import BYTES, CHECKPOINT, Array, Block, Operation, Record, Value
from octants.types.scalars import i64, u8


class Recorder(Brancher):
    """A replayer that records, as a plan says.

    What `reverse` needs to know of a loop is in `values`, by (operation, what): its count of
    iterations, base and end on the stack, and where it has blocks their length, their number, the
    checkpoints on the first level, and the middle between the records and the checkpoints; where it
    has frames the top of the last one and of those that were kept.
    """

    def __init__(
        self,
        builder: EntryBuilder,
        arrays: dict[Array, Array],
        flag: Flag,
        log: Log | None,
        capacity: int,
        plan: Plan,
    ) -> None:
        super().__init__(builder, arrays, flag, log, capacity, plan.nests)
        self.plan = plan
        self.rooms: dict[Operation, Room] = {}
        self.checkpoints: dict[Operation, Record] = {}
        self.rests: dict[Operation, Record] = {}
        self._inductions: dict[Operation, dict[int, Steps]] = {}

    def find_rooms(self, body: Block) -> None:
        """Let loops know their room on the tape from here on: for blocks, and for what they store.

        They are those of a body that may have blocks, and those with which others may be stored.
        """
        for op in body.walk():
            if isinstance(op, (ops.For, ops.While)) and op in self.plan.in_blocks:
                records = self._record(op), self._checkpoint(op)
                self.rooms[op] = Room.of(self.builder, *records, self.plan, self.stack)
        outer = dict.fromkeys(self.nests.around.values())
        if outer:
            self.bytes = dict.fromkeys(outer, self._bytes_to_store())

    def _bytes_to_store(self) -> Value:
        """The bytes for all that is stored with one loop."""
        builder, record = self.builder, Record(BYTES, [u8])
        room = ops.RecordRoom(record, self.plan.parts, self.stack, results=[Value(i64)])
        count = builder.append(room).result
        nbytes = self._end(record, builder.constant(0, i64), count)
        if self.nests.most:
            nbytes = builder.binary("min", nbytes, builder.constant(self.nests.most, i64))
        return nbytes

    def record(self, op: Operation) -> None:
        self.builder.location = op.location
        if op in self.nests.around:
            self._record_unless_kept(op)
            return
        is_first = self.checks_plain and isinstance(op, (ops.For, ops.While))
        if is_first:
            self.reach = Reach(self.builder.constant(0, i64))
        _RECORD[type(op)](self, op)
        if is_first:
            self._make_room(op, self.values[op, "end"])

    def _make_room(self, op: Operation, start: Value) -> None:
        """Make room for what will be recorded from a position on."""
        assert self.reach is not None
        builder = self.builder
        for each, end in self.reach.ends.items():
            far = builder.binary("add", start, end)
            if op not in self.rooms and self.nests.is_stored_in(each, op):
                top, kept = self.values[op, "top"], self.values[op, "kept"]
                far = builder.select(builder.compare("le", top, kept), start, far)
            builder.append(ops.RecordReserve(self.records[each], far))
        self.reach = None

    def end_of(self, op: Loop, start: Value, count: Value, stored: Value | None) -> Value:
        """At most there a record ends that begins at a position, of so many iterations."""
        builder, record = self.builder, self._record(op)
        if stored is not None:
            start = builder.binary("add", start, builder.binary("min", stored, self.bytes[op]))
        if op not in self.rooms:
            return builder.early(lambda: self._end(record, start, count), start, count)
        ends = partial(self._end, record), partial(self._end, self._checkpoint(op))
        most_stored = None if stored is None else self.bytes[op]
        return self.rooms[op].furthest(builder, start, self._longest(count), ends, most_stored)

    def without_stored(
        self, op: Loop, ends: dict[Operation, Value], stored: Value
    ) -> dict[Operation, Value]:
        builder, found, none = self.builder, dict(ends), self.builder.constant(0, i64)
        if op in self.rooms:
            return found
        fits = builder.compare("le", stored, self.bytes[op])
        for each, end in ends.items():
            if self.nests.is_stored_in(each, op):
                found[each] = builder.select(fits, none, end)
        return found

    # -- loops -------------------------------------------------------------------------------------

    def _record_for(self, op: ops.For) -> None:
        lower, upper, *inits = self._mapped(op.operands)
        count = overflow.trips(self.builder, lower, upper)
        overflow.check(self.builder, self._record(op), count)
        if op in self.rooms:
            self._record_for_in_blocks(op, count, inits)
            return
        base = self.stack
        results, frames = self._push_turns(op, base, lower, upper, inits)
        self._bind_all(op.results, results)
        self._know_end(op, base, count, frames)

    def _push_turns(
        self, op: ops.For, base: Value, start: Value, stop: Value, carried: list[Value]
    ) -> tuple[list[Value], list[Value]]:
        """Run iterations from one value of the counter to another; what is carried on."""
        inits, own = [*carried, *self.begin_frames(op, base)], 1 + len(carried)
        body = Block([Value(arg.type, arg.name) for arg in op.body.args])
        body.args += [Value(value.type) for value in inits[len(carried) :]]
        with self._into(body, op.body.args), self._reaching() as around:
            turn = overflow.distance(self.builder, start, body.args[0])
            later = self.record_turn(op, base, turn, body.args[1:own], body.args[own:])
            far = self._reached(None, body)
            self.builder.yield_([*self._mapped(op.body.yielded), *later, *far])
        results = self.builder.for_(start, stop, [*inits, *self._zeros(far)], body).results
        self._leave(around, results[len(inits) :])
        return results[: len(carried)], results[len(carried) : len(inits)]

    def _record_while(self, op: ops.While) -> None:
        if op in self.rooms:
            self._record_while_in_blocks(op)
            return
        base = self.stack
        frames = self.begin_frames(op, base)
        count, frames = self._counted_while(op, self._recorded_turn(op, base), more=frames)
        overflow.check(self.builder, self._record(op), count)
        self._know_end(op, base, count, frames)

    def _recorded_turn(self, op: ops.While, base: Value) -> Turn:
        return lambda turn, carried, frames: self.record_turn(op, base, turn, carried, frames)

    def _know_end(self, op: Loop, base: Value, count: Value, frames: list[Value]) -> None:
        self.stack = frames[0] if frames else self._end(self._record(op), base, count)
        self._know(op, base=base, count=count, end=self.stack)
        self._know_frames(op, frames)

    def _know_frames(self, op: Operation, frames: list[Value]) -> None:
        self._know(op, **dict(zip(("top", "kept"), frames, strict=False)))

    def _know(self, op: Operation, **facts: Value) -> None:
        for what, value in facts.items():
            self.bind((op, what), value)

    # -- loops that may have left their records ----------------------------------------------------

    def _record_unless_kept(self, op: Any) -> None:
        """Record a loop, or take what it handed out when its records were stored."""
        builder, frame, start = self.builder, self.frame, self.stack
        assert frame is not None
        zero, one = builder.constant(0, i64), builder.constant(1, i64)
        if isinstance(op, ops.For):
            count = overflow.trips(builder, *self._mapped([op.lower, op.upper]))
        else:
            count = frame.handed[op, "count"]
        facts = {"count": count, "base": zero, "end": start}
        if op in self.rooms:
            facts |= {"length": count, "blocks": one, "width": one, "middle": start}
        if self.may_store(op):
            facts |= {"top": zero, "kept": zero}
        kept, lost = Block(), Block()
        with builder.into(kept):
            builder.yield_([*(frame.handed[result] for result in op.results), *facts.values()])
        with builder.into(lost):
            _RECORD[type(op)](self, op)
            known = [self.values[op, what] for what in facts]
            builder.yield_([*self._mapped(op.results), *known])
        new = builder.if_(frame.kept, kept, lost)
        self._bind_all(op.results, new.results)
        self._know(op, **dict(zip(facts, new.results[len(op.results) :], strict=True)))
        if isinstance(op, ops.For):
            self._know(op, count=count)
        self.stack = self.values[op, "end"]
        self._pass_stored(op)

    def _pass_stored(self, op: Loop) -> None:
        """Note where in its frame the records of a loop are, if they were stored."""
        assert self.frame is not None
        self._know(op, place=self.frame.size)
        if self.may_store(op):
            size = self._longest(self.frame.handed[op, "size"])
            self._know(op, size=size)
            self.frame.size = self.builder.binary("add", self.frame.size, size)
        else:
            count = self.values[op, "count"]
            self.frame.size = self._end(self._record(op), self.frame.size, count)

    def find_stored(self, op: Loop) -> None:
        """Have what is known of a loop be right also if its records were stored."""
        assert self.frame is not None
        builder, kept = self.builder, self.frame.kept
        base = builder.binary("add", self.frame.start, self.values[op, "place"])
        facts = {"base": base}
        if self.may_store(op):
            top = builder.binary("add", base, self.values[op, "size"])
            facts = {"top": top, "kept": top}
        for what, value in facts.items():
            self._know(op, **{what: builder.select(kept, value, self.values[op, what])})

    # -- loops in blocks ---------------------------------------------------------------------------

    def _record_for_in_blocks(self, op: ops.For, count: Value, inits: list[Value]) -> None:
        builder, base, zero = self.builder, self.stack, self.builder.constant(0, i64)
        split = checkpoints.split(builder, self._longest(count), self.rooms[op])
        length, blocks = split.length, split.count
        middle = self._after_block(op, base, length)
        self._know(op, base=base, count=count, length=length, width=split.width, middle=middle)
        inits, own = [*inits, *self.begin_frames(op, base)], 1 + len(inits)
        body = Block([Value(i64), *(Value(value.type) for value in inits)])
        with builder.into(body), self._reaching() as around:
            number, *carried = body.args[:own]
            self._push_checkpoint(op, number, zero, carried)
            results, later = self.run_block(op, *self.block_at(op, number), carried)
            far = self._reached(None, body)
            builder.yield_([*results, *later, *far])
        results = builder.for_(zero, blocks, [*inits, *self._zeros(far)], body).results
        self._leave(around, results[len(inits) :])
        self._bind_all(op.results, results)
        self._know_frames(op, results[own - 1 : len(inits)])
        self._end_blocks(op, middle, blocks, split.places)

    def _record_while_in_blocks(self, op: ops.While) -> None:
        builder, base, own = self.builder, self.stack, len(op.inits)
        length, width = checkpoints.unknown(builder, self.rooms[op])
        full = self._after_block(op, base, length)
        self._know(op, base=base, length=length, width=width, middle=full)
        zero, one = builder.constant(0, i64), builder.constant(1, i64)
        frames = self.begin_frames(op, base)
        inits = [*self._mapped(op.inits), *frames, zero, zero]
        condition = self._condition(op, [Value(value.type) for value in inits[own:]])
        body = Block([Value(value.type) for value in inits])
        with builder.into(body), self._reaching() as around:
            carried, (count, number) = body.args[:own], body.args[-2:]
            self._push_checkpoint(op, number, zero, carried)
            turn = self._recorded_turn(op, base)
            turns, later = self._counted_while(op, turn, carried, length, frames)
            count = builder.binary("add", count, turns)
            following = builder.binary("add", number, one)
            far = self._reached(None, condition, body)
            builder.yield_([*self._mapped(op.results), *later, count, following, *far])
        results = builder.while_([*inits, *self._zeros(far)], condition, body).results
        self._leave(around, results[len(inits) :])
        self._bind_all(op.results, results)
        count, blocks = results[len(inits) - 2 : len(inits)]
        blocks = self._longest(blocks)
        self._know(op, count=count)
        self._know_frames(op, results[own : own + len(frames)])
        middle = self._after_block(op, base, builder.binary("min", count, length))
        places = checkpoints.places(builder, blocks, width, self.rooms[op])
        self._end_blocks(op, middle, blocks, places)

    def _after_block(self, op: Loop, base: Value, length: Value) -> Value:
        """Where the records of a block of so many iterations end, at most."""
        end = self._end(self._record(op), base, length)
        return self.builder.binary("add", end, self.bytes[op]) if self.may_store(op) else end

    def _longest(self, count: Value) -> Value:
        """The greatest count of the work items that run in step."""
        if count in self.builder.entry_values:
            return count
        return self.builder.append(ops.Longest(count, results=[Value(i64)])).result

    def agree_on_blocks(self, op: Loop) -> None:
        """Have work items in step know that what they know of the blocks of a loop is the same."""
        for what in ("length", "blocks", "width"):
            self._know(op, **{what: self._longest(self.values[op, what])})

    def block_at(self, op: Loop, number: Value) -> tuple[Value, Value]:
        """The first iteration of a block, and how many it has."""
        builder, length = self.builder, self.values[op, "length"]
        first = builder.binary("mul", number, length)
        rest = builder.binary("sub", self.values[op, "count"], first)
        rest = builder.binary("max", rest, builder.constant(0, i64))
        return first, builder.binary("min", rest, length)

    def _record(self, op: Loop) -> Record:
        record = super()._record(op)
        record.local, record.unrolled = self.plan.local.get(op, 0), op in self.plan.unrolled
        return record

    def _checkpoint(self, op: Loop) -> Record:
        """The record of the checkpoints of a loop."""
        if op not in self.checkpoints:
            types = [value.type for value in op.inits]
            self.checkpoints[op] = Record(CHECKPOINT, types, op.location)
        return self.checkpoints[op]

    def _push_checkpoint(self, op: Loop, number: Value, start: Value, carried: list[Value]) -> None:
        """Keep what is carried into a block, unless that is the one that is started from."""
        builder, push = self.builder, Block()
        with builder.into(push):
            place, _ = self._place(op, number)
            middle = self.values[op, "middle"]
            builder.append(ops.RecordPush(self._checkpoint(op), middle, place, carried))
        self._only_if(builder.compare("gt", number, start), push)

    def _end_blocks(self, op: Loop, middle: Value, blocks: Value, places: Value) -> None:
        """The stack goes on behind the checkpoints, or where there are none behind the frames."""
        builder = self.builder
        self.stack = self._end(self._checkpoint(op), middle, places)
        if self.may_store(op):
            is_several = builder.compare("gt", blocks, builder.constant(1, i64))
            self.stack = builder.select(is_several, self.stack, self.values[op, "top"])
        self._know(op, blocks=blocks, end=self.stack)

    def run_block(
        self, op: Loop, first: Value, size: Value, carried: list[Value]
    ) -> tuple[list[Value], list[Value]]:
        """Run so many iterations, which the loop makes; what is carried on."""
        builder, base = self.builder, self.values[op, "base"]
        if isinstance(op, ops.For):
            start = self.counter(op, first)
            stop = builder.binary("add", start, builder.cast(size, start.type))
            return self._push_turns(op, base, start, stop, carried)
        inits, own = [*carried, *self.begin_frames(op, base)], 1 + len(carried)
        body = Block([Value(i64), *(Value(value.type) for value in inits)])
        with builder.into(body):
            args = body.args[1:own]
            self._bind_all(op.body.args, args)
            later = self.record_turn(op, base, body.args[0], args, body.args[own:])
            builder.yield_([*self._mapped(op.body.yielded), *later])
        results = builder.for_(builder.constant(0, i64), size, inits, body).results
        return results[: len(carried)], results[len(carried) :]

    def rerun_block(self, op: Loop, following: Value) -> list[Value]:
        """Have the records of the block before one on the stack again, and its own checkpoints.

        The blocks from the nearest checkpoint on are run. Gives where the frames of the last end.
        """
        builder = self.builder
        _, span = self._place(op, following)
        start = builder.binary("sub", following, span)
        inits = self._from_checkpoint(op, start)
        own, frames = 1 + len(inits), self.begin_frames(op, self.values[op, "base"])
        inits = [*inits, *frames]
        body = Block([Value(i64), *(Value(value.type) for value in inits)])
        with builder.into(body):
            number, *carried = body.args[:own]
            first, size = self.block_at(op, number)
            carried = self.at_iteration(op, first, carried)
            self._push_checkpoint(op, number, start, carried)
            results, later = self.run_block(op, first, size, carried)
            builder.yield_([*results, *later])
        return builder.for_(start, following, inits, body).results[own - 1 :]

    def _place(self, op: Loop, number: Value) -> tuple[Value, Value]:
        """Where the checkpoint of a block stands, and the blocks to the one before it."""
        return checkpoints.place(self.builder, number, self.values[op, "width"], self.rooms[op])

    def _from_checkpoint(self, op: Loop, number: Value) -> list[Value]:
        """What a loop carries into a block."""
        builder = self.builder
        later, start = Block(), Block()
        with builder.into(later):
            results = [Value(value.type) for value in op.inits]
            place, _ = self._place(op, number)
            middle = self.values[op, "middle"]
            pop = ops.RecordPop(self._checkpoint(op), middle, place, results=results)
            builder.append(pop)
            builder.yield_(results)
        with builder.into(start):
            builder.yield_(self._mapped(op.inits))
        is_later = builder.compare("gt", number, builder.constant(0, i64))
        return builder.if_(is_later, later, start).results

    def at_iteration(self, op: Loop, iteration: Value, carried: list[Value]) -> list[Value]:
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


_RECORD: dict[type[Operation], Callable[[Recorder, Any], None]] = {
    ops.For: Recorder._record_for,
    ops.While: Recorder._record_while,
    ops.If: Recorder._record_if,
}
