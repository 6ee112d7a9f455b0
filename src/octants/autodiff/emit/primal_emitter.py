"""Emits copies of the primal computation, without records, in both sweeps of a reverse task.

The first sweep runs with these the loops that are recorded later; both sweeps run with them all
that needs no record. `replay` emits the copies that record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from octants.autodiff.emit.primal_operations import OnRead, PrimalMemory
from octants.autodiff.emit.primal_values import PrimalValues
from octants.autodiff.emit.record_high_water import HighWaterMarks
from octants.autodiff.emit.recording_strategy import Strategy
from octants.autodiff.emit.records import Records
from octants.autodiff.emit.reverse_task_builder import EntryBuilder
from octants.autodiff.facts.task_facts import TaskFacts
from octants.autodiff.plan.recording_plan import RecordingPlan
from octants.ir import ops
from octants.ir.core import Array, Block, Operation, Value
from octants.types.scalars import i64

Iteration = Callable[[Value, list[Value], list[Value]], list[Value]]
"""Emits one iteration from its number, the carried values, and further ones, which it returns."""


class PrimalEmitter:
    """Emits operations and blocks; holds the state that all emitters of a reverse task share.

    `loops` maps each loop to its recording strategy, which `replay.Replay` fills in. `copies` maps
    each primal loop to its copies in the bodies of recorded loops, `runs` to those in the first
    sweep, and `replays` to the results of those in the backward sweep. `high_water` tracks how much
    record buffer inner loops will need. `unknown` are values that nothing defines, and that nothing
    may use: they stand for the results of loops that the plan takes for `late`.
    """

    def __init__(
        self,
        builder: EntryBuilder,
        facts: TaskFacts,
        plan: RecordingPlan,
        arrays: dict[Array, Array],
        on_read: OnRead,
        capacity: int,
    ) -> None:
        self.builder = builder
        self.facts = facts
        self.plan = plan
        self.values = PrimalValues()
        self.records = Records(builder, plan, capacity)
        self.memory = PrimalMemory(builder, facts, self.values, arrays, on_read, self.records.log)
        self.loops: dict[Operation, Strategy] = {}
        self.high_water = HighWaterMarks(builder, plan.nests, self.loops)
        self.copies: dict[Operation, list[Operation]] = {}
        self.runs: dict[Operation, list[Operation]] = {}
        self.replays: dict[Operation, list[Value]] = {}
        self.unknown: set[Value] = set()
        self._around: Operation | None = None  # the recorded loop whose body is emitted

    # -- blocks ------------------------------------------------------------------------------------

    def emit(self, op: Operation) -> None:
        """Emit a copy of an operation."""
        self.builder.location = op.location
        if op.is_scalar:
            self.memory.emit_scalar(op)
        elif op.REGIONS:
            _CONTROL[type(op)](self, op)
        else:
            self.memory.emit(op)

    def emit_block(self, block: Block) -> None:
        """Emit copies of the operations of a block."""
        for op in block.ops[:-1]:
            self.emit(op)

    @contextmanager
    def into(self, block: Block, args: list[Value]) -> Iterator[None]:
        """Build into a block whose arguments stand for primal values."""
        self.values.bind_all(args, block.args)
        with self.builder.into(block):
            yield

    # -- control -----------------------------------------------------------------------------------

    def for_(
        self,
        bounds: tuple[Value, Value],
        inits: list[Value],
        emit: Callable[[Value, list[Value]], list[Value]],
        op: ops.For | None = None,
        count: Value | None = None,
    ) -> ops.For:
        """Build a `for`, tracking the high-water marks of the loops in it.

        Args:
            bounds: the bounds of the counter.
            inits: the initial carried values.
            emit: emits the body from the counter and the carried values; gives the carried values
                of the next iteration.
            op: the primal loop that this one copies, if it is not recorded here.
            count: its trip count (i64), if it is recorded later.

        Returns:
            The loop.
        """
        builder, high_water = self.builder, self.high_water
        body = Block([Value(value.type) for value in (bounds[0], *inits)])
        with builder.into(body):
            around = high_water.enter()
            carried = emit(body.args[0], body.args[1:])
            marks = high_water.carry(op, body)
            builder.yield_([*carried, *marks])
        new = builder.for_(*bounds, [*inits, *high_water.zeros(marks)], body)
        high_water.leave(around, new.results[len(inits) :], op, count)
        return new

    def _for(self, op: ops.For) -> None:
        lower, upper, *inits = self.values.mapped(op.operands)
        count = self.count(op, lower, upper) if self._is_recorded_later(op) else None

        def emit(counter: Value, carried: list[Value]) -> list[Value]:
            self.values.bind_all(op.body.args, [counter, *carried])
            with self.within(None):
                self.emit_block(op.body)
            return self.values.mapped(op.body.yielded)

        self.bind_copy(op, self.for_((lower, upper), inits, emit, op, count))

    def count(self, op: ops.For, lower: Value, upper: Value) -> Value:
        """The trip count of a loop (i64), with a check that it fits a record of forced capacity."""
        count = self.builder.trips(lower, upper)
        self.records.check(op, count)
        return count

    def _while(self, op: ops.While) -> None:
        if self._is_recorded_later(op):
            with self.within(None):
                count, _ = self.counted_while(op, lambda *_: self._body(op), recorded_later=True)
            self.note_copy(op, self.builder.block.ops[-1])
            self.records.check(op, count)
            return
        inits = self.values.mapped(op.inits)
        condition = self.condition(op, [])
        body = Block([Value(arg.type, arg.name) for arg in op.body.args])
        with self.into(body, op.body.args), self.within(None):
            self.emit_block(op.body)
            self.builder.yield_(self.values.mapped(op.body.yielded))
        self.bind_copy(op, self.builder.while_(inits, condition, body))

    def _body(self, op: ops.While) -> list[Value]:
        """Emit the body of an iteration; it has no further carried values."""
        self.emit_block(op.body)
        return []

    def _is_recorded_later(self, op: Operation) -> bool:
        """Whether a loop that the first sweep runs unrecorded is recorded in the backward sweep."""
        return self.high_water.is_tracking and self.facts.is_reversed(op)

    def counted_while(
        self,
        op: ops.While,
        iteration: Iteration,
        carried: list[Value] | None = None,
        limit: Value | None = None,
        more: Sequence[Value] = (),
        *,
        recorded_later: bool = False,
    ) -> tuple[Value, list[Value]]:
        """Emit a `while` that counts its iterations.

        Args:
            op: the primal loop.
            iteration: emits one iteration.
            carried: the initial carried values, if not those of ``op``.
            limit: the loop ends after so many iterations (i64).
            more: initial values that the loop carries besides.
            recorded_later: the loop is not recorded here, but in the backward sweep.

        Returns:
            The number of iterations (i64), and the final values of ``more``.
        """
        builder, zero = self.builder, self.builder.constant(0, i64)
        inits = [*(self.values.mapped(op.inits) if carried is None else carried), *more, zero]
        own = len(op.inits)
        condition = self.condition(op, [Value(value.type) for value in inits[own:]], limit)
        body = Block([Value(arg.type, arg.name) for arg in op.body.args])
        body.args += [Value(value.type) for value in inits[own:]]
        with self.into(body, op.body.args):
            around = self.high_water.enter()
            *others, count = body.args[own:]
            others = iteration(count, body.args[:own], others)
            one_more = builder.binary("add", count, builder.constant(1, i64))
            marks = self.high_water.carry(op if recorded_later else None, condition, body)
            builder.yield_([*self.values.mapped(op.body.yielded), *others, one_more, *marks])
        results = builder.while_([*inits, *self.high_water.zeros(marks)], condition, body).results
        self.values.bind_all(op.results, results)
        count = results[len(inits) - 1]
        self.high_water.leave(around, results[len(inits) :], op, count if recorded_later else None)
        return count, results[own : len(inits) - 1]

    def condition(self, op: ops.While, extra: list[Value], limit: Value | None = None) -> Block:
        """Copy a condition with ``extra`` arguments; the last may have to be below a limit."""
        block = Block([*(Value(arg.type, arg.name) for arg in op.condition.args), *extra])
        with self.into(block, op.condition.args), self.high_water.in_condition():
            self.emit_block(op.condition)
            (goes_on,) = self.values.mapped(op.condition.yielded)
            if limit is not None:
                is_below = self.builder.compare("lt", extra[-1], limit)
                goes_on = self.builder.binary("and", goes_on, is_below)
            self.builder.yield_([goes_on])
        return block

    def if_(self, op: ops.If, emit: Callable[[Block], list[Value]]) -> list[Value]:
        """Build an if, tracking the high-water marks of the loops in it.

        Args:
            op: the primal if.
            emit: emits one branch; gives the values that it yields besides its results.

        Returns:
            What the if yields besides its results.
        """
        blocks, more, branches = [], [], self.high_water.branches()
        for branch in (op.then, op.orelse):
            block = Block()
            with branches.branch(), self.builder.into(block):
                more = emit(branch)
                self.builder.yield_([*self.values.mapped(branch.yielded), *more])
            blocks.append(block)
        branches.join(blocks)
        new = self.builder.if_(self.values[op.condition], *blocks)
        own, end = len(op.results), len(op.results) + len(more)
        self.values.bind_all(op.results, new.results)
        branches.note(new.results[end:])
        return new.results[own:end]

    def _if(self, op: ops.If) -> None:
        def emit(branch: Block) -> list[Value]:
            self.emit_block(branch)
            return []

        self.if_(op, emit)

    # -- copies of loops ---------------------------------------------------------------------------

    @contextmanager
    def within(self, loop: Operation | None) -> Iterator[None]:
        """Emit the body of a recorded loop, or with None of another one, inside the context."""
        outer, self._around = self._around, loop
        yield
        self._around = outer

    def bind_copy(self, op: Operation, new: Operation) -> None:
        """Let the results of a copy of a loop stand for those of the loop."""
        self.values.bind_all(op.results, new.results)
        self.note_copy(op, new)

    def bind_unknown(self, op: Operation) -> None:
        """Let values that nothing defines stand for the results of a loop."""
        values = [Value(result.type, result.name) for result in op.results]
        self.values.bind_all(op.results, values)
        self.unknown.update(values)

    def note_copy(self, op: Operation, new: Operation) -> None:
        """Note a copy of a loop if it is in the body of a recorded loop, or in the first sweep."""
        if self._around is not None:
            self.copies.setdefault(op, []).append(new)
        if self.high_water.is_tracking:
            self.runs.setdefault(op, []).append(new)


_CONTROL: dict[type[Operation], Callable[[PrimalEmitter, Any], None]] = {
    ops.For: PrimalEmitter._for,
    ops.While: PrimalEmitter._while,
    ops.If: PrimalEmitter._if,
}
