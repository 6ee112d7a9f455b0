"""Emits the iterations of a loop that is recorded; loops in it may leave their records, too.

A loop with others that are stored (see `stored_nests`) has a *frame* on the stack for each
iteration: the records of the loops in it, one execution behind the other, and then its own record,
which holds what those loops handed out besides what it carries::

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

from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager

from octants.autodiff.recording_strategy import Strategy
from octants.autodiff.records import Stack
from octants.autodiff.stored_nests import Loop
from octants.autodiff.sweep import Sweep
from octants.ir import ops
from octants.ir.core import BYTES, Block, Operation, Record, Value
from octants.lazy_dataclass import dataclass
from octants.types.scalars import DType, i64, u8


@dataclass(eq=False, slots=True)
class Cursor:
    """Where the stack is free in an iteration that stores the loops in it.

    `limit` may not be passed; `most` is a number of records that surely passes it.
    """

    position: Value
    limit: Value
    most: Value


@dataclass(eq=False, slots=True)
class IterationFrame:
    """The iteration that is reversed, of a loop with others that may be stored.

    `kept` says whether they are, and `handed` has what they handed out. `size` is how much of the
    stack those take that have been passed so far, from `start` on.
    """

    kept: Value
    handed: dict[Hashable, Value]
    size: Value
    start: Value


class StoredLoops:
    """Emits iterations with records, and those of the loops that are stored with them."""

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep
        self._nests = sweep.plan.nests
        self._bytes: Value | None = None
        self._frame: IterationFrame | None = None

    @property
    def bytes(self) -> Value:
        """The bytes for all that is stored with one loop."""
        assert self._bytes is not None
        return self._bytes

    def make_room(self, stack: Stack) -> None:
        """Find out the bytes that may be stored, of what is left beyond a stack."""
        if not self._nests.around:
            return
        builder, records = self._sweep.builder, self._sweep.records
        record = Record(BYTES, [u8])
        room = ops.RecordRoom(record, self._sweep.plan.parts, stack.position, results=[Value(i64)])
        count = builder.append(room).result
        nbytes = records.end(record, builder.constant(0, i64), count)
        if self._nests.most:
            nbytes = builder.binary("min", nbytes, builder.constant(self._nests.most, i64))
        self._bytes = nbytes

    # -- iterations that are recorded --------------------------------------------------------------

    def begin_frames(self, op: Operation, base: Value) -> list[Value]:
        """What a loop carries besides its own values: where its frames end."""
        return [base, base] if self._nests.has_frames(op) else []

    def know_frames(self, op: Operation, ends: list[Value]) -> None:
        """Note where the frames of a loop end, if it has some."""
        self._sweep.values.know(op, **dict(zip(("top", "kept"), ends, strict=False)))

    def record_iteration(
        self, op: Loop, base: Value, number: Value, args: list[Value], frames: list[Value]
    ) -> list[Value]:
        """Emit an iteration with its record, and those of the loops that are stored with it.

        Gives where frames end now.
        """
        sweep, records = self._sweep, self._sweep.records
        builder, record = sweep.builder, records.of(op)
        if not self._nests.has_frames(op):
            records.push(record, base, number, args)
            with sweep.within(op):
                sweep.emit_block(op.body)
            return []
        top, kept = frames
        one = builder.constant(1, i64)
        limit = builder.binary("add", records.end(record, base, number), self.bytes)
        most = builder.binary("add", self.bytes, one)
        beyond = builder.binary("add", limit, one)
        start = builder.select(builder.compare("le", top, kept), top, beyond)
        cursor = Cursor(start, limit, most)
        with sweep.within(op):
            self._store_block(op.body, cursor)
        fits = builder.compare("le", cursor.position, limit)
        position = builder.select(fits, cursor.position, top)
        self._push_frame(op, position, number, args)
        end = records.end(record, position, builder.constant(1, i64))
        return [end, builder.select(fits, end, kept)]

    def _push_frame(self, op: Loop, position: Value, number: Value, args: list[Value]) -> None:
        sweep, record = self._sweep, self._sweep.records.of(op)
        values = [*args, *(sweep.values[key] for key in self._nests.handed(op.body))]
        base = sweep.records.base_for(record, position, number)
        sweep.records.push(record, base, number, values)

    # -- what is stored in an iteration ------------------------------------------------------------

    def _store_block(self, block: Block, cursor: Cursor) -> None:
        """Emit the operations of a block, so that loops in it leave their records."""
        for op in block.ops[:-1]:
            self._sweep.builder.location = op.location
            if op in self._nests.around:
                self._store_loop(op, cursor)
            elif isinstance(op, ops.If) and self._nests.stored_in(Block([], [op])):
                self._store_if(op, cursor)
            else:
                self._sweep.emit(op)

    def _store_loop(self, op: Operation, cursor: Cursor) -> None:
        begin = cursor.position
        if isinstance(op, ops.For):
            end = self._store_for(op, begin, cursor)
        else:
            assert isinstance(op, ops.While)
            end = self._store_while(op, begin, cursor)
        if self._nests.has_frames(op):
            size = self._sweep.builder.binary("sub", end, begin)
            self._sweep.values.know(op, size=size)
        cursor.position = end

    def _store_for(self, op: ops.For, begin: Value, cursor: Cursor) -> Value:
        """The end of the records, which is beyond the limit if they do not fit."""
        sweep, builder, records = self._sweep, self._sweep.builder, self._sweep.records
        lower, upper, *inits = sweep.values.mapped(op.operands)
        count, frames = builder.trips(lower, upper), self._first_frame(op, begin)
        end = records.end(records.of(op), begin, builder.binary("min", count, cursor.most))
        fits = None if frames else builder.compare("le", end, cursor.limit)
        own = len(inits)

        def emit(counter: Value, args: list[Value]) -> list[Value]:
            sweep.values.bind_all(op.body.args, [counter, *args[:own]])
            number = builder.distance(lower, counter)
            later = self._store_iteration(op, begin, number, fits, args[:own], args[own:], cursor)
            return [*sweep.values.mapped(op.body.yielded), *later]

        new = sweep.for_((lower, upper), [*inits, *frames], emit, op, count)
        sweep.bind_copy(op, new)
        return new.results[own] if frames else end

    def _first_frame(self, op: Operation, begin: Value) -> list[Value]:
        return [begin] if self._nests.has_frames(op) else []

    def _store_while(self, op: ops.While, begin: Value, cursor: Cursor) -> Value:
        sweep, builder, records = self._sweep, self._sweep.builder, self._sweep.records
        record = records.of(op)

        def iteration(number: Value, args: list[Value], frames: list[Value]) -> list[Value]:
            one_more = builder.binary("add", number, builder.constant(1, i64))
            end = records.end(record, begin, one_more)
            fits = None if frames else builder.compare("le", end, cursor.limit)
            return self._store_iteration(op, begin, number, fits, args, frames, cursor)

        more = self._first_frame(op, begin)
        count, frames = sweep.counted_while(op, iteration, more=more, foreseen=True)
        sweep.note_copy(op, builder.block.ops[-1])
        sweep.values.know(op, count=count)
        if frames:
            return frames[0]
        return records.end(record, begin, builder.binary("min", count, cursor.most))

    def _store_iteration(
        self,
        op: Loop,
        base: Value,
        number: Value,
        fits: Value | None,
        args: list[Value],
        frames: list[Value],
        cursor: Cursor,
    ) -> list[Value]:
        """Emit an iteration with its record, if that ``fits``, or as a frame."""
        sweep, builder, records = self._sweep, self._sweep.builder, self._sweep.records
        if fits is not None:
            push = Block([], [ops.RecordPush(records.of(op), base, number, args)])
            builder.only_if(fits, push)
            with sweep.within(None):
                sweep.emit_block(op.body)
            return []
        (cursor.position,) = frames
        with sweep.within(None):
            self._store_block(op.body, cursor)
        end = records.end(records.of(op), cursor.position, builder.constant(1, i64))
        push = Block()
        with builder.into(push):
            self._push_frame(op, cursor.position, number, args)
        builder.only_if(builder.compare("le", end, cursor.limit), push)
        return [end]

    def _store_if(self, op: ops.If, cursor: Cursor) -> None:
        """Both sides hand out what was stored in either."""
        keys, start = self._nests.handed(Block([], [op])), cursor.position

        def emit(branch: Block) -> list[Value]:
            cursor.position = start
            self._store_block(branch, cursor)
            return [*self._given(keys, self._nests.handed(branch)), cursor.position]

        *handed, cursor.position = self._sweep.if_(op, emit)
        self._sweep.values.bind_all(keys, handed)

    def _given(self, keys: Mapping[Hashable, DType], own: Mapping[Hashable, DType]) -> list[Value]:
        """The values of some keys, and zeros for those that are of the other side."""
        sweep = self._sweep
        return [
            sweep.values[key] if key in own else sweep.builder.constant(0, dtype)
            for key, dtype in keys.items()
        ]

    # -- loops that may have left their records ----------------------------------------------------

    def record_unless_kept(self, op: Loop, loop: Strategy, stack: Stack) -> None:
        """Record a loop, or take what it handed out when its records were stored."""
        frame, sweep = self._frame, self._sweep
        assert frame is not None
        builder, values = sweep.builder, sweep.values
        zero = builder.constant(0, i64)
        if isinstance(op, ops.For):
            count = builder.trips(*values.mapped([op.lower, op.upper]))
        else:
            count = frame.handed[op, "count"]
        facts = {"count": count, "base": zero, "end": stack.position}
        facts |= loop.facts_if_stored(count, stack)
        if self._nests.has_frames(op):
            facts |= {"top": zero, "kept": zero}
        kept, lost = Block(), Block()
        with builder.into(kept):
            builder.yield_([*(frame.handed[result] for result in op.results), *facts.values()])
        with builder.into(lost):
            loop.record(stack)
            known = [values[op, fact] for fact in facts]
            builder.yield_([*values.mapped(op.results), *known])
        new = builder.if_(frame.kept, kept, lost)
        values.bind_all(op.results, new.results)
        values.know(op, **dict(zip(facts, new.results[len(op.results) :], strict=True)))
        if isinstance(op, ops.For):
            values.know(op, count=count)
        stack.position = values[op, "end"]
        self._pass_stored(op, frame)

    def passed_in(self, op: ops.If) -> Value | None:
        """How much of the frame is passed before an if, if loops in it may have been stored."""
        if self._frame is None or not self._nests.stored_in(Block([], [op])):
            return None
        return self._frame.size

    @property
    def passed(self) -> Value:
        """How much of the frame is passed so far."""
        assert self._frame is not None
        return self._frame.size

    def pass_over(self, size: Value) -> None:
        """Have so much of the frame be passed."""
        assert self._frame is not None
        self._frame.size = size

    def _pass_stored(self, op: Loop, frame: IterationFrame) -> None:
        """Note where in its frame the records of a loop are, if they were stored."""
        sweep = self._sweep
        sweep.values.know(op, place=frame.size)
        if self._nests.has_frames(op):
            size = sweep.builder.longest(frame.handed[op, "size"])
            sweep.values.know(op, size=size)
            frame.size = sweep.builder.binary("add", frame.size, size)
        else:
            count = sweep.values[op, "count"]
            frame.size = sweep.records.end(sweep.records.of(op), frame.size, count)

    # -- going back --------------------------------------------------------------------------------

    def ends_of_frames(self, op: Operation) -> list[Value]:
        """Where the frames of a loop end: all, and those that were kept; none if it has none."""
        if not self._nests.has_frames(op):
            return []
        return [self._sweep.values[op, fact] for fact in ("top", "kept")]

    @contextmanager
    def in_frames(self) -> Iterator[None]:
        """Reverse a loop meanwhile, whose iterations may have frames of their own."""
        around = self._frame
        yield
        self._frame = around

    def pop_frame(self, op: Loop, number: Value, carried: list[Value], ends: list[Value]) -> None:
        """Read the frame of an iteration back, and with it what the loop carried.

        ``ends`` are those of the frames up to this one, and of those that were kept.
        """
        builder, records = self._sweep.builder, self._sweep.records
        top, kept = ends
        record, handed = records.of(op), self._nests.handed(op.body)
        results = carried + [Value(dtype, _name(key)) for key, dtype in handed.items()]
        position = records.end(record, top, builder.constant(-1, i64))
        base = records.base_for(record, position, number)
        is_kept = builder.compare("le", top, kept)
        known = dict(zip(handed, results[len(carried) :], strict=True))
        self._frame = IterationFrame(is_kept, known, builder.constant(0, i64), position)
        records.pop(record, base, number, results)

    def start_of_frame(self) -> Value:
        """Where the frame of the iteration begins that has been replayed."""
        assert self._frame is not None
        builder, frame = self._sweep.builder, self._frame
        start = builder.binary("sub", frame.start, frame.size)
        frame.start = builder.select(frame.kept, start, frame.start)
        return frame.start

    def find_stored(self, op: Loop) -> None:
        """Have what is known of a loop be right also if its records were stored."""
        assert self._frame is not None
        sweep, builder, frame = self._sweep, self._sweep.builder, self._frame
        base = builder.binary("add", frame.start, sweep.values[op, "place"])
        facts = {"base": base}
        if self._nests.has_frames(op):
            top = builder.binary("add", base, sweep.values[op, "size"])
            facts = {"top": top, "kept": top}
        for fact, value in facts.items():
            known = builder.select(frame.kept, value, sweep.values[op, fact])
            sweep.values.know(op, **{fact: known})


def _name(key: Hashable) -> str:
    """How to call what was handed out by a loop that was stored."""
    return key.name if isinstance(key, Value) else str(key[1])  # type: ignore[index]
