"""Emits recorded iterations, and the records of the inner loops that are stored with them.

A loop with stored inner loops (`stored_nests`) has a *frame* in the record buffer for each
iteration: the records of the inner loops, one execution after the other, then its own record, which
holds its carried values and the results of the stored loops::

    for(%lower, %upper, %inits, %base, %base) { (%i, %carried, %top, %stored_end):
      for(...) { (%k, %inner):
        if(%fits) { record_push<#inner>(%top, %k, %inner) }
        ...
      }
      record_push<#outer>(%end - %number, %number, %carried, %results)
      ...
    }

Executions are stored until one does not fit. From there on, a frame holds the record of its
iteration only. `top` is the end of the last frame, `stored_end` that of the last frame with all its
executions: a frame is complete if it ends at or below `stored_end`. Within an iteration, the
position is beyond the limit from the first execution that does not fit.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager

from octants.autodiff.emit.primal_emitter import PrimalEmitter
from octants.autodiff.emit.recording_strategy import Strategy
from octants.autodiff.emit.records import RecordStack
from octants.autodiff.plan.stored_nests import trips_type
from octants.ir import ops
from octants.ir.core import BYTES, Block, Operation, Record, Value
from octants.lazy_dataclass import dataclass
from octants.types.scalars import DType, i64, u8


@dataclass(eq=False, slots=True)
class Cursor:
    """The free position in an iteration that stores its inner loops.

    Positions above `limit` do not fit. `most` is a number of records that surely exceeds it.
    """

    position: Value
    limit: Value
    most: Value


@dataclass(eq=False, slots=True)
class IterationFrame:
    """The frame of the iteration that is being reversed, of a loop with stored inner loops.

    `is_stored` says whether the inner loops are stored, `exports` holds what they exported. `size`
    is the size of the stored loops so far, which begin at `start`.
    """

    is_stored: Value
    exports: dict[Hashable, Value]
    size: Value
    start: Value


class StoredLoops:
    """Emits recorded iterations, and the inner loops that are stored with them."""

    def __init__(self, emitter: PrimalEmitter) -> None:
        self._emitter = emitter
        self._nests = emitter.plan.nests
        self._bytes: Value | None = None
        self._frame: IterationFrame | None = None

    @property
    def bytes(self) -> Value:
        """The most bytes (i64) that may be stored with one loop."""
        assert self._bytes is not None
        return self._bytes

    def query_capacity(self, stack: RecordStack) -> None:
        """Emit the query of the bytes that are free for stored records in the record buffer."""
        if not self._nests.around:
            return
        builder, records = self._emitter.builder, self._emitter.records
        record = Record(BYTES, [u8])
        query = ops.RecordCapacity(
            record, self._emitter.plan.partitions, stack.position, results=[Value(i64)]
        )
        count = builder.append(query).result
        nbytes = records.end(record, builder.constant(0, i64), count)
        if self._nests.most:
            nbytes = builder.binary("min", nbytes, builder.constant(self._nests.most, i64))
        self._bytes = nbytes

    # -- iterations that are recorded --------------------------------------------------------------

    def begin_frames(self, op: Operation, base: Value) -> list[Value]:
        """The initial values that a loop with frames carries besides: `top` and `stored_end`."""
        return [base, base] if self._nests.has_frames(op) else []

    def note_frames(self, op: Operation, ends: list[Value]) -> None:
        """Note the final `top` and `stored_end` of a loop, if it has frames."""
        self._emitter.values.note(op, **dict(zip(("top", "stored_end"), ends, strict=False)))

    def record_iteration(
        self, op: ops.Loop, base: Value, number: Value, args: list[Value], frames: list[Value]
    ) -> list[Value]:
        """Emit an iteration with its record, and those of the loops that are stored with it.

        Args:
            op: the primal loop.
            base: the base of its record (i64, bytes).
            number: the number of the iteration in its block (i64).
            args: the carried values.
            frames: `top` and `stored_end`, if the loop has frames.

        Returns:
            The new `top` and `stored_end`, if the loop has frames.
        """
        emitter, records = self._emitter, self._emitter.records
        builder, record = emitter.builder, records.of(op)
        if not self._nests.has_frames(op):
            results = emitter.plan.recorded_results(op)
            if not results:
                records.push(record, base, number, args)
            emitter.values.note(op, number=number)
            with emitter.within(op):
                self._emit_with_nested(op.body)
            if results:
                records.push(record, base, number, [*args, *emitter.values.mapped(results)])
            return []
        top, stored_end = frames
        one = builder.constant(1, i64)
        limit = builder.binary("add", records.end(record, base, number), self.bytes)
        most = builder.binary("add", self.bytes, one)
        beyond = builder.binary("add", limit, one)
        start = builder.select(builder.compare("le", top, stored_end), top, beyond)
        cursor = Cursor(start, limit, most)
        with emitter.within(op):
            self._store_block(op.body, cursor)
        fits = builder.compare("le", cursor.position, limit)
        position = builder.select(fits, cursor.position, top)
        self._push_frame(op, position, number, args)
        end = records.end(record, position, builder.constant(1, i64))
        return [end, builder.select(fits, end, stored_end)]

    def _emit_with_nested(self, block: Block) -> None:
        """Emit the operations of an iteration, with the records of nested loops."""
        emitter = self._emitter
        for op in block.ops[:-1]:
            if isinstance(op, ops.For) and op in emitter.plan.nested:
                emitter.builder.location = op.location
                self._record_nested(op)
            else:
                emitter.emit(op)

    def _record_nested(self, op: ops.For) -> None:
        """Run a nested loop, and record it behind its execution in the iteration before."""
        emitter, builder = self._emitter, self._emitter.builder
        lower, upper, *inits = emitter.values.mapped(op.operands)
        first, base = self.first_of_nested(op), builder.constant(0, i64)

        def emit(counter: Value, args: list[Value]) -> list[Value]:
            emitter.values.bind_all(op.body.args, [counter, *args])
            number = builder.binary("add", first, builder.distance(lower, counter))
            self.record_iteration(op, base, number, args, [])
            return emitter.values.mapped(op.body.yielded)

        emitter.bind_copy(op, emitter.for_((lower, upper), inits, emit))

    def first_of_nested(self, op: ops.For) -> Value:
        """The number, in its record, of the first iteration of a nested loop (i64)."""
        builder, plan, outer = (
            self._emitter.builder,
            self._emitter.plan,
            self._emitter.plan.nested[op],
        )
        trips = builder.constant(plan.local[op] // plan.local[outer], i64)
        return builder.binary("mul", self._emitter.values[outer, "number"], trips)

    def _push_frame(self, op: ops.Loop, position: Value, number: Value, args: list[Value]) -> None:
        emitter, record = self._emitter, self._emitter.records.of(op)
        values = [*args, *(emitter.values[key] for key in self._nests.exports(op.body))]
        base = emitter.records.base_for(record, position, number)
        emitter.records.push(record, base, number, values)

    # -- loops that are stored in an iteration -----------------------------------------------------

    def _store_block(self, block: Block, cursor: Cursor) -> None:
        """Emit the operations of a block; the stored loops in it push their records."""
        for op in block.ops[:-1]:
            self._emitter.builder.location = op.location
            if op in self._nests.around:
                self._store_loop(op, cursor)
            elif isinstance(op, ops.If) and self._nests.stored_in(Block([], [op])):
                self._store_if(op, cursor)
            else:
                self._emitter.emit(op)

    def _store_loop(self, op: Operation, cursor: Cursor) -> None:
        begin = cursor.position
        if isinstance(op, ops.For):
            end = self._store_for(op, begin, cursor)
        else:
            assert isinstance(op, ops.While)
            end = self._store_while(op, begin, cursor)
        if self._nests.has_frames(op):
            size = self._emitter.builder.binary("sub", end, begin)
            self._emitter.values.note(op, size=size)
        cursor.position = end

    def _store_for(self, op: ops.For, begin: Value, cursor: Cursor) -> Value:
        """Emit a stored `for`; gives the end of its records, beyond the limit if they don't fit."""
        emitter, builder, records = self._emitter, self._emitter.builder, self._emitter.records
        lower, upper, *inits = emitter.values.mapped(op.operands)
        count, frames = builder.trips(lower, upper), self._first_frame(op, begin)
        if op in self._nests.varying:
            emitter.values.note(op, trips=builder.cast(count, trips_type(op)))
        end = records.end(records.of(op), begin, builder.binary("min", count, cursor.most))
        fits = None if frames else builder.compare("le", end, cursor.limit)
        own = len(inits)

        def emit(counter: Value, args: list[Value]) -> list[Value]:
            emitter.values.bind_all(op.body.args, [counter, *args[:own]])
            number = builder.distance(lower, counter)
            later = self._store_iteration(op, begin, number, fits, args[:own], args[own:], cursor)
            return [*emitter.values.mapped(op.body.yielded), *later]

        new = emitter.for_((lower, upper), [*inits, *frames], emit, op, count)
        emitter.bind_copy(op, new)
        return new.results[own] if frames else end

    def _first_frame(self, op: Operation, begin: Value) -> list[Value]:
        return [begin] if self._nests.has_frames(op) else []

    def _store_while(self, op: ops.While, begin: Value, cursor: Cursor) -> Value:
        """Run and store a while loop.

        Args:
            op: The loop.
            begin: The position in the record buffer at which its records begin.
            cursor: The position and the limit of what is stored.

        Returns:
            The position behind its records.
        """
        emitter, builder, records = self._emitter, self._emitter.builder, self._emitter.records
        record = records.of(op)

        def iteration(number: Value, args: list[Value], frames: list[Value]) -> list[Value]:
            one_more = builder.binary("add", number, builder.constant(1, i64))
            end = records.end(record, begin, one_more)
            fits = None if frames else builder.compare("le", end, cursor.limit)
            return self._store_iteration(op, begin, number, fits, args, frames, cursor)

        more = self._first_frame(op, begin)
        count, frames = emitter.counted_while(op, iteration, more=more, recorded_later=True)
        emitter.note_copy(op, builder.block.ops[-1])
        emitter.values.note(op, count=count)
        if frames:
            return frames[0]
        return records.end(record, begin, builder.binary("min", count, cursor.most))

    def _store_iteration(
        self,
        op: ops.Loop,
        base: Value,
        number: Value,
        fits: Value | None,
        args: list[Value],
        frames: list[Value],
        cursor: Cursor,
    ) -> list[Value]:
        """Emit an iteration with its record, if that ``fits``, or as a frame."""
        emitter, builder, records = self._emitter, self._emitter.builder, self._emitter.records
        if fits is not None:
            with builder.only_if(fits):
                builder.append(ops.RecordPush(records.of(op), base, number, args))
            with emitter.within(None):
                emitter.emit_block(op.body)
            return []
        (cursor.position,) = frames
        with emitter.within(None):
            self._store_block(op.body, cursor)
        end = records.end(records.of(op), cursor.position, builder.constant(1, i64))
        with builder.only_if(builder.compare("le", end, cursor.limit)):
            self._push_frame(op, cursor.position, number, args)
        return [end]

    def _store_if(self, op: ops.If, cursor: Cursor) -> None:
        """Emit an if with stored loops; both branches yield the exports of either."""
        keys, start = self._nests.exports(Block([], [op])), cursor.position
        own = keys.pop((op, "taken"), None)

        def emit(branch: Block) -> list[Value]:
            cursor.position = start
            self._store_block(branch, cursor)
            return [*self._values_or_zeros(keys, self._nests.exports(branch)), cursor.position]

        *exports, cursor.position = self._emitter.if_(op, emit)
        self._emitter.values.bind_all(keys, exports)
        if own is not None:
            self._emitter.values.note(op, taken=self._emitter.values[op.condition])

    def _values_or_zeros(
        self, keys: Mapping[Hashable, DType], own: Mapping[Hashable, DType]
    ) -> list[Value]:
        """The values of some keys, with zeros for those of the other branch."""
        emitter = self._emitter
        return [
            emitter.values[key] if key in own else emitter.builder.constant(0, dtype)
            for key, dtype in keys.items()
        ]

    # -- loops that may have been stored -----------------------------------------------------------

    def record_unless_stored(self, op: ops.Loop, loop: Strategy, stack: RecordStack) -> None:
        """Record a loop, or use what it exported if its records are stored."""
        frame, emitter = self._frame, self._emitter
        assert frame is not None
        builder, values = emitter.builder, emitter.values
        is_repeated = isinstance(op, ops.For) and op not in self._nests.varying
        if is_repeated:
            count = builder.trips(*values.mapped(op.operands[:2]))
        else:
            fact = "count" if isinstance(op, ops.While) else "trips"
            count = builder.cast(frame.exports[op, fact], i64)
        facts = {"count": count, "base": stack.position, "end": stack.position}
        facts |= loop.facts_if_stored(count, stack)
        if self._nests.has_frames(op):
            facts |= {"top": stack.position, "stored_end": stack.position}
        stored, replayed = Block(), Block()
        with builder.into(stored):
            builder.yield_([*(frame.exports[result] for result in op.results), *facts.values()])
        with builder.into(replayed):
            loop.record(stack)
            known = [values[op, fact] for fact in facts]
            builder.yield_([*values.mapped(op.results), *known])
        new = builder.if_(frame.is_stored, stored, replayed)
        values.bind_all(op.results, new.results)
        values.note(op, **dict(zip(facts, new.results[len(op.results) :], strict=True)))
        if is_repeated:
            values.note(op, count=count)
        stack.position = values[op, "end"]
        self._pass_stored(op, frame)

    def condition_of(self, op: ops.If) -> Value:
        """The condition of an if; the stored one where loops in it are stored that may differ."""
        condition, frame = self._emitter.values[op.condition], self._frame
        if frame is None or (op, "taken") not in frame.exports:
            return condition
        return self._emitter.builder.select(frame.is_stored, frame.exports[op, "taken"], condition)

    def passed_in(self, op: ops.If) -> Value | None:
        """The size of the stored loops before an if that may contain more; None if it does not."""
        if self._frame is None or not self._nests.stored_in(Block([], [op])):
            return None
        return self._frame.size

    @property
    def passed(self) -> Value:
        """The size of the stored loops so far."""
        assert self._frame is not None
        return self._frame.size

    def pass_over(self, size: Value) -> None:
        """Set the size of the stored loops so far."""
        assert self._frame is not None
        self._frame.size = size

    def _pass_stored(self, op: ops.Loop, frame: IterationFrame) -> None:
        """Note the offset of the records of a loop in the frame, in case they are stored."""
        emitter = self._emitter
        emitter.values.note(op, offset=frame.size)
        if self._nests.has_frames(op):
            size = emitter.builder.longest(frame.exports[op, "size"])
            emitter.values.note(op, size=size)
            frame.size = emitter.builder.binary("add", frame.size, size)
        else:
            count = emitter.values[op, "count"]
            frame.size = emitter.records.end(emitter.records.of(op), frame.size, count)

    # -- the backward sweep ------------------------------------------------------------------------

    def ends_of_frames(self, op: Operation) -> list[Value]:
        """`top` and `stored_end` of a loop; empty if it has no frames."""
        if not self._nests.has_frames(op):
            return []
        return [self._emitter.values[op, fact] for fact in ("top", "stored_end")]

    @contextmanager
    def in_frames(self) -> Iterator[None]:
        """Reverse a loop inside the context, whose iterations may have frames of their own."""
        around = self._frame
        yield
        self._frame = around

    def pop_frame(
        self, op: ops.Loop, number: Value, carried: list[Value], ends: list[Value]
    ) -> None:
        """Read the frame of an iteration back.

        Args:
            op: the primal loop.
            number: the number of the iteration in its record (i64).
            carried: the results to which its carried values are read.
            ends: the end of the frame, and `stored_end`.
        """
        builder, records = self._emitter.builder, self._emitter.records
        top, stored_end = ends
        record, exports = records.of(op), self._nests.exports(op.body)
        results = carried + [Value(dtype, _name(key)) for key, dtype in exports.items()]
        position = records.end(record, top, builder.constant(-1, i64))
        base = records.base_for(record, position, number)
        is_stored = builder.compare("le", top, stored_end)
        known = dict(zip(exports, results[len(carried) :], strict=True))
        self._frame = IterationFrame(is_stored, known, builder.constant(0, i64), position)
        records.pop(record, base, number, results)

    def start_of_frame(self) -> Value:
        """The position at which the frame of the replayed iteration begins."""
        assert self._frame is not None
        builder, frame = self._emitter.builder, self._frame
        start = builder.binary("sub", frame.start, frame.size)
        frame.start = builder.select(frame.is_stored, start, frame.start)
        return frame.start

    def select_stored(self, op: ops.Loop) -> None:
        """Let the facts of a loop refer to its stored records if there are any."""
        assert self._frame is not None
        emitter, builder, frame = self._emitter, self._emitter.builder, self._frame
        base = builder.binary("add", frame.start, emitter.values[op, "offset"])
        facts = {"base": base}
        if self._nests.has_frames(op):
            top = builder.binary("add", base, emitter.values[op, "size"])
            facts = {"top": top, "stored_end": top}
        for fact, value in facts.items():
            known = builder.select(frame.is_stored, value, emitter.values[op, fact])
            emitter.values.note(op, **{fact: known})


def _name(key: Hashable) -> str:
    """The name of an exported value in the IR."""
    return key.name if isinstance(key, Value) else str(key[1])  # type: ignore[index]
