"""Emits the backward sweep of one task, after the replay that recorded its loops.

One adjoint per SSA value. The adjoint of a carried value is carried by the reversed loop; that of a
value captured from outside is an accumulator that the reversed loop carries too. An iteration takes
its carried values from the record, is replayed (which records the loops in it), and reversed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from octants.autodiff.activity import Flow
from octants.autodiff.errors import no_rule
from octants.autodiff.hazards import Log
from octants.autodiff.replay import EntryBuilder, Flag, Replayer
from octants.autodiff.rules import SCALAR, Point, adjoint_type, has_unbounded_slope, rules_of
from octants.ir import ops
from octants.ir.core import Array, Block, Companion, Operation, Value
from octants.types.scalars import i64

ADJOINT = Companion.ADJOINT


class Backward(Replayer):
    """The reverse of a block; `adjoints` holds the adjoint of each primal value so far."""

    def __init__(
        self,
        builder: EntryBuilder,
        arrays: dict[Array, Array],
        flag: Flag,
        body: Block,
        log: Log | None = None,
    ) -> None:
        super().__init__(builder, arrays, flag, log)
        flow = Flow(body)
        self.active = flow.varied(self._has_adjoint) & flow.useful(self._has_adjoint)
        self.guarded = flow.guarded()
        self.adjoints: dict[Value, Value] = {}
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
        if isinstance(op, (ops.Store, ops.Atomic, ops.CompareExchange)):
            return self._has_adjoint(op.array)
        if op.REGIONS:
            return self.is_recorded(op)
        return any(value in self.active for value in op.results)

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

    def accumulate(self, primal: Value, share: Value) -> None:
        if primal not in self.active:
            return
        before = self.adjoints.get(primal)
        if before is not None:
            share = self.builder.binary("add", before, share)
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
            if isinstance(op, SCALAR):
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
            share = rule(point, self.builder.cast(adjoint, point.type))
            if result in self.guarded and has_unbounded_slope(op):
                share = point.only_if(point.is_nonzero(adjoint), share)
            self.accumulate(operand, self.builder.cast(share, adjoint_type(operand.type)))

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

    def _reverse_atomic(self, op: ops.Atomic) -> None:
        reverse = _REVERSE_ATOMIC.get(op.fn)
        if reverse is None:
            remedy = "compute the value in a loop of your own, and store it"
            raise no_rule(f"atomic_{op.fn} on `{op.array.name}`", op.location, remedy)
        reverse(self, op)

    def _reverse_atomic_add(self, op: ops.Atomic) -> None:
        array, indices = self.arrays[op.array], self._mapped(op.indices)
        kind = adjoint_type(array.dtype)
        adjoint = self.builder.cast(self.builder.load(array, indices, ADJOINT), kind)
        share = adjoint if op.fn == "add" else self.builder.unary("neg", adjoint)
        self.accumulate(op.value, share)
        returned = self.adjoints.get(op.result)
        if returned is not None:
            share = self.builder.cast(returned, array.dtype)
            self.builder.atomic("add", array, indices, share, ADJOINT)

    def _reverse_atomic_extremum(self, op: ops.Atomic) -> None:
        """The adjoint goes to one contribution that equals the result, else to the prior value."""
        if self.adjoints.get(op.result) is not None:
            remedy = "read the array after the loop instead"
            raise no_rule(f"the value returned by atomic_{op.fn}", op.location, remedy)
        array, indices = self.arrays[op.array], self._mapped(op.indices)
        final = self._read(op, "extremum")
        kind = adjoint_type(array.dtype)
        then, orelse = Block(), Block()
        with self.builder.into(then):
            zero = self.builder.constant(0, array.dtype)
            taken = self.builder.atomic("exchange", array, indices, zero, ADJOINT)
            self.builder.yield_([self.builder.cast(taken, kind)])
        with self.builder.into(orelse):
            self.builder.yield_([self.builder.constant(0, kind)])
        wins = self.builder.compare("eq", final, self.values[op.value])
        self.accumulate(op.value, self.builder.if_(wins, then, orelse).result)

    def _reverse_exchange(self, op: ops.Atomic) -> None:
        array, indices = self.arrays[op.array], self._mapped(op.indices)
        adjoint = self.builder.load(array, indices, ADJOINT)
        self.accumulate(op.value, self.builder.cast(adjoint, adjoint_type(array.dtype)))
        returned = self.builder.cast(self.adjoint(op.result), array.dtype)
        self.builder.store(array, indices, returned, ADJOINT)

    def _reverse_compare_exchange(self, op: ops.CompareExchange) -> None:
        remedy = "keep the data-dependent exchange out of the differentiated kernel"
        raise no_rule(f"compare-and-swap on `{op.array.name}`", op.location, remedy)

    # -- control -----------------------------------------------------------------------------------

    def _reverse_if(self, op: ops.If) -> None:
        captured = list({**self.captures(op.then), **self.captures(op.orelse)})
        before = {value: self.adjoints.get(value) for value in captured}
        blocks, ends = [], []
        for branch in (op.then, op.orelse):
            self._restore(before)
            block = Block()
            with self.builder.into(block):
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

    def _reverse_loop(self, op: ops.For | ops.While) -> None:
        builder = self.builder
        first = len(op.body.args) - len(op.inits)
        carried = [
            k
            for k, (arg, result) in enumerate(zip(op.body.args[first:], op.results, strict=True))
            if arg in self.active or result in self.active
        ]
        captured = list(self.captures(op.body))
        zero, count = builder.constant(0, i64), self.values[op, "count"]
        inits = [self.adjoint(op.results[k]) for k in carried]
        inits += [self.adjoint(value) for value in captured]
        body = Block([Value(i64), *(Value(value.type) for value in inits)])
        for value in captured:
            self.adjoints.pop(value, None)
        with builder.into(body):
            back = builder.binary("sub", count, body.args[0])
            iteration = builder.binary("sub", back, builder.constant(1, i64))
            self._pop_record(op, iteration)
            self.stack = self.values[op, "end"]
            self.recorded(op.body)
            for k, adjoint in zip(carried, body.args[1:], strict=False):
                self.accumulate(op.body.yielded[k], adjoint)
            for value, adjoint in zip(captured, body.args[1 + len(carried) :], strict=True):
                self.accumulate(value, adjoint)
            self.reverse(op.body)
            ends = [self.adjoint(op.body.args[first + k]) for k in carried]
            builder.yield_([*ends, *(self.adjoint(value) for value in captured)])
        new = builder.for_(zero, count, inits, body)
        self.adjoints.update(zip(captured, new.results[len(carried) :], strict=True))
        for k, adjoint in zip(carried, new.results, strict=False):
            self.accumulate(op.inits[k], adjoint)

    def _pop_record(self, op: ops.For | ops.While, iteration: Value) -> None:
        """Bind the arguments of the body of a loop to those of an iteration."""
        carried = op.body.args
        if isinstance(op, ops.For):
            counter, *carried = op.body.args
            step = self.builder.cast(iteration, counter.type)
            lower = self.values[op.lower]
            self.bind(counter, self.builder.binary("add", lower, step))
        base = self.values[op, "base"]
        results = [Value(arg.type, arg.name) for arg in carried]
        pop = ops.RecordPop(self.records[op], base, iteration, results=results)
        self.builder.append(pop)
        self._bind_all(carried, results)


_REVERSE: dict[type[Operation], Callable[[Backward, Any], None]] = {
    ops.Load: Backward._reverse_load,
    ops.Store: Backward._reverse_store,
    ops.Atomic: Backward._reverse_atomic,
    ops.CompareExchange: Backward._reverse_compare_exchange,
    ops.If: Backward._reverse_if,
    ops.For: Backward._reverse_loop,
    ops.While: Backward._reverse_loop,
}

_REVERSE_ATOMIC: dict[str, Callable[[Backward, Any], None]] = {
    "add": Backward._reverse_atomic_add,
    "sub": Backward._reverse_atomic_add,
    "min": Backward._reverse_atomic_extremum,
    "max": Backward._reverse_atomic_extremum,
    "exchange": Backward._reverse_exchange,
}
