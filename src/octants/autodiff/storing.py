"""Emits the iterations of a loop that is recorded; loops in it may leave their records, too.

A loop with others that are stored (see `nests`) has a *frame* on the stack for each iteration: the
records of the loops in it, one execution behind the other, and then its own record, which holds
what those loops handed out besides what it carries::

    for(%lower, %upper, %inits, %base, %base) { (%i, %carried, %top, %kept):
      for(...) { (%k, %inner):
        if(%fits) { record_push<#inner>(%top, %k, %inner) }
        ...
      }
      record_push<#outer>(%end - %number, %number, %carried, %results)
      ...
    }

Executions are stored until one does not fit. Frames from there on hold the record of the iteration
only. `kept` is where those end that hold all, `top` where the last one does. Inside an iteration
the stack is said to be beyond the limit from the first execution on that does not fit.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from octants.autodiff import overflow
from octants.autodiff.hazards import Log
from octants.autodiff.nests import Loop, Nests
from octants.autodiff.reach import Reach
from octants.autodiff.replay import EntryBuilder, Flag, Replayer
from octants.ir import ops
from octants.ir.core import Array, Block, Operation, Record, Value
from octants.lazy_dataclass import dataclass
from octants.types.scalars import DType, i64


@dataclass(slots=True)
class Frame:
    """The iteration that is reversed, of a loop with others that may be stored.

    `kept` says whether they are, and `handed` has what they handed out. `size` is how much of the
    stack those take that have been passed so far, from `start` on.
    """

    kept: Value
    handed: dict[Hashable, Value]
    size: Value
    start: Value


class Storer(Replayer):
    """A replayer that emits iterations with records, and those of the loops that are stored."""

    def __init__(
        self,
        builder: EntryBuilder,
        arrays: dict[Array, Array],
        flag: Flag,
        log: Log | None,
        capacity: int,
        nests: Nests,
    ) -> None:
        super().__init__(builder, arrays, flag, log, capacity)
        self.nests = nests
        self.frame: Frame | None = None
        self.cursor = self.stack  # where the stack is free in a sweep that stores
        self.limit = self.stack  # and what may not be passed there
        self.most = self.stack  # a number of records that surely passes it
        self.bytes: dict[Operation, Value] = {}  # for all that is stored with a loop

    def may_store(self, op: Operation | None) -> bool:
        return self.nests.has_frames(op)

    def begin_frames(self, op: Operation, base: Value) -> list[Value]:
        """What a loop carries besides its own values: where its frames end."""
        return [base, base] if self.may_store(op) else []

    def record_turn(
        self, op: Loop, base: Value, number: Value, args: list[Value], frames: list[Value]
    ) -> list[Value]:
        """Emit an iteration with its record, and those of the loops that are stored with it."""
        builder, record = self.builder, self._record(op)
        if not self.may_store(op):
            builder.append(ops.RecordPush(record, base, number, args))
            with self._within(op):
                self.plain(op.body)
            return []
        top, kept = frames
        one = builder.constant(1, i64)
        self.limit = builder.binary("add", self._end(record, base, number), self.bytes[op])
        self.most = builder.binary("add", self.bytes[op], one)
        beyond = builder.binary("add", self.limit, one)
        self.cursor = builder.select(builder.compare("le", top, kept), top, beyond)
        with self._within(op):
            self._stored(op.body)
        fits = builder.compare("le", self.cursor, self.limit)
        place = builder.select(fits, self.cursor, top)
        self._push_frame(op, place, number, args)
        end = self._end(record, place, builder.constant(1, i64))
        return [end, builder.select(fits, end, kept)]

    def _push_frame(self, op: Loop, place: Value, number: Value, args: list[Value]) -> None:
        values = [*args, *(self.values[key] for key in self.nests.handed(op.body))]
        record = self._record(op)
        base = self.base_of(record, place, number)
        self.builder.append(ops.RecordPush(record, base, number, values))

    def base_of(self, record: Record, place: Value, number: Value) -> Value:
        """From where the record of an iteration would be at its place if others were before it."""
        none = self.builder.constant(0, i64)
        return self._end(record, place, self.builder.binary("sub", none, number))

    def _end(self, record: Record, base: Value, count: Value) -> Value:
        end = ops.RecordEnd(record, base, count, results=[Value(i64)])
        return self.builder.append(end).result

    def _slots(self, op: Loop) -> list[DType]:
        """The types of what the record of a loop holds."""
        slots = super()._slots(op)
        if self.may_store(op):
            slots += self.nests.handed(op.body).values()
        return slots

    # -- what is stored in an iteration ------------------------------------------------------------

    def _stored(self, block: Block) -> None:
        """Emit the operations of a block, so that loops in it leave their records."""
        for op in block.ops[:-1]:
            self.builder.location = op.location
            if op in self.nests.around:
                self._store_loop(op)
            elif isinstance(op, ops.If) and self.nests.stored_in(Block([], [op])):
                self._store_if(op)
            else:
                self._emit(op, recorded=False)

    def _store_loop(self, op: Any) -> None:
        begin = self.cursor
        if isinstance(op, ops.For):
            end = self._store_for(op, begin)
        else:
            end = self._store_while(op, begin)
        if self.may_store(op):
            self.bind((op, "size"), self.builder.binary("sub", end, begin))
        self.cursor = end

    def _store_for(self, op: ops.For, begin: Value) -> Value:
        """The end of the records, which is beyond the limit if they do not fit."""
        builder = self.builder
        lower, upper, *inits = self._mapped(op.operands)
        count, frames = overflow.trips(builder, lower, upper), self._first_frame(op, begin)
        end = self._end(self._record(op), begin, builder.binary("min", count, self.most))
        fits = None if frames else builder.compare("le", end, self.limit)
        body, own = Block([Value(arg.type, arg.name) for arg in op.body.args]), len(op.body.args)
        body.args += [Value(i64) for _ in frames]
        with self._into(body, op.body.args), self._reaching() as around:
            number = overflow.distance(builder, lower, body.args[0])
            later = self._store_turn(op, begin, number, fits, body.args[1:own], body.args[own:])
            far = self._reached(op, body)
            builder.yield_([*self._mapped(op.body.yielded), *later, *far])
        inits = [*inits, *frames]
        new = builder.for_(lower, upper, [*inits, *self._zeros(far)], body)
        self._bind_copy(op, new)
        self._leave(around, new.results[len(inits) :], op, count)
        return new.results[len(inits) - 1] if frames else end

    def _first_frame(self, op: Operation, begin: Value) -> list[Value]:
        return [begin] if self.may_store(op) else []

    def _store_while(self, op: ops.While, begin: Value) -> Value:
        builder, record = self.builder, self._record(op)

        def turn(number: Value, args: list[Value], frames: list[Value]) -> list[Value]:
            one_more = builder.binary("add", number, builder.constant(1, i64))
            end = self._end(record, begin, one_more)
            fits = None if frames else builder.compare("le", end, self.limit)
            return self._store_turn(op, begin, number, fits, args, frames)

        more = self._first_frame(op, begin)
        count, frames = self._counted_while(op, turn, more=more, foreseen=True)
        self._note_copy(op, builder.block.ops[-1])
        self.bind((op, "count"), count)
        if frames:
            return frames[0]
        return self._end(record, begin, builder.binary("min", count, self.most))

    def _store_turn(
        self,
        op: Loop,
        base: Value,
        number: Value,
        fits: Value | None,
        args: list[Value],
        frames: list[Value],
    ) -> list[Value]:
        """Emit an iteration with its record, if that ``fits``, or as a frame."""
        builder = self.builder
        if fits is not None:
            push = Block([], [ops.RecordPush(self._record(op), base, number, args)])
            self._only_if(fits, push)
            with self._within(None):
                self.plain(op.body)
            return []
        (self.cursor,) = frames
        with self._within(None):
            self._stored(op.body)
        end = self._end(self._record(op), self.cursor, builder.constant(1, i64))
        push = Block()
        with builder.into(push):
            self._push_frame(op, self.cursor, number, args)
        self._only_if(builder.compare("le", end, self.limit), push)
        return [end]

    def _only_if(self, condition: Value, block: Block) -> None:
        """Emit an if with one side, which yields nothing yet."""
        orelse = Block()
        for side in (block, orelse):
            with self.builder.into(side):
                self.builder.yield_()
        self.builder.if_(condition, block, orelse)

    def _store_if(self, op: ops.If) -> None:
        """Both sides hand out what was stored in either."""
        keys = self.nests.handed(Block([], [op]))
        start, around, blocks, reaches = self.cursor, self.reach, [], []
        for branch in (op.then, op.orelse):
            block, self.cursor = Block(), start
            self.reach = around and Reach(around.position)
            with self.builder.into(block):
                self._stored(branch)
                given = self._given(keys, self.nests.handed(branch))
                self.builder.yield_([*self._mapped(branch.yielded), *given, self.cursor])
            blocks.append(block)
            reaches.append(self.reach)
        self.reach = around
        far = self._join_reach(blocks, reaches)
        new = self.builder.if_(self.values[op.condition], *blocks)
        known: list[Hashable] = [*op.results, *keys]
        self._bind_all(known, new.results)
        self.cursor = new.results[len(known)]
        self._know_reach(far, new.results[len(known) + 1 :])

    def _given(self, keys: Mapping[Hashable, DType], own: Mapping[Hashable, DType]) -> list[Value]:
        """The values of some keys, and zeros for those that are of the other side."""
        return [
            self.values[key] if key in own else self.builder.constant(0, dtype)
            for key, dtype in keys.items()
        ]
