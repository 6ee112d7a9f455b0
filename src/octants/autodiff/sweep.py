"""Emits the primal computation again as it was, in a sweep of the reverse run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from octants.autodiff.plan import Plan
from octants.autodiff.primal_memory import Flag, PrimalMemory
from octants.autodiff.primal_values import PrimalValues
from octants.autodiff.recording_strategy import Strategy
from octants.autodiff.records import Records
from octants.autodiff.tape_high_water import HighWaterMarks
from octants.autodiff.task_builder import EntryBuilder
from octants.autodiff.task_facts import Facts
from octants.ir import ops
from octants.ir.core import Array, Block, Operation, Value
from octants.types.scalars import i64

Iteration = Callable[[Value, list[Value], list[Value]], list[Value]]
"""Emits an iteration, of its number, what its loop carries, and what that carries more besides."""


class Sweep:
    """The handle of all that emit parts of the reverse of a task: what they share.

    ``loops`` is filled when it is decided how loops are recorded. `copies` has the copies of each
    loop in the bodies of those that are recorded.
    """

    def __init__(
        self,
        builder: EntryBuilder,
        facts: Facts,
        plan: Plan,
        arrays: dict[Array, Array],
        flag: Flag,
        capacity: int,
        loops: Mapping[Operation, Strategy],
    ) -> None:
        self.builder = builder
        self.facts = facts
        self.plan = plan
        self.values = PrimalValues()
        self.records = Records(builder, plan, capacity)
        self.memory = PrimalMemory(builder, facts, self.values, arrays, flag, self.records.log)
        self.reaches = HighWaterMarks(builder, plan.nests, loops)
        self.copies: dict[Operation, list[Operation]] = {}
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
        """Build into a block, whose arguments stand for primal ones."""
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
        """Build a `for` of what ``emit`` emits of the counter and the values carried so far.

        That gives what is carried on. ``op`` is the loop that this one stands for, if it is not
        recorded here; with a ``count`` it is recorded later.
        """
        builder, reaches = self.builder, self.reaches
        body = Block([Value(value.type) for value in (bounds[0], *inits)])
        with builder.into(body):
            around = reaches.enter()
            carried = emit(body.args[0], body.args[1:])
            far = reaches.carry(op, body)
            builder.yield_([*carried, *far])
        new = builder.for_(*bounds, [*inits, *reaches.zeros(far)], body)
        reaches.leave(around, new.results[len(inits) :], op, count)
        return new

    def _for(self, op: ops.For) -> None:
        lower, upper, *inits = self.values.mapped(op.operands)
        count = self.count(op, lower, upper) if self._is_foreseen(op) else None

        def emit(counter: Value, carried: list[Value]) -> list[Value]:
            self.values.bind_all(op.body.args, [counter, *carried])
            with self.within(None):
                self.emit_block(op.body)
            return self.values.mapped(op.body.yielded)

        self.bind_copy(op, self.for_((lower, upper), inits, emit, op, count))

    def count(self, op: ops.For, lower: Value, upper: Value) -> Value:
        """How many iterations a loop has, which must fit its record."""
        count = self.builder.trips(lower, upper)
        self.records.check(op, count)
        return count

    def _while(self, op: ops.While) -> None:
        if self._is_foreseen(op):
            with self.within(None):
                count, _ = self.counted_while(op, lambda *_: self._body(op), foreseen=True)
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
        """Emit an iteration as it is, which carries nothing more."""
        self.emit_block(op.body)
        return []

    def _is_foreseen(self, op: Operation) -> bool:
        """Whether a loop that runs as it is in the first sweep is recorded later."""
        return self.reaches.is_sought and self.facts.is_reversed(op)

    def counted_while(
        self,
        op: ops.While,
        iteration: Iteration,
        carried: list[Value] | None = None,
        limit: Value | None = None,
        more: Sequence[Value] = (),
        *,
        foreseen: bool = False,
    ) -> tuple[Value, list[Value]]:
        """Emit a loop of such iterations; how many there were, and what it carries more.

        It may start from other values than its own, and end when there were ``limit``. One that is
        ``foreseen`` is not recorded here, but later.
        """
        builder, zero = self.builder, self.builder.constant(0, i64)
        inits = [*(self.values.mapped(op.inits) if carried is None else carried), *more, zero]
        own = len(op.inits)
        condition = self.condition(op, [Value(value.type) for value in inits[own:]], limit)
        body = Block([Value(arg.type, arg.name) for arg in op.body.args])
        body.args += [Value(value.type) for value in inits[own:]]
        with self.into(body, op.body.args):
            around = self.reaches.enter()
            *others, count = body.args[own:]
            others = iteration(count, body.args[:own], others)
            one_more = builder.binary("add", count, builder.constant(1, i64))
            far = self.reaches.carry(op if foreseen else None, condition, body)
            builder.yield_([*self.values.mapped(op.body.yielded), *others, one_more, *far])
        results = builder.while_([*inits, *self.reaches.zeros(far)], condition, body).results
        self.values.bind_all(op.results, results)
        count = results[len(inits) - 1]
        self.reaches.leave(around, results[len(inits) :], op, count if foreseen else None)
        return count, results[own : len(inits) - 1]

    def condition(self, op: ops.While, extra: list[Value], limit: Value | None = None) -> Block:
        """A condition with more arguments, which may also ask the last one to be below a limit."""
        block = Block([*(Value(arg.type, arg.name) for arg in op.condition.args), *extra])
        with self.into(block, op.condition.args), self.reaches.in_condition():
            self.emit_block(op.condition)
            (goes_on,) = self.values.mapped(op.condition.yielded)
            if limit is not None:
                is_below = self.builder.compare("lt", extra[-1], limit)
                goes_on = self.builder.binary("and", goes_on, is_below)
            self.builder.yield_([goes_on])
        return block

    def if_(self, op: ops.If, emit: Callable[[Block], list[Value]]) -> list[Value]:
        """Build an if of what ``emit`` emits of the blocks of one.

        That gives what an if yields besides its results; those of it are the result here.
        """
        blocks, more, sides = [], [], self.reaches.sides()
        for branch in (op.then, op.orelse):
            block = Block()
            with sides.side(), self.builder.into(block):
                more = emit(branch)
                self.builder.yield_([*self.values.mapped(branch.yielded), *more])
            blocks.append(block)
        sides.join(blocks)
        new = self.builder.if_(self.values[op.condition], *blocks)
        own, end = len(op.results), len(op.results) + len(more)
        self.values.bind_all(op.results, new.results)
        sides.know(new.results[end:])
        return new.results[own:end]

    def _if(self, op: ops.If) -> None:
        def emit(branch: Block) -> list[Value]:
            self.emit_block(branch)
            return []

        self.if_(op, emit)

    # -- copies of loops ---------------------------------------------------------------------------

    @contextmanager
    def within(self, loop: Operation | None) -> Iterator[None]:
        """Emit the body of a loop that is recorded, or of another one, meanwhile."""
        outer, self._around = self._around, loop
        yield
        self._around = outer

    def bind_copy(self, op: Operation, new: Operation) -> None:
        """Have a copy of a loop stand for it."""
        self.values.bind_all(op.results, new.results)
        self.note_copy(op, new)

    def note_copy(self, op: Operation, new: Operation) -> None:
        """Note a copy of a loop, if it is in the body of one that is recorded."""
        if self._around is not None:
            self.copies.setdefault(op, []).append(new)


_CONTROL: dict[type[Operation], Callable[[Sweep, Any], None]] = {
    ops.For: Sweep._for,
    ops.While: Sweep._while,
    ops.If: Sweep._if,
}
