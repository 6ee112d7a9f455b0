"""Records and reverses loops, with all iterations in the record buffer or the last block of them.

A loop with a `checkpoints.Capacity` runs in blocks. Each block pushes to the same position, so that
after the loop the record buffer holds the records of the last block::

    %length, %blocks = ...
    for(0, %blocks, %inits) { (%k, %carried):
      if(%k > 0) { record_push<#checkpoint>(%checkpoint_base, %slot, %carried) }
      for(%k * %length, %last, %carried) { (%i, %carried):
        record_push<#record>(%base, %i - %k * %length, %carried)
        ...
      }
    }

Work items that run in step have the same blocks, those of the item with the most iterations; the
last blocks of other items are empty. So they agree on the positions of records. The records of a
block begin at `base`, the checkpoints at `checkpoint_base`, and the record buffer is free from
`end`. The loops inside are recorded later: the first sweep computes their high-water marks and
reserves the space, so that nothing later needs more memory (`record_high_water`).

The backward sweep runs each block but the last one again before it reverses it. A late loop
(`RecordingPlan.late`) is run there only, so that there is one copy of its code.
"""

from __future__ import annotations

from functools import partial

from octants.autodiff.emit import checkpoints
from octants.autodiff.emit.checkpoints import BlockSplit, Capacity
from octants.autodiff.emit.primal_emitter import Iteration, PrimalEmitter
from octants.autodiff.emit.recording_strategy import Iterations, Strategy
from octants.autodiff.emit.records import RecordStack
from octants.autodiff.emit.stored_loops import StoredLoops
from octants.autodiff.facts.induction_variables import advanced
from octants.ir import ops
from octants.ir.core import Block, Operation, Record, Value
from octants.types.scalars import i64


class WholeLoop(Strategy):
    """A loop whose iterations are all in the record buffer after it."""

    in_blocks = False

    def __init__(self, emitter: PrimalEmitter, stored_loops: StoredLoops, op: ops.Loop) -> None:
        self._emitter = emitter
        self._stored_loops = stored_loops
        self._op = op

    def record(self, stack: RecordStack) -> None:
        emitter, op, base = self._emitter, self._op, stack.position
        if isinstance(op, ops.For):
            lower, upper, *inits = emitter.values.mapped(op.operands)
            count = emitter.count(op, lower, upper)
            results = push_iterations(emitter, self._stored_loops, op, base, (lower, upper), inits)
            emitter.values.bind_all(op.results, results)
            frames = results[len(inits) :]
        else:
            assert isinstance(op, ops.While)
            frames = self._stored_loops.begin_frames(op, base)
            iteration = recorded_iteration(self._stored_loops, op, base)
            count, frames = emitter.counted_while(op, iteration, more=frames)
            emitter.records.check(op, count)
        end = frames[0] if frames else emitter.records.end(emitter.records.of(op), base, count)
        stack.position = end
        emitter.values.note(op, base=base, count=count, end=end)
        self._stored_loops.note_frames(op, frames)

    def reverse(self, iterations: Iterations, adjoints: list[Value]) -> list[Value]:
        zero, count = (
            self._emitter.builder.constant(0, i64),
            self._emitter.values[self._op, "count"],
        )
        return iterations.reverse(
            zero, count, self._stored_loops.ends_of_frames(self._op), adjoints
        )

    def furthest_end(self, start: Value, count: Value, stored: Value | None) -> Value:
        builder, records = self._emitter.builder, self._emitter.records
        record = records.of(self._op)
        if stored is not None:
            start = builder.binary(
                "add", start, builder.binary("min", stored, self._stored_loops.bytes)
            )
        return builder.hoisted(lambda: records.end(record, start, count), start, count)

    def ends_unless_stored(
        self, ends: dict[Operation, Value], stored: Value
    ) -> dict[Operation, Value]:
        """The high-water marks of inner loops: 0 for stored loops, if what is stored fits."""
        builder, nests = self._emitter.builder, self._emitter.plan.nests
        none = builder.constant(0, i64)
        fits = builder.compare("le", stored, self._stored_loops.bytes)
        return {
            each: builder.select(fits, none, end) if nests.is_stored_in(each, self._op) else end
            for each, end in ends.items()
        }


