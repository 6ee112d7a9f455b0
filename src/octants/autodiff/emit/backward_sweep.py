"""Emits the backward sweep of one task, after the forward sweep that recorded its loops.

Each SSA value has one adjoint. The reversed loop carries the adjoints of the values that the loop
carries, and accumulates those of the values that it captures. An iteration is reversed in three
steps: its carried values are popped from the record, it is replayed, which records the loops in it,
and its operations are reversed, last first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from octants.autodiff.derivative_rules import (
    Point,
    adjoint_type,
    has_unbounded_derivative,
    rules_of,
)
from octants.autodiff.emit import atomics, subgroup_adjoints
from octants.autodiff.emit.adjoint_values import Adjoints
from octants.autodiff.emit.component_access import reverse_extract, reverse_insert
from octants.autodiff.emit.custom_derivatives import reverse_custom
from octants.autodiff.emit.loop_recording import at_iteration, counter
from octants.autodiff.emit.records import RecordStack
from octants.autodiff.emit.replay import Replay
from octants.ir import ops
from octants.ir.cooperative_tasks import has_barriers
from octants.ir.core import Block, Companion, Operation, Record, Value
from octants.types.scalars import i64

ADJOINT = Companion.ADJOINT


class Backward:
    """Emits the adjoint statements of replayed blocks.

    `derivative_ops` are the operations that the derivative rules have emitted, `last_first` the
    loops that reverse iterations, each with the loop that it reverses, and the number of the
    iteration that it is at.
    """

    def __init__(self, replay: Replay) -> None:
        emitter = replay.emitter
        self.replay = replay
        self.builder = emitter.builder
        self.facts = emitter.facts
        self.values = emitter.values
        self.memory = emitter.memory
        self.adjoints = Adjoints(emitter.builder, emitter.facts.active)
        self.derivative_ops: set[Operation] = set()
        self.last_first: dict[Operation, tuple[Operation, Value]] = {}

    # -- operations, last to first -----------------------------------------------------------------

    def reverse(self, block: Block) -> None:
        """Emit the adjoint statements of a block whose replay has been emitted."""
        for op in reversed(block.ops[:-1]):
            self.builder.location = op.location
            if op.is_scalar and type(op) not in _REVERSE:
                self._reverse_scalar(op)
            elif op.is_scalar or self.facts.matters(op):
                _REVERSE[type(op)](self, op)

    def _reverse_scalar(self, op: Operation) -> None:
        """Add, for each active operand, its share of the adjoint of the result."""
        result = op.results[0]
        adjoint = self.adjoints.get(result)
        if adjoint is None:
            return
        rules, facts = rules_of(op), self.facts
        point = Point(self.builder, self.values.mapped(op.operands), self.values[result])
        for operand, rule in zip(op.operands, rules, strict=True):
            if rule is None or operand not in facts.active:
                continue
            incoming = self.builder.cast(adjoint, point.type)
            is_guarded = result in facts.guarded and has_unbounded_derivative(op)
            guard = point.is_nonzero(adjoint) if is_guarded else None
            mark = len(self.builder.block.ops)
            contribution = rule(point, incoming)
            self.derivative_ops.update(self.builder.block.ops[mark:])
            is_fresh = contribution is not incoming
            moved = self.builder.cast(contribution, adjoint_type(operand.type))
            self.adjoints.add(operand, moved, is_fresh=is_fresh, guard=guard if is_fresh else None)

    def _reverse_load(self, op: ops.Load) -> None:
        adjoint = self.adjoints.get(op.result)
        if adjoint is not None and self.facts.has_adjoint(op.array):
            array = self.memory.arrays[op.array]
            contribution = self.builder.cast(adjoint, array.dtype)
            self.builder.atomic("add", array, self.values.mapped(op.indices), contribution, ADJOINT)

    def _reverse_store(self, op: ops.Store) -> None:
        array, indices = self.memory.arrays[op.array], self.values.mapped(op.indices)
        zero = self.builder.constant(0, array.dtype)
        if self.facts.is_repeated(op):  # one of the work items takes the adjoint
            adjoint = self.builder.atomic("exchange", array, indices, zero, ADJOINT)
        else:
            adjoint = self.builder.load(array, indices, ADJOINT)
            self.builder.store(array, indices, zero, ADJOINT)
        self.adjoints.add(op.value, self.builder.cast(adjoint, adjoint_type(array.dtype)))

    def _reverse_subgroup(self, op: ops.Subgroup) -> None:
        """Reverse an operation that all lanes reach."""
        adjoint = self.adjoints.get(op.result)
        if adjoint is not None:
            self.adjoints.add(op.value, subgroup_adjoints.contribution_of(self, op, adjoint))

    def _reverse_barrier(self, op: ops.Barrier) -> None:
        """Emit the same barrier: the adjoints that lanes added before it are read behind it."""
        self.builder.barrier(op.scope)

    # -- control -----------------------------------------------------------------------------------

    def _reverse_if(self, op: ops.If) -> None:
        """Emit an if whose branches propagate adjoints through those of the original one.

        It yields the adjoints of the values from outside that either branch changes.
        """
        adjoints, captures = self.adjoints, self.facts.captures
        captured = list({**captures(op.then), **captures(op.orelse)})
        before = adjoints.snapshot(captured)
        blocks, ends = [], []
        for branch in (op.then, op.orelse):
            adjoints.restore(before)
            block = Block()
            with self.builder.into(block):
                self.replay.branches.rebind(branch)
                for result, value in zip(op.results, branch.yielded, strict=True):
                    adjoint = adjoints.get(result)
                    if adjoint is not None:
                        adjoints.add(value, adjoint)
                self.reverse(branch)
            blocks.append(block)
            ends.append(adjoints.snapshot(captured))
        touched = [v for v in captured if any(end[v] is not before[v] for end in ends)]
        for block, end in zip(blocks, ends, strict=True):
            with self.builder.into(block):
                adjoints.restore(end)
                self.builder.yield_([adjoints.of(value) for value in touched])
        adjoints.restore(before)
        condition = self.values.get((op, "taken"), self.values[op.condition])
        new = self.builder.if_(condition, *blocks)
        adjoints.put(zip(touched, new.results, strict=True))

    def _reverse_loop(self, op: ops.Loop) -> None:
        """Emit the reverse of a recorded loop, and add the adjoints of its initial values."""
        stored_loops = self.replay.stored_loops
        if op in self.replay.emitter.plan.nests.around:
            stored_loops.select_stored(op)
        iterations = LoopIterations(self, op)
        carried, captured = iterations.carried, iterations.captured
        adjoints = [self.adjoints.of(op.results[k]) for k in carried]
        adjoints += [self.adjoints.of(value) for value in captured]
        self.adjoints.drop(captured)
        adjoints = self.replay.emitter.loops[op].reverse(iterations, adjoints)
        self.adjoints.put(zip(captured, adjoints[len(carried) :], strict=True))
        for k, adjoint in zip(carried, adjoints, strict=False):
            self.adjoints.add(op.inits[k], adjoint)


class LoopIterations:
    """The iterations of a loop, as the backward sweep reverses them.

    `carried` are the positions of the carried values that have adjoints, `captured` the values from
    outside the loop that have.
    """

    def __init__(self, backward: Backward, op: ops.Loop) -> None:
        active = backward.facts.active
        self.carried = [
            k
            for k, pair in enumerate(zip(op.carried, op.results, strict=True))
            if not active.isdisjoint(pair)
        ]
        self.captured = list(backward.facts.captures(op.body))
        self._backward = backward
        self._op = op

    def in_separate_code(self) -> AbstractContextManager[None]:
        """Reverse some iterations inside the context, before other code reverses the others."""
        return self._backward.adjoints.discarding()

    def reverse(
        self,
        first: Value,
        count: Value,
        frames: Sequence[Value],
        adjoints: list[Value],
        remainder: tuple[Record, Value] | None = None,
    ) -> list[Value]:
        """Reverse consecutive iterations; see `recording_strategy.Iterations`."""
        op, stored_loops = self._op, self._backward.replay.stored_loops
        builder, known = self._backward.builder, self._backward.adjoints
        inits = [*adjoints, *frames[:1]]
        body = Block([Value(i64), *(Value(value.type) for value in inits)])
        own, after = 1 + len(adjoints), 1 + len(self.carried)
        with builder.into(body), stored_loops.in_frames():
            number = builder.counted_down(count, body.args[0])
            ends = [body.args[-1], frames[1]] if frames else []
            self._backward.values.note(op, number=number)
            self._pop_record(number, builder.binary("add", first, number), ends, remainder)
            self._replay_body()
            starts = [stored_loops.start_of_frame()] if frames else []
            for k, adjoint in zip(self.carried, body.args[1:own], strict=False):
                known.add(op.body.yielded[k], adjoint)
            for value, adjoint in zip(self.captured, body.args[after:own], strict=True):
                known.add(value, adjoint)
            self._backward.reverse(op.body)
            before = [known.of(op.carried[k]) for k in self.carried]
            builder.yield_([*before, *(known.of(value) for value in self.captured), *starts])
        loop = builder.for_(builder.constant(0, i64), count, inits, body)
        self._backward.last_first[loop] = op, number
        return loop.results[: own - 1]

    def _replay_body(self) -> None:
        replay, op = self._backward.replay, self._op
        stack = RecordStack(self._backward.values[op, "end"])
        with self._backward.memory.storing_shared(has_barriers(op.body)):
            replay.record(op.body, stack)

    def _pop_record(
        self,
        number: Value,
        iteration: Value,
        frames: list[Value],
        remainder: tuple[Record, Value] | None,
    ) -> None:
        """Bind the arguments of the body to those of an iteration.

        Args:
            number: the position of the iteration in its record (i64).
            iteration: the number of the iteration in the loop (i64).
            frames: where the frame of the iteration ends, and where the last stored frame does, if
                the loop has frames.
            remainder: the record and its base, if it is not the loop's own.
        """
        op, emitter = self._op, self._backward.replay.emitter
        carried = op.carried
        if isinstance(op, ops.For):
            emitter.values.bind(op.body.args[0], counter(emitter, op, iteration))
        results = [Value(arg.type, arg.name) for arg in carried]
        if frames:
            self._backward.replay.stored_loops.pop_frame(op, number, results, frames)
        else:
            record, base = remainder or (emitter.records.of(op), emitter.values[op, "base"])
            if op in emitter.plan.nested:
                number = self._backward.builder.binary("add", emitter.values[op, "first"], number)
            inner = emitter.plan.recorded_results(op)
            popped = [Value(value.type, value.name) for value in inner]
            emitter.records.pop(record, base, number, [*results, *popped])
            emitter.values.bind_all(inner, popped)
        emitter.values.bind_all(carried, at_iteration(emitter, op, iteration, results))


_REVERSE: dict[type[Operation], Callable[[Backward, Any], None]] = {
    ops.Load: Backward._reverse_load,
    ops.Store: Backward._reverse_store,
    ops.Atomic: atomics.reverse_atomic,
    ops.CompareExchange: atomics.reverse_compare_exchange,
    ops.CustomDerivative: reverse_custom,
    ops.Extract: reverse_extract,
    ops.Insert: reverse_insert,
    ops.Subgroup: Backward._reverse_subgroup,
    ops.Barrier: Backward._reverse_barrier,
    ops.If: Backward._reverse_if,
    ops.For: Backward._reverse_loop,
    ops.While: Backward._reverse_loop,
}
