"""Records and reverses loops: all iterations of one, or the last block of them.

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

from functools import partial

from octants.autodiff import checkpoints
from octants.autodiff.checkpoints import Capacity
from octants.autodiff.induction_variables import advanced
from octants.autodiff.recording_strategy import Iterations
from octants.autodiff.records import Stack
from octants.autodiff.stored_loops import StoredLoops
from octants.autodiff.stored_nests import Loop
from octants.autodiff.sweep import Iteration, Sweep
from octants.ir import ops
from octants.ir.core import Block, Operation, Record, Value
from octants.types.scalars import i64


class WholeLoop:
    """A loop whose iterations are all on the stack after it."""

    in_blocks = False

    def __init__(self, sweep: Sweep, stores: StoredLoops, op: Loop) -> None:
        self._sweep = sweep
        self._stores = stores
        self._op = op

    def record(self, stack: Stack) -> None:
        sweep, op, base = self._sweep, self._op, stack.position
        if isinstance(op, ops.For):
            lower, upper, *inits = sweep.values.mapped(op.operands)
            count = sweep.count(op, lower, upper)
            results = push_iterations(sweep, self._stores, op, base, (lower, upper), inits)
            sweep.values.bind_all(op.results, results)
            frames = results[len(inits) :]
        else:
            frames = self._stores.begin_frames(op, base)
            iteration = recorded_iteration(self._stores, op, base)
            count, frames = sweep.counted_while(op, iteration, more=frames)
            sweep.records.check(op, count)
        end = frames[0] if frames else sweep.records.end(sweep.records.of(op), base, count)
        stack.position = end
        sweep.values.know(op, base=base, count=count, end=end)
        self._stores.know_frames(op, frames)

    def reverse(self, iterations: Iterations, adjoints: list[Value]) -> list[Value]:
        zero, count = self._sweep.builder.constant(0, i64), self._sweep.values[self._op, "count"]
        return iterations.reverse(zero, count, self._stores.ends_of_frames(self._op), adjoints)

    def facts_if_stored(self, _count: Value, _stack: Stack) -> dict[str, Value]:
        """Nothing else is known of the loop."""
        return {}

    def furthest_end(self, start: Value, count: Value, stored: Value | None) -> Value:
        builder, records = self._sweep.builder, self._sweep.records
        record = records.of(self._op)
        if stored is not None:
            start = builder.binary("add", start, builder.binary("min", stored, self._stores.bytes))
        return builder.early(lambda: records.end(record, start, count), start, count)

    def ends_unless_stored(
        self, ends: dict[Operation, Value], stored: Value
    ) -> dict[Operation, Value]:
        """How far inner loops reach if so many bytes are stored with this one: none that fits."""
        builder, nests = self._sweep.builder, self._sweep.plan.nests
        none = builder.constant(0, i64)
        fits = builder.compare("le", stored, self._stores.bytes)
        return {
            each: builder.select(fits, none, end) if nests.is_stored_in(each, self._op) else end
            for each, end in ends.items()
        }


class LoopInBlocks:
    """A loop of which the last block is on the stack after it, with checkpoints of the others."""

    in_blocks = True

    def __init__(self, sweep: Sweep, stores: StoredLoops, op: Loop, room: Capacity) -> None:
        self._sweep = sweep
        self._stores = stores
        self._op = op
        self._room = room
        self._checkpoints = Checkpoints(sweep, op, room)

    # -- recording ---------------------------------------------------------------------------------

    def record(self, stack: Stack) -> None:
        op = self._op
        if isinstance(op, ops.For):
            lower, upper, *inits = self._sweep.values.mapped(op.operands)
            self._record_for(op, self._sweep.count(op, lower, upper), inits, stack)
        else:
            self.record_while(op, recorded_iteration(self._stores, op, stack.position), stack)

    def _record_for(self, op: ops.For, count: Value, inits: list[Value], stack: Stack) -> None:
        sweep, builder, base = self._sweep, self._sweep.builder, stack.position
        zero = builder.constant(0, i64)
        split = checkpoints.split(builder, builder.longest(count), self._room)
        length, blocks = split.length, split.count
        middle = self._after_block(base, length)
        sweep.values.know(
            op, base=base, count=count, length=length, width=split.width, middle=middle
        )
        frames, own = self._stores.begin_frames(op, base), len(inits)

        def emit(number: Value, carried: list[Value]) -> list[Value]:
            self._checkpoints.push(number, zero, carried[:own])
            return self._run_block(*self._block_at(number), carried[:own])

        results = sweep.for_((zero, blocks), [*inits, *frames], emit).results
        sweep.values.bind_all(op.results, results)
        self._stores.know_frames(op, results[own : own + len(frames)])
        self._end(stack, blocks, split.places)

    def record_while(self, op: ops.While, iteration: Iteration, stack: Stack) -> None:
        """Emit a `while` of such iterations in blocks, whose number is known after it."""
        sweep, builder, base, own = self._sweep, self._sweep.builder, stack.position, len(op.inits)
        length, width = checkpoints.unknown(builder, self._room)
        full = self._after_block(base, length)
        sweep.values.know(op, base=base, length=length, width=width, middle=full)
        zero, one = builder.constant(0, i64), builder.constant(1, i64)
        frames = self._stores.begin_frames(op, base)
        inits = [*sweep.values.mapped(op.inits), *frames, zero, zero]
        condition = sweep.condition(op, [Value(value.type) for value in inits[own:]])
        body = Block([Value(value.type) for value in inits])
        with builder.into(body):
            around = sweep.reaches.enter()
            carried, (count, number) = body.args[:own], body.args[-2:]
            self._checkpoints.push(number, zero, carried)
            iterations, later = sweep.counted_while(op, iteration, carried, length, frames)
            count = builder.binary("add", count, iterations)
            following = builder.binary("add", number, one)
            far = sweep.reaches.carry(None, condition, body)
            own_results = sweep.values.mapped(op.results)
            builder.yield_([*own_results, *later, count, following, *far])
        results = builder.while_([*inits, *sweep.reaches.zeros(far)], condition, body).results
        sweep.reaches.leave(around, results[len(inits) :])
        sweep.values.bind_all(op.results, results)
        count, blocks = results[len(inits) - 2 : len(inits)]
        blocks = builder.longest(blocks)
        sweep.values.know(op, count=count)
        self._stores.know_frames(op, results[own : own + len(frames)])
        middle = self._after_block(base, builder.binary("min", count, length))
        places = checkpoints.places(builder, blocks, width, self._room)
        self._end(stack, blocks, places, middle)

    def _after_block(self, base: Value, length: Value) -> Value:
        """Where the records of a block of so many iterations end, at most."""
        records = self._sweep.records
        end = records.end(records.of(self._op), base, length)
        if not self._sweep.plan.nests.has_frames(self._op):
            return end
        return self._sweep.builder.binary("add", end, self._stores.bytes)

    def _end(self, stack: Stack, blocks: Value, places: Value, middle: Value | None = None) -> None:
        """The stack goes on behind the checkpoints, or where there are none behind the frames."""
        sweep, op = self._sweep, self._op
        builder, values = sweep.builder, sweep.values
        end = self._checkpoints.end(middle or values[op, "middle"], places)
        if sweep.plan.nests.has_frames(op):
            is_several = builder.compare("gt", blocks, builder.constant(1, i64))
            end = builder.select(is_several, end, values[op, "top"])
        stack.position = end
        values.know(op, blocks=blocks, end=end)

    def _block_at(self, number: Value) -> tuple[Value, Value]:
        """The first iteration of a block, and how many it has."""
        builder, values, op = self._sweep.builder, self._sweep.values, self._op
        length = values[op, "length"]
        first = builder.binary("mul", number, length)
        rest = builder.binary("sub", values[op, "count"], first)
        rest = builder.binary("max", rest, builder.constant(0, i64))
        return first, builder.binary("min", rest, length)

    def _run_block(self, first: Value, size: Value, carried: list[Value]) -> list[Value]:
        """Run so many iterations, which the loop makes; what is carried on, and frames' ends."""
        sweep, op = self._sweep, self._op
        builder, base = sweep.builder, sweep.values[op, "base"]
        if isinstance(op, ops.For):
            start = counter(sweep, op, first)
            stop = builder.binary("add", start, builder.cast(size, start.type))
            return push_iterations(sweep, self._stores, op, base, (start, stop), carried)
        inits, own = [*carried, *self._stores.begin_frames(op, base)], 1 + len(carried)
        body = Block([Value(i64), *(Value(value.type) for value in inits)])
        with builder.into(body):
            args = body.args[1:own]
            sweep.values.bind_all(op.body.args, args)
            later = self._stores.record_iteration(op, base, body.args[0], args, body.args[own:])
            builder.yield_([*sweep.values.mapped(op.body.yielded), *later])
        return builder.for_(builder.constant(0, i64), size, inits, body).results

    # -- going back --------------------------------------------------------------------------------

    def reverse(self, iterations: Iterations, adjoints: list[Value]) -> list[Value]:
        """Reverse the blocks, all but the last one after they have been run again."""
        sweep, op, builder = self._sweep, self._op, self._sweep.builder
        zero = builder.constant(0, i64)
        agree_on_blocks(sweep, op)
        blocks = sweep.values[op, "blocks"]
        body = Block([Value(i64), *(Value(value.type) for value in adjoints)])
        again, is_there = Block(), Block()
        with builder.into(body):
            step, *inner = body.args
            with builder.into(again):
                builder.yield_(self._rerun_block(builder.binary("sub", blocks, step)))
            with builder.into(is_there):
                builder.yield_(self._stores.ends_of_frames(op))
            frames = builder.if_(builder.compare("gt", step, zero), again, is_there).results
            first, size = self._block_at(builder.counted_down(blocks, step))
            builder.yield_(iterations.reverse(first, size, frames, inner))
        return builder.for_(zero, blocks, adjoints, body).results

    def _rerun_block(self, following: Value) -> list[Value]:
        """Have the records of the block before one on the stack again, and its own checkpoints.

        The blocks from the nearest checkpoint on are run. Gives where the frames of the last end.
        """
        sweep, op, builder = self._sweep, self._op, self._sweep.builder
        start, inits = self._checkpoints.before(following)
        own, frames = 1 + len(inits), self._stores.begin_frames(op, sweep.values[op, "base"])
        inits = [*inits, *frames]
        body = Block([Value(i64), *(Value(value.type) for value in inits)])
        with builder.into(body):
            number, *carried = body.args[:own]
            first, size = self._block_at(number)
            carried = at_iteration(sweep, op, first, carried)
            self._checkpoints.push(number, start, carried)
            builder.yield_(self._run_block(first, size, carried))
        return builder.for_(start, following, inits, body).results[own - 1 :]

    # -- what may be stored, and how far it reaches ------------------------------------------------

    def facts_if_stored(self, count: Value, stack: Stack) -> dict[str, Value]:
        """All iterations are one block then."""
        one = self._sweep.builder.constant(1, i64)
        return {"length": count, "blocks": one, "width": one, "middle": stack.position}

    def furthest_end(self, start: Value, count: Value, stored: Value | None) -> Value:
        builder, records = self._sweep.builder, self._sweep.records
        record, most_stored = records.of(self._op), None
        if stored is not None:
            most_stored = self._stores.bytes
            start = builder.binary("add", start, builder.binary("min", stored, most_stored))
        ends = partial(records.end, record), self._checkpoints.end
        return self._room.furthest(builder, start, builder.longest(count), ends, most_stored)

    def ends_unless_stored(
        self, ends: dict[Operation, Value], _stored: Value
    ) -> dict[Operation, Value]:
        """How far inner loops reach: as if nothing were stored, for the blocks that run again."""
        return dict(ends)