class LoopInBlocks(Strategy):
    """A loop that leaves its last block in the record buffer, and checkpoints of the others."""

    def __init__(
        self, emitter: PrimalEmitter, stored_loops: StoredLoops, op: ops.Loop, capacity: Capacity
    ) -> None:
        self._emitter = emitter
        self._stored_loops = stored_loops
        self._op = op
        self._capacity = capacity
        self._checkpoints = Checkpoints(emitter, op, capacity)

    # -- recording ---------------------------------------------------------------------------------

    def record(self, stack: RecordStack) -> None:
        op = self._op
        if isinstance(op, ops.For):
            lower, upper, *inits = self._emitter.values.mapped(op.operands)
            self._record_for(op, self._emitter.count(op, lower, upper), inits, stack)
        else:
            assert isinstance(op, ops.While)
            self.record_while(op, recorded_iteration(self._stored_loops, op, stack.position), stack)

    def _record_for(
        self, op: ops.For, count: Value, inits: list[Value], stack: RecordStack
    ) -> None:
        emitter, builder, base = self._emitter, self._emitter.builder, stack.position
        zero = builder.constant(0, i64)
        split = checkpoints.split(builder, builder.longest(count), self._capacity)
        length, blocks = split.length, split.count
        checkpoint_base = self._after_block(base, length)
        emitter.values.note(
            op,
            base=base,
            count=count,
            length=length,
            width=split.width,
            checkpoint_base=checkpoint_base,
        )
        if op in emitter.plan.late:
            self._postpone(stack, split)
            return
        frames, own = self._stored_loops.begin_frames(op, base), len(inits)

        def emit(number: Value, carried: list[Value]) -> list[Value]:
            self._checkpoints.push(number, zero, carried[:own])
            return self._run_block(*self._block_at(number), carried[:own])

        results = emitter.for_((zero, blocks), [*inits, *frames], emit).results
        emitter.values.bind_all(op.results, results)
        self._stored_loops.note_frames(op, results[own : own + len(frames)])
        self._end(stack, blocks, split.slots)

    def _postpone(self, stack: RecordStack, split: BlockSplit) -> None:
        """Leave the run to `reverse`; nothing may need the results of the loop."""
        emitter, op = self._emitter, self._op
        emitter.bind_unknown(op)
        emitter.values.note(op, done=emitter.builder.constant(0, i64))
        self._stored_loops.note_frames(op, self._stored_loops.begin_frames(op, stack.position))
        self._end(stack, split.count, split.slots)

    def record_while(self, op: ops.While, iteration: Iteration, stack: RecordStack) -> None:
        """Record a `while` in blocks; their number is known only after the loop."""
        emitter, builder, base, own = (
            self._emitter,
            self._emitter.builder,
            stack.position,
            len(op.inits),
        )
        length, width = checkpoints.split_unknown(builder, self._capacity)
        full = self._after_block(base, length)
        emitter.values.note(op, base=base, length=length, width=width, checkpoint_base=full)
        zero, one = builder.constant(0, i64), builder.constant(1, i64)
        frames = self._stored_loops.begin_frames(op, base)
        inits = [*emitter.values.mapped(op.inits), *frames, zero, zero]
        condition = emitter.condition(op, [Value(value.type) for value in inits[own:]])
        body = Block([Value(value.type) for value in inits])
        with builder.into(body):
            around = emitter.high_water.enter()
            carried, (count, number) = body.args[:own], body.args[-2:]
            self._checkpoints.push(number, zero, carried)
            iterations, later = emitter.counted_while(op, iteration, carried, length, frames)
            count = builder.binary("add", count, iterations)
            following = builder.binary("add", number, one)
            marks = emitter.high_water.carry(None, condition, body)
            own_results = emitter.values.mapped(op.results)
            builder.yield_([*own_results, *later, count, following, *marks])
        results = builder.while_(
            [*inits, *emitter.high_water.zeros(marks)], condition, body
        ).results
        emitter.high_water.leave(around, results[len(inits) :])
        emitter.values.bind_all(op.results, results)
        count, blocks = results[len(inits) - 2 : len(inits)]
        blocks = builder.longest(blocks)
        emitter.values.note(op, count=count)
        self._stored_loops.note_frames(op, results[own : own + len(frames)])
        checkpoint_base = self._after_block(base, builder.binary("min", count, length))
        slots = checkpoints.slots(builder, blocks, width, self._capacity)
        self._end(stack, blocks, slots, checkpoint_base)

    def _after_block(self, base: Value, length: Value) -> Value:
        """The furthest position at which the records of a block of so many iterations end."""
        records = self._emitter.records
        end = records.end(records.of(self._op), base, length)
        if not self._emitter.plan.nests.has_frames(self._op):
            return end
        return self._emitter.builder.binary("add", end, self._stored_loops.bytes)

    def _end(
        self, stack: RecordStack, blocks: Value, slots: Value, checkpoint_base: Value | None = None
    ) -> None:
        """The record buffer is free behind the checkpoints, or behind the frames without any."""
        emitter, op = self._emitter, self._op
        builder, values = emitter.builder, emitter.values
        end = self._checkpoints.end(checkpoint_base or values[op, "checkpoint_base"], slots)
        if emitter.plan.nests.has_frames(op):
            is_several = builder.compare("gt", blocks, builder.constant(1, i64))
            end = builder.select(is_several, end, values[op, "top"])
        stack.position = end
        values.note(op, blocks=blocks, end=end)

    def _block_at(self, number: Value) -> tuple[Value, Value]:
        """The first iteration of a block, and how many it has."""
        builder, values, op = self._emitter.builder, self._emitter.values, self._op
        length = values[op, "length"]
        first = builder.binary("mul", number, length)
        rest = builder.binary("sub", values[op, "count"], first)
        rest = builder.binary("max", rest, builder.constant(0, i64))
        return first, builder.binary("min", rest, length)

    def _run_block(self, first: Value, size: Value, carried: list[Value]) -> list[Value]:
        """Run and record the iterations of a block; gives carried values and ends of frames."""
        emitter, op = self._emitter, self._op
        builder, base = emitter.builder, emitter.values[op, "base"]
        if isinstance(op, ops.For):
            start = counter(emitter, op, first)
            stop = builder.binary("add", start, builder.cast(size, start.type))
            return push_iterations(emitter, self._stored_loops, op, base, (start, stop), carried)
        inits, own = [*carried, *self._stored_loops.begin_frames(op, base)], 1 + len(carried)
        body = Block([Value(i64), *(Value(value.type) for value in inits)])
        with builder.into(body):
            args = body.args[1:own]
            emitter.values.bind_all(op.body.args, args)
            later = self._stored_loops.record_iteration(
                op, base, body.args[0], args, body.args[own:]
            )
            builder.yield_([*emitter.values.mapped(op.body.yielded), *later])
        return builder.for_(builder.constant(0, i64), size, inits, body).results

    # -- the backward sweep ------------------------------------------------------------------------

    def reverse(self, iterations: Iterations, adjoints: list[Value]) -> list[Value]:
        """Reverse the blocks; all but the last one are run and recorded again before.

        In a late loop the first run is one of these.
        """
        emitter, op, builder = self._emitter, self._op, self._emitter.builder
        zero = builder.constant(0, i64)
        agree_on_blocks(emitter, op)
        blocks = emitter.values[op, "blocks"]
        body = Block([Value(i64), *(Value(value.type) for value in adjoints)])
        with builder.into(body):
            step, *inner = body.args
            frames = self._run_before(step, builder.binary("sub", blocks, step))
            first, size = self._block_at(builder.counted_down(blocks, step))
            builder.yield_(iterations.reverse(first, size, frames, inner))
        return builder.for_(zero, blocks, adjoints, body).results

    def _run_before(self, step: Value, following: Value) -> list[Value]:
        """Record the block before ``following``, unless it is there, and give its ends of frames.

        The last block, of the first step, is there; in a late loop only if the loop is stored.
        """
        emitter, op, builder = self._emitter, self._op, self._emitter.builder
        zero, one = builder.constant(0, i64), builder.constant(1, i64)
        done = emitter.values[op, "done"] if op in emitter.plan.late else one
        if done is zero:
            frames = self._run(step, following)
        else:
            missing, is_there = Block(), Block()
            with builder.into(missing):
                builder.yield_(self._run(step, following))
            with builder.into(is_there):
                builder.yield_(self._stored_loops.ends_of_frames(op))
            frames = builder.if_(builder.compare("ge", step, done), missing, is_there).results
        if frames and op in emitter.plan.late:
            is_only = builder.compare("eq", emitter.values[op, "blocks"], one)
            is_run = builder.compare("eq", done, zero)
            ends_here = builder.binary("and", is_only, is_run)
            end = builder.select(ends_here, frames[0], emitter.values[op, "end"])
            emitter.values.note(op, end=end)
        return frames

    def _run(self, step: Value, following: Value) -> list[Value]:
        """Record the block before ``following``, and the checkpoints of its own.

        Runs the blocks from the nearest checkpoint on, or in the first step all. Gives the ends of
        the frames of the last one.
        """
        emitter, op, builder = self._emitter, self._op, self._emitter.builder
        if op in emitter.plan.late:
            again, whole = Block(), Block()
            with builder.into(again):
                start, inits = self._checkpoints.before(following)
                builder.yield_([start, *inits])
            zero = builder.constant(0, i64)
            with builder.into(whole):
                builder.yield_([zero, *emitter.values.mapped(op.inits)])
            start, *inits = builder.if_(builder.compare("gt", step, zero), again, whole).results
        else:
            start, inits = self._checkpoints.before(following)
        own, frames = (
            1 + len(inits),
            self._stored_loops.begin_frames(op, emitter.values[op, "base"]),
        )
        inits = [*inits, *frames]
        body = Block([Value(i64), *(Value(value.type) for value in inits)])
        with builder.into(body):
            number, *carried = body.args[:own]
            first, size = self._block_at(number)
            carried = at_iteration(emitter, op, first, carried)
            self._checkpoints.push(number, start, carried)
            builder.yield_(self._run_block(first, size, carried))
        return builder.for_(start, following, inits, body).results[own - 1 :]

    # -- stored inner loops, high-water marks ------------------------------------------------------

    def facts_if_stored(self, count: Value, stack: RecordStack) -> dict[str, Value]:
        """All iterations are one block."""
        one = self._emitter.builder.constant(1, i64)
        facts = {"length": count, "blocks": one, "width": one, "checkpoint_base": stack.position}
        return facts | ({"done": one} if self._op in self._emitter.plan.late else {})

    def furthest_end(self, start: Value, count: Value, stored: Value | None) -> Value:
        builder, records = self._emitter.builder, self._emitter.records
        record, most_stored = records.of(self._op), None
        if stored is not None:
            most_stored = self._stored_loops.bytes
            start = builder.binary("add", start, builder.binary("min", stored, most_stored))
        ends = partial(records.end, record), self._checkpoints.end
        return self._capacity.furthest(builder, start, builder.longest(count), ends, most_stored)


