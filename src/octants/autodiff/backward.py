"""Emits the backward sweep of one task, after the replay that recorded its loops.

One adjoint per SSA value. The adjoint of a carried value is carried by the reversed loop; that of a
value captured from outside is an accumulator that the reversed loop carries too. An iteration takes
its carried values from the record, is replayed (which records the loops in it), and reversed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from octants.autodiff import atomics, lanes
from octants.autodiff.activity import Flow
from octants.autodiff.branches import deep_ifs
from octants.autodiff.checkpoints import Plan
from octants.autodiff.cooperation import has_barriers
from octants.autodiff.hazards import Log
from octants.autodiff.nests import Loop
from octants.autodiff.replay import EntryBuilder, Flag
from octants.autodiff.rules import Point, adjoint_type, has_unbounded_slope, rules_of
from octants.autodiff.storing import Frame
from octants.autodiff.whole_blocks import WholeBlocks
from octants.ir import ops
from octants.ir.core import Array, Block, Companion, Operation, Record, Value
from octants.types.scalars import i64

ADJOINT = Companion.ADJOINT


class Backward(WholeBlocks):
    """The reverse of a block; `adjoints` holds the adjoint of each primal value so far."""

    def __init__(
        self,
        builder: EntryBuilder,
        arrays: dict[Array, Array],
        flag: Flag,
        body: Block,
        log: Log | None = None,
        capacity: int = 0,
        plan: Plan | None = None,
    ) -> None:
        super().__init__(builder, arrays, flag, log, capacity, plan or Plan())
        self.deep = deep_ifs(body, log)
        flow = Flow(body)
        self.active = flow.varied(self._has_adjoint) & flow.useful(self._has_adjoint)
        self.guarded = flow.guarded()
        self.adjoints: dict[Value, Value] = {}
        self.slopes: set[Operation] = set()  # what derivatives were made by
        self.mixed: frozenset[Array] = frozenset()  # see `ordering.Ordering`
        self._captures: dict[Block, dict[Value, None]] = {}
        self._recorded: dict[Operation, bool] = {}

    def _has_adjoint(self, array: Array) -> bool:
        return self.arrays[array].has(ADJOINT)

    # -- what matters ------------------------------------------------------------------------------

    def is_recorded(self, op: Operation) -> bool:
        if op not in self._recorded:
            inside = any(self._matters(o) for region in op.regions for o in region.ops)
            self._recorded[op] = inside or any(v in self.active for v in op.results)
        return self._recorded[op]

    def _matters(self, op: Operation) -> bool:
        if isinstance(op, ops.Write):
            return self._has_adjoint(op.array)
        if op.REGIONS:
            return self.is_recorded(op)
        return isinstance(op, ops.Barrier) or any(value in self.active for value in op.results)

    def captures(self, block: Block) -> dict[Value, None]:
        """The active values that a block uses and does not define, in the order of their uses."""
        if block not in self._captures:
            used: dict[Value, None] = {}
            defined = set(block.args)
            for op in block.ops:
                used.update((value, None) for value in op.operands if value in self.active)
                for region in op.regions:
                    used.update(self.captures(region))
                defined.update(op.results)
            self._captures[block] = {value: None for value in used if value not in defined}
        return self._captures[block]

    # -- adjoints ----------------------------------------------------------------------------------

    def accumulate(self, primal: Value, share: Value, *, is_fresh: bool = False) -> None:
        """Add to the adjoint of a value; a share that is fresh was built for this alone."""
        if primal not in self.active:
            return
        before = self.adjoints.get(primal)
        if before is not None:
            add = self.builder.add_fresh if is_fresh else self.builder.add
            share = add(before, share)
        self.adjoints[primal] = share

    def adjoint(self, primal: Value) -> Value:
        """The adjoint of a value so far; zero if nothing has reached it."""
        known = self.adjoints.get(primal)
        if known is None:
            return self.builder.constant(0.0, adjoint_type(primal.type))
        return known

    # -- operations, last to first -----------------------------------------------------------------

    def reverse(self, block: Block) -> None:
        """Emit the adjoint statements of a block that has been replayed with records."""
        for op in reversed(block.ops[:-1]):
            self.builder.location = op.location
            if op.is_scalar:
                self._reverse_scalar(op)
            elif self._matters(op):
                _REVERSE[type(op)](self, op)

    def _reverse_scalar(self, op: Operation) -> None:
        result = op.results[0]
        adjoint = self.adjoints.get(result)
        if adjoint is None:
            return
        rules = rules_of(op)
        point = Point(self.builder, self._mapped(op.operands), self.values[result])
        for operand, rule in zip(op.operands, rules, strict=True):
            if rule is None or operand not in self.active:
                continue
            incoming = self.builder.cast(adjoint, point.type)
            mark = len(self.builder.block.ops)
            share = rule(point, incoming)
            self.slopes.update(self.builder.block.ops[mark:])
            if result in self.guarded and has_unbounded_slope(op):
                share = point.only_if(point.is_nonzero(adjoint), share)
            is_fresh = share is not incoming
            moved = self.builder.cast(share, adjoint_type(operand.type))
            self.accumulate(operand, moved, is_fresh=is_fresh)

    def _reverse_load(self, op: ops.Load) -> None:
        adjoint = self.adjoints.get(op.result)
        if adjoint is not None and self._has_adjoint(op.array):
            array = self.arrays[op.array]
            share = self.builder.cast(adjoint, array.dtype)
            self.builder.atomic("add", array, self._mapped(op.indices), share, ADJOINT)

    def _reverse_store(self, op: ops.Store) -> None:
        array, indices = self.arrays[op.array], self._mapped(op.indices)
        adjoint = self.builder.load(array, indices, ADJOINT)
        self.builder.store(array, indices, self.builder.constant(0, array.dtype), ADJOINT)
        self.accumulate(op.value, self.builder.cast(adjoint, adjoint_type(array.dtype)))

    def _reverse_subgroup(self, op: ops.Subgroup) -> None:
        """Of lanes that all come here."""
        adjoint = self.adjoints.get(op.result)
        if adjoint is not None:
            self.accumulate(op.value, lanes.share_of(self, op, adjoint))

    def _reverse_barrier(self, op: ops.Barrier) -> None:
        """Who has stored waits for those who have read."""
        self.builder.barrier(op.scope)

    # -- control -----------------------------------------------------------------------------------

    def _reverse_if(self, op: ops.If) -> None:
        captured = list({**self.captures(op.then), **self.captures(op.orelse)})
        before = {value: self.adjoints.get(value) for value in captured}
        blocks, ends = [], []
        for branch in (op.then, op.orelse):
            self._restore(before)
            block = Block()
            with self.builder.into(block):
                self.find_again(branch)
                for result, value in zip(op.results, branch.yielded, strict=True):
                    if result in self.adjoints:
                        self.accumulate(value, self.adjoints[result])
                self.reverse(branch)
            blocks.append(block)
            ends.append({value: self.adjoints.get(value) for value in captured})
        touched = [v for v in captured if any(end[v] is not before[v] for end in ends)]
        for block, end in zip(blocks, ends, strict=True):
            with self.builder.into(block):
                self._restore(end)
                self.builder.yield_([self.adjoint(value) for value in touched])
        self._restore(before)
        new = self.builder.if_(self.values[op.condition], *blocks)
        self.adjoints.update(zip(touched, new.results, strict=True))

    def _restore(self, adjoints: dict[Value, Value | None]) -> None:
        for value, adjoint in adjoints.items():
            if adjoint is None:
                self.adjoints.pop(value, None)
            else:
                self.adjoints[value] = adjoint

    def _reverse_loop(self, op: Loop) -> None:
        if op in self.nests.around:
            self.find_stored(op)
        first = len(op.body.args) - len(op.inits)
        carried = [
            k
            for k, (arg, result) in enumerate(zip(op.body.args[first:], op.results, strict=True))
            if arg in self.active or result in self.active
        ]
        captured = list(self.captures(op.body))
        adjoints = [self.adjoint(op.results[k]) for k in carried]
        adjoints += [self.adjoint(value) for value in captured]
        for value in captured:
            self.adjoints.pop(value, None)
        if self.has_whole_blocks(op):
            adjoints = self._reverse_whole_blocks(op, adjoints, carried, captured)
        elif op in self.rooms:
            adjoints = self._reverse_blocks(op, adjoints, carried, captured)
        else:
            zero, count = self.builder.constant(0, i64), self.values[op, "count"]
            frames = self._frames(op)
            adjoints = self._reverse_turns(op, zero, count, frames, adjoints, carried, captured)
        self.adjoints.update(zip(captured, adjoints[len(carried) :], strict=True))
        for k, adjoint in zip(carried, adjoints, strict=False):
            self.accumulate(op.inits[k], adjoint)

    def _reverse_blocks(
        self,
        op: Loop,
        adjoints: list[Value],
        carried: list[int],
        captured: list[Value],
    ) -> list[Value]:
        """Reverse the blocks of a loop, all but the last one after they have been run again."""
        builder, zero = self.builder, self.builder.constant(0, i64)
        self.agree_on_blocks(op)
        blocks = self.values[op, "blocks"]
        body = Block([Value(i64), *(Value(value.type) for value in adjoints)])
        again, is_there = Block(), Block()
        with builder.into(body):
            step, *inner = body.args
            with builder.into(again):
                builder.yield_(self.rerun_block(op, builder.binary("sub", blocks, step)))
            with builder.into(is_there):
                builder.yield_(self._frames(op))
            frames = builder.if_(builder.compare("gt", step, zero), again, is_there).results
            first, size = self.block_at(op, self._counted_down(blocks, step))
            inner = self._reverse_turns(op, first, size, frames, inner, carried, captured)
            builder.yield_(inner)
        return builder.for_(zero, blocks, adjoints, body).results

    def _reverse_whole_blocks(
        self,
        op: Loop,
        adjoints: list[Value],
        carried: list[int],
        captured: list[Value],
    ) -> list[Value]:
        """Reverse the iterations behind the blocks of a loop, then run and reverse each block."""
        builder, zero, length = (
            self.builder,
            self.builder.constant(0, i64),
            self.values[op, "length"],
        )
        after, left = self.after_blocks(op)
        rest, known = (self.rest(op), self.values[op, "rest"]), dict(self.adjoints)
        adjoints = self._reverse_turns(op, after, left, [], adjoints, carried, captured, rest)
        self.adjoints = known  # the body is reversed once more
        self.agree_on_blocks(op)
        blocks = self.values[op, "blocks"]
        body = Block([Value(i64), *(Value(value.type) for value in adjoints)])
        with builder.into(body):
            step, *inner = body.args
            self.rerun_block(op, builder.binary("sub", blocks, step))
            first = builder.binary("mul", self._counted_down(blocks, step), length)
            builder.yield_(self._reverse_turns(op, first, length, [], inner, carried, captured))
        return builder.for_(zero, blocks, adjoints, body).results

    def _frames(self, op: Loop) -> list[Value]:
        """Where the frames of a loop end: all, and those that were kept; none if it has none."""
        return [self.values[op, what] for what in ("top", "kept")] if self.may_store(op) else []

    def _reverse_turns(
        self,
        op: Loop,
        first: Value,
        count: Value,
        frames: list[Value],
        adjoints: list[Value],
        carried: list[int],
        captured: list[Value],
        stand: tuple[Record, Value] | None = None,
    ) -> list[Value]:
        """Reverse so many iterations from the first one on, whose records are on the stack.

        ``stand`` says in which record, and where it begins, if that is not the loop's own.
        """
        builder, frame = self.builder, self.frame
        inits = [*adjoints, *frames[:1]]
        body = Block([Value(i64), *(Value(value.type) for value in inits)])
        start, own = len(op.body.args) - len(op.inits), 1 + len(adjoints)
        with builder.into(body):
            turn = self._counted_down(count, body.args[0])
            tops = [body.args[-1], frames[1]] if frames else []
            stand = stand or (self.records[op], self.values[op, "base"])
            self._pop_record(op, turn, builder.binary("add", first, turn), tops, stand)
            self.stack = self.values[op, "end"]
            self.shares = has_barriers(op.body)
            self.recorded(op.body)
            self.shares = False
            starts = [self._start_of_frame()] if frames else []
            for k, adjoint in zip(carried, body.args[1:own], strict=False):
                self.accumulate(op.body.yielded[k], adjoint)
            for value, adjoint in zip(captured, body.args[1 + len(carried) : own], strict=True):
                self.accumulate(value, adjoint)
            self.reverse(op.body)
            ends = [self.adjoint(op.body.args[start + k]) for k in carried]
            builder.yield_([*ends, *(self.adjoint(value) for value in captured), *starts])
        self.frame = frame
        return builder.for_(builder.constant(0, i64), count, inits, body).results[: own - 1]

    def _counted_down(self, count: Value, step: Value) -> Value:
        back = self.builder.binary("sub", count, step)
        return self.builder.binary("sub", back, self.builder.constant(1, i64))

    def _pop_record(
        self,
        op: Loop,
        turn: Value,
        iteration: Value,
        frames: list[Value],
        stand: tuple[Record, Value],
    ) -> None:
        """Bind the arguments of the body of a loop to those of an iteration.

        ``stand`` is its record, and where that begins.
        If it has frames, the first of ``frames`` is where the one of the iteration ends.
        """
        builder, carried = self.builder, op.body.args
        if isinstance(op, ops.For):
            counter, *carried = op.body.args
            self.bind(counter, self.counter(op, iteration))
        record, base = stand
        results = [Value(arg.type, arg.name) for arg in carried]
        if frames:
            top, kept = frames
            handed = self.nests.handed(op.body)
            results += [Value(dtype, _name(key)) for key, dtype in handed.items()]
            place = self._end(record, top, builder.constant(-1, i64))
            base = self.base_of(record, place, turn)
            is_kept = builder.compare("le", top, kept)
            known = dict(zip(handed, results[len(carried) :], strict=True))
            self.frame = Frame(is_kept, known, builder.constant(0, i64), place)
        builder.append(ops.RecordPop(record, base, turn, results=results))
        self._bind_all(carried, self.at_iteration(op, iteration, results[: len(carried)]))

    def _start_of_frame(self) -> Value:
        """Where the frame of the iteration begins that has been replayed."""
        assert self.frame is not None
        builder, frame = self.builder, self.frame
        start = builder.binary("sub", frame.start, frame.size)
        frame.start = builder.select(frame.kept, start, frame.start)
        return frame.start


def _name(key: Hashable) -> str:
    """How to call what was handed out by a loop that was stored."""
    return key.name if isinstance(key, Value) else str(key[1])  # type: ignore[index]


_REVERSE: dict[type[Operation], Callable[[Backward, Any], None]] = {
    ops.Load: Backward._reverse_load,
    ops.Store: Backward._reverse_store,
    ops.Atomic: atomics.reverse_atomic,
    ops.CompareExchange: atomics.reverse_compare_exchange,
    ops.Subgroup: Backward._reverse_subgroup,
    ops.Barrier: Backward._reverse_barrier,
    ops.If: Backward._reverse_if,
    ops.For: Backward._reverse_loop,
    ops.While: Backward._reverse_loop,
}