class Checkpoints:
    """The checkpoints of a loop in blocks: what it carries into some of them."""

    def __init__(self, sweep: Sweep, op: Loop, room: Capacity) -> None:
        self._sweep = sweep
        self._op = op
        self._room = room

    def push(self, number: Value, start: Value, carried: list[Value]) -> None:
        """Keep what is carried into a block, unless that is the one that is started from."""
        sweep, builder, push = self._sweep, self._sweep.builder, Block()
        with builder.into(push):
            place, _ = self._place(number)
            middle = sweep.values[self._op, "middle"]
            sweep.records.push(self._record, middle, place, carried)
        builder.only_if(builder.compare("gt", number, start), push)

    def before(self, following: Value) -> tuple[Value, list[Value]]:
        """The nearest block before one with a checkpoint, or the first; what is carried into it."""
        builder = self._sweep.builder
        _, span = self._place(following)
        start = builder.binary("sub", following, span)
        return start, self._carried_into(start)

    def end(self, start: Value, places: Value) -> Value:
        """Where so many checkpoints end that begin at a position."""
        return self._sweep.records.end(self._record, start, places)

    @property
    def _record(self) -> Record:
        return self._sweep.records.checkpoints_of(self._op)

    def _place(self, number: Value) -> tuple[Value, Value]:
        """Where the checkpoint of a block stands, and the blocks to the one before it."""
        width = self._sweep.values[self._op, "width"]
        return checkpoints.place(self._sweep.builder, number, width, self._room)

    def _carried_into(self, number: Value) -> list[Value]:
        sweep, builder, op = self._sweep, self._sweep.builder, self._op
        later, start = Block(), Block()
        with builder.into(later):
            results = [Value(value.type) for value in op.inits]
            place, _ = self._place(number)
            middle = sweep.values[op, "middle"]
            sweep.records.pop(self._record, middle, place, results)
            builder.yield_(results)
        with builder.into(start):
            builder.yield_(sweep.values.mapped(op.inits))
        is_later = builder.compare("gt", number, builder.constant(0, i64))
        return builder.if_(is_later, later, start).results