class Checkpoints:
    """The checkpoints of a loop in blocks: the carried values at the start of some blocks."""

    def __init__(self, emitter: PrimalEmitter, op: ops.Loop, capacity: Capacity) -> None:
        self._emitter = emitter
        self._op = op
        self._capacity = capacity

    def push(self, number: Value, start: Value, carried: list[Value]) -> None:
        """Keep the carried values at the start of block ``number``, unless the run starts there."""
        emitter, builder = self._emitter, self._emitter.builder
        with builder.only_if(builder.compare("gt", number, start)):
            slot, _ = self._slot(number)
            checkpoint_base = emitter.values[self._op, "checkpoint_base"]
            emitter.records.push(self._record, checkpoint_base, slot, carried)

    def before(self, following: Value) -> tuple[Value, list[Value]]:
        """The nearest block before ``following`` that can be run from, and its carried values."""
        builder = self._emitter.builder
        _, span = self._slot(following)
        start = builder.binary("sub", following, span)
        return start, self._carried_into(start)

    def end(self, start: Value, slots: Value) -> Value:
        """The position (i64, bytes) at which so many checkpoints end that begin at ``start``."""
        return self._emitter.records.end(self._record, start, slots)

    @property
    def _record(self) -> Record:
        return self._emitter.records.checkpoints_of(self._op)

    def _slot(self, number: Value) -> tuple[Value, Value]:
        """The slot of the checkpoint of a block, and the blocks since the checkpoint before."""
        width = self._emitter.values[self._op, "width"]
        return checkpoints.slot(self._emitter.builder, number, width, self._capacity)

    def _carried_into(self, number: Value) -> list[Value]:
        emitter, builder, op = self._emitter, self._emitter.builder, self._op
        later, start = Block(), Block()
        with builder.into(later):
            results = [Value(value.type) for value in op.inits]
            slot, _ = self._slot(number)
            checkpoint_base = emitter.values[op, "checkpoint_base"]
            emitter.records.pop(self._record, checkpoint_base, slot, results)
            builder.yield_(results)
        with builder.into(start):
            builder.yield_(emitter.values.mapped(op.inits))
        is_later = builder.compare("gt", number, builder.constant(0, i64))
        return builder.if_(is_later, later, start).results