# -- iterations ------------------------------------------------------------------------------------


def push_iterations(
    sweep: Sweep,
    stores: StoredLoops,
    op: ops.For,
    base: Value,
    bounds: tuple[Value, Value],
    carried: list[Value],
) -> list[Value]:
    """Run and record iterations between bounds of the counter.

    Gives what is carried on, and where frames end.
    """
    inits, own = [*carried, *stores.begin_frames(op, base)], len(carried)

    def emit(counter: Value, args: list[Value]) -> list[Value]:
        sweep.values.bind_all(op.body.args, [counter, *args[:own]])
        number = sweep.builder.distance(bounds[0], counter)
        later = stores.record_iteration(op, base, number, args[:own], args[own:])
        return [*sweep.values.mapped(op.body.yielded), *later]

    return sweep.for_(bounds, inits, emit).results[: len(inits)]


def recorded_iteration(stores: StoredLoops, op: ops.While, base: Value) -> Iteration:
    """What emits an iteration of a `while` with its record."""
    return lambda number, carried, frames: stores.record_iteration(
        op, base, number, carried, frames
    )


def agree_on_blocks(sweep: Sweep, op: Loop) -> None:
    """Have work items in step know that what they know of the blocks of a loop is the same."""
    for fact in ("length", "blocks", "width"):
        sweep.values.know(op, **{fact: sweep.builder.longest(sweep.values[op, fact])})


def at_iteration(sweep: Sweep, op: Loop, iteration: Value, carried: list[Value]) -> list[Value]:
    """What a loop carries into an iteration; of what it gives, only what must be recorded."""
    found, values = list(carried), sweep.values
    for k, steps in sweep.facts.inductions(op).items():
        mapped = [(fn, values[step]) for fn, step in steps]
        found[k] = advanced(sweep.builder, values[op.inits[k]], iteration, mapped)
    return found


def counter(sweep: Sweep, op: ops.For, iteration: Value) -> Value:
    """The counter of a loop in an iteration."""
    lower = sweep.values[op.lower]
    return sweep.builder.binary("add", lower, sweep.builder.cast(iteration, lower.type))