# -- iterations ------------------------------------------------------------------------------------


def push_iterations(
    emitter: PrimalEmitter,
    stored_loops: StoredLoops,
    op: ops.For,
    base: Value,
    bounds: tuple[Value, Value],
    carried: list[Value],
) -> list[Value]:
    """Run and record the iterations of a `for` between bounds of its counter.

    Args:
        emitter: the emitter of the task.
        stored_loops: records the iterations.
        op: the primal loop.
        base: the base of its record (i64, bytes).
        bounds: the bounds of the counter.
        carried: the carried values at the start.

    Returns:
        The carried values at the end, then the ends of frames if the loop has frames.
    """
    inits, own = [*carried, *stored_loops.begin_frames(op, base)], len(carried)

    def emit(counter: Value, args: list[Value]) -> list[Value]:
        emitter.values.bind_all(op.body.args, [counter, *args[:own]])
        number = emitter.builder.distance(bounds[0], counter)
        later = stored_loops.record_iteration(op, base, number, args[:own], args[own:])
        return [*emitter.values.mapped(op.body.yielded), *later]

    return emitter.for_(bounds, inits, emit).results[: len(inits)]


def recorded_iteration(stored_loops: StoredLoops, op: ops.While, base: Value) -> Iteration:
    """The `Iteration` of a `while` that records itself."""
    return lambda number, carried, frames: stored_loops.record_iteration(
        op, base, number, carried, frames
    )


def agree_on_blocks(emitter: PrimalEmitter, op: ops.Loop) -> None:
    """Make the facts about the blocks of a loop uniform among work items that run in step."""
    for fact in ("length", "blocks", "width"):
        emitter.values.note(op, **{fact: emitter.builder.longest(emitter.values[op, fact])})


def at_iteration(
    emitter: PrimalEmitter, op: ops.Loop, iteration: Value, carried: list[Value]
) -> list[Value]:
    """The values that a loop carries into an iteration.

    Args:
        emitter: the emitter of the task.
        op: the primal loop.
        iteration: the number of the iteration (i64).
        carried: the recorded values; those that are affine in the number are computed instead.

    Returns:
        The carried values.
    """
    found, values = list(carried), emitter.values
    for k, steps in emitter.facts.inductions(op).items():
        mapped = [(fn, values[step]) for fn, step in steps]
        found[k] = advanced(emitter.builder, values[op.inits[k]], iteration, mapped)
    return found


def counter(emitter: PrimalEmitter, op: ops.For, iteration: Value) -> Value:
    """The counter of a `for` in an iteration, given by its number (i64)."""
    lower = emitter.values[op.lower]
    return emitter.builder.binary("add", lower, emitter.builder.cast(iteration, lower.type))
