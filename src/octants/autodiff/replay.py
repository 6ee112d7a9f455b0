"""Emits the primal computation again: as it was, or with records of its loops.

A replay has no primal side effects, except the first sweep of a task that is reversed on the memory
from before it: that one runs the stores, and logs what hazardous loads read.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from octants.autodiff import overflow
from octants.autodiff.hazards import Log
from octants.autodiff.reach import Reach
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import LOG, Array, Block, Companion, Operation, Record, Space, Value, rebuild
from octants.types.scalars import DType, by_name, convert, i64, u64

Flag = Callable[[Operation, Operation, str], None]
"""Told of each read of primal memory: the new operation, the primal one, what is read."""

Turn = Callable[[Value, list[Value], list[Value]], list[Value]]
"""Emits an iteration, of its number, what its loop carries, and what that carries more besides."""


class EntryBuilder(Builder):
    """Builds each constant once, at the start of the whole body, where everything sees it."""

    def __init__(self, block: Block, *, contracts: bool = False) -> None:
        super().__init__(block, contracts=contracts)
        self.entry: list[Operation] = []
        self._known: dict[tuple[DType, str], Value] = {}
        self.entry_values: set[Value] = set()

    def early(self, make: Callable[[], Value], *operands: Value) -> Value:
        """A value that is computed once, at the start, if its operands are."""
        if not self.entry_values.issuperset(operands):
            return make()
        with self.into(Block([], self.entry)):
            result = make()
        self.entry_values.add(result)
        return result

    def constant(self, value: Any, dtype: DType) -> Value:
        key = (dtype, repr(convert(value, dtype)))
        if key not in self._known:
            with self.into(Block([], self.entry)):
                self._known[key] = super().constant(value, dtype)
            self.entry_values.add(self._known[key])
        return self._known[key]


class Replayer:
    """Emits copies of primal operations; `values` maps primal values to those of the reverse run.

    Its keys are also (operation, what): what is known of the record of a loop.
    """

    def __init__(
        self,
        builder: EntryBuilder,
        arrays: dict[Array, Array],
        flag: Flag,
        log: Log | None = None,
        capacity: int = 0,
    ) -> None:
        self.builder = builder
        self.arrays = arrays
        self.flag = flag
        self.log = log
        self.log_record = Record(LOG, [u64])
        self.values: dict[Hashable, Value] = {}
        self.journal: list[Hashable] = []
        self.stack = builder.constant(0, i64)  # where the tape's stack is free
        self.records: dict[Operation, Record] = {}
        self.capacity = capacity  # of records, where it is forced
        self.checks_plain = False  # whether loops are checked that run plainly; see `overflow`
        self.stores_run: frozenset[Array] = frozenset()  # arrays written by the first sweep
        self.shares = False  # whether shared arrays are written: see `cooperation`
        self.reach: Reach | None = None  # of the block that is emitted, in the first sweep
        self.around: Operation | None = None
        self.copies: dict[Operation, list[Operation]] = {}  # of loops, in what records those around

    def bind(self, key: Hashable, value: Value) -> None:
        self.values[key] = value
        self.journal.append(key)

    def value(self, primal: Value) -> Value:
        return self.values[primal]

    def _mapped(self, values: list[Value]) -> list[Value]:
        return [self.values[value] for value in values]

    def is_recorded(self, op: Operation) -> bool:
        """Whether a loop or an if will be reversed, and so must be recorded."""
        raise NotImplementedError

    def record(self, op: Operation) -> None:
        """Emit a loop or an if so that it can be reversed."""
        raise NotImplementedError

    def end_of(
        self, op: ops.For | ops.While, start: Value, count: Value, stored: Value | None
    ) -> Value:
        """At most there a record ends that begins at a position, of so many iterations.

        ``stored`` bytes are those of what may be stored with it.
        """
        raise NotImplementedError

    def may_store(self, op: Operation | None) -> bool:
        """Whether loops may be stored with a loop around them."""
        raise NotImplementedError

    def without_stored(
        self, op: ops.For | ops.While, ends: dict[Operation, Value], stored: Value
    ) -> dict[Operation, Value]:
        """How far inner loops reach if so many bytes are stored with a loop around them."""
        raise NotImplementedError

    # -- blocks ------------------------------------------------------------------------------------

    def plain(self, block: Block) -> None:
        """Emit the operations of a block as they are."""
        for op in block.ops[:-1]:
            self._emit(op, recorded=False)

    def recorded(self, block: Block) -> None:
        """Emit the operations of a block so that it can be reversed."""
        for op in block.ops[:-1]:
            self._emit(op, recorded=True)

    def _emit(self, op: Operation, recorded: bool) -> None:
        self.builder.location = op.location
        if op.is_scalar:
            self._scalar(op)
        elif recorded and op.REGIONS and self.is_recorded(op):
            self.record(op)
        else:
            _PLAIN[type(op)](self, op)

    @contextmanager
    def _into(self, block: Block, args: list[Value]) -> Iterator[None]:
        """Build into a block, whose arguments stand for primal ones."""
        for arg, primal in zip(block.args, args, strict=False):
            self.bind(primal, arg)
        with self.builder.into(block):
            yield

    # -- scalars and memory ------------------------------------------------------------------------

    def _scalar(self, op: Operation) -> None:
        if isinstance(op, ops.Constant):
            self.bind(op.result, self.builder.constant(op.value, op.result.type))
            return
        new = rebuild(op, self._mapped(op.operands))
        if isinstance(new, ops.Shape):
            new.array = self.arrays[new.array]
        self.bind(op.results[0], self.builder.append(new).result)

    def _load(self, op: ops.Load) -> None:
        if self.log is not None and op in self.log.positions:
            self._logged(op, op.result, op.array)
            return
        self.bind(op.result, self.read(op, "load"))

    def read(self, op: Any, kind: str) -> Value:
        """Load where a primal access went, noting that the value is needed."""
        indices = self._mapped(op.indices)
        result = self.builder.load(self.arrays[op.array], indices, op.companion)
        if op.array.space is not Space.SHARED:
            self.flag(self.builder.block.ops[-1], op, kind)
        elif not self.shares:
            self.flag(self.builder.block.ops[-1], op, "shared")
        return result

    def _logged(self, op: Any, result: Value, array: Array) -> None:
        """A hazardous read: the first sweep reads and logs, replays take it from the log."""
        assert self.log is not None
        builder, bits = self.builder, _bits_type(array.dtype)
        position = self.values[self.log.positions[op]]
        self.log_record.location = self.log_record.location or op.location
        base = builder.constant(0, i64)
        if array in self.stores_run:
            new = rebuild(op, self._mapped(op.operands))
            new.array = self.arrays[array]  # type: ignore[attr-defined]
            value = builder.append(new).result
            self.bind(result, value)
            word = builder.cast(builder.bitcast(value, bits) if bits else value, u64)
            builder.append(ops.RecordPush(self.log_record, base, position, [word]))
            return
        pop = ops.RecordPop(self.log_record, base, position, results=[Value(u64)])
        word = builder.append(pop).result
        if array in self.log.shared and not isinstance(op, ops.Load):
            self.flag(pop, op, "atomic")
        value = builder.cast(word, bits or array.dtype)
        self.bind(result, builder.bitcast(value, array.dtype) if bits else value)

    def _store(self, op: ops.Store) -> None:
        if op.array in self.stores_run and op.companion is Companion.PRIMAL:
            value, *indices = self._mapped(op.operands)
            self.builder.store(self.arrays[op.array], indices, value)
        elif self.shares and op.array.space is Space.SHARED:
            value, *indices = self._mapped(op.operands)
            array = self.arrays[op.array]
            self.builder.store(array, indices, value)
            if array.has(Companion.ADJOINT):
                zero = self.builder.constant(0, array.dtype)
                self.builder.store(array, indices, zero, Companion.ADJOINT)

    def _atomic(self, op: ops.Atomic | ops.CompareExchange) -> None:
        """An atomic is not run again; only what the first sweep must run, and log, is."""
        if self.log is not None and op in self.log.positions:
            self._logged(op, op.result, op.array)
        elif op.array.space is Space.SHARED:
            self._update_shared(op)
        else:
            self.bind(op.result, self.read(op, "atomic"))

    def _update_shared(self, op: Any) -> None:
        """What it returns is of no use to anybody."""
        if self.shares:
            new: Any = rebuild(op, self._mapped(op.operands))
            new.array = self.arrays[op.array]
            self.builder.append(new)

    def _barrier(self, op: ops.Barrier) -> None:
        """The work items of a block wait for each other as they did."""
        self.builder.barrier(op.scope)

    def _subgroup(self, op: ops.Subgroup) -> None:
        """All lanes come here again."""
        new = rebuild(op, self._mapped(op.operands))
        self.bind(op.result, self.builder.append(new).result)

    def _nothing(self, op: Operation) -> None:
        """Prints and assertions of the forward run are not repeated."""

    # -- control, as it was ------------------------------------------------------------------------

    def _plain_for(self, op: ops.For) -> None:
        lower, upper, *inits = self._mapped(op.operands)
        count = None
        if self._is_foreseen(op):
            count = overflow.trips(self.builder, lower, upper)
            overflow.check(self.builder, self._record(op), count)
        body = Block([Value(arg.type, arg.name) for arg in op.body.args])
        with self._into(body, op.body.args), self._reaching() as around, self._within(None):
            self.plain(op.body)
            far = self._reached(op, body)
            self.builder.yield_([*self._mapped(op.body.yielded), *far])
        new = self.builder.for_(lower, upper, [*inits, *self._zeros(far)], body)
        self._bind_copy(op, new)
        self._leave(around, new.results[len(inits) :], op, count)

    def _plain_while(self, op: ops.While) -> None:
        if self._is_foreseen(op):
            with self._within(None):
                count, _ = self._counted_while(op, lambda *_: self._body(op), foreseen=True)
            self._note_copy(op, self.builder.block.ops[-1])
            overflow.check(self.builder, self._record(op), count)
            return
        inits = self._mapped(op.inits)
        condition = self._condition(op, [])
        body = Block([Value(arg.type, arg.name) for arg in op.body.args])
        with self._into(body, op.body.args), self._within(None):
            self.plain(op.body)
            self.builder.yield_(self._mapped(op.body.yielded))
        self._bind_copy(op, self.builder.while_(inits, condition, body))

    @contextmanager
    def _within(self, loop: Operation | None) -> Iterator[None]:
        """Note the copies of loops that stand in the body of a loop that is recorded."""
        outer, self.around = self.around, loop
        try:
            yield
        finally:
            self.around = outer

    def _bind_copy(self, op: Operation, new: Operation) -> None:
        self._bind_all(op.results, new.results)
        self._note_copy(op, new)

    def _note_copy(self, op: Operation, new: Operation) -> None:
        if self.around is not None:
            self.copies.setdefault(op, []).append(new)

    def _body(self, op: ops.While) -> list[Value]:
        """Emit an iteration as it is, which carries nothing more."""
        self.plain(op.body)
        return []

    def _is_foreseen(self, op: Operation) -> bool:
        """Whether a loop that runs plainly in the first sweep is recorded later."""
        return self.reach is not None and self.is_recorded(op)

    def _counted_while(
        self,
        op: ops.While,
        turn: Turn,
        carried: list[Value] | None = None,
        limit: Value | None = None,
        more: Sequence[Value] = (),
        *,
        foreseen: bool = False,
    ) -> tuple[Value, list[Value]]:
        """Emit a loop whose iterations are ``turn``; how many there were, and what it carries more.

        It may start from other values than its own, and end when there were ``limit``. One that is
        ``foreseen`` is not recorded here, but later.
        """
        builder, zero = self.builder, self.builder.constant(0, i64)
        inits = [*(self._mapped(op.inits) if carried is None else carried), *more, zero]
        own = len(op.inits)
        condition = self._condition(op, [Value(value.type) for value in inits[own:]], limit)
        body = Block([Value(arg.type, arg.name) for arg in op.body.args])
        body.args += [Value(value.type) for value in inits[own:]]
        with self._into(body, op.body.args), self._reaching() as around:
            *others, count = body.args[own:]
            others = turn(count, body.args[:own], others)
            one_more = builder.binary("add", count, builder.constant(1, i64))
            far = self._reached(op if foreseen else None, condition, body)
            builder.yield_([*self._mapped(op.body.yielded), *others, one_more, *far])
        results = builder.while_([*inits, *self._zeros(far)], condition, body).results
        self._bind_all(op.results, results)
        count = results[len(inits) - 1]
        self._leave(around, results[len(inits) :], op, count if foreseen else None)
        return count, results[own : len(inits) - 1]

    def _condition(self, op: ops.While, extra: list[Value], limit: Value | None = None) -> Block:
        """A condition with more arguments, which may also ask the last one to be below a limit."""
        block = Block([*(Value(arg.type, arg.name) for arg in op.condition.args), *extra])
        with self._into(block, op.condition.args), self._reaching() as around:
            self.reach = None  # a condition is not reversed
            self.plain(op.condition)
            (goes_on,) = self._mapped(op.condition.yielded)
            if limit is not None:
                is_below = self.builder.compare("lt", extra[-1], limit)
                goes_on = self.builder.binary("and", goes_on, is_below)
            self.builder.yield_([goes_on])
        self.reach = around
        return block

    def _plain_if(self, op: ops.If) -> None:
        blocks, around, reaches = [], self.reach, []
        for branch in (op.then, op.orelse):
            block = Block()
            self.reach = around and Reach(around.position)
            with self.builder.into(block):
                self.plain(branch)
                self.builder.yield_(self._mapped(branch.yielded))
            blocks.append(block)
            reaches.append(self.reach)
        self.reach = around
        far = self._join_reach(blocks, reaches)
        new = self.builder.if_(self.values[op.condition], *blocks)
        self._bind_all(op.results, new.results)
        self._know_reach(far, new.results[len(op.results) :])

    # -- how far the records of inner loops will reach ---------------------------------------------

    @contextmanager
    def _reaching(self) -> Iterator[Reach | None]:
        """Begin a block whose loops may be foreseen; gives the reach around it, for `_leave`."""
        around = self.reach
        if around is not None:
            self.reach = Reach(self.builder.constant(0, i64))
        yield around

    def _reached(self, op: Operation | None, *blocks: Block) -> list[Value]:
        """What the body of a loop, the last block, yields more: it carries how far loops reach.

        A loop with which others may be stored also carries the bytes of all that is recorded in it.
        """
        yielded: list[Value] = []
        for inner, end in self.reach.ends.items() if self.reach is not None else ():
            if end in self.builder.entry_values:
                continue
            assert self.reach is not None
            self.reach.carried.append(inner)
            for block in blocks:
                block.args.append(Value(i64))
            yielded.append(self.builder.binary("max", blocks[-1].args[-1], end))
        if self.reach is not None and self.may_store(op):
            for block in blocks:
                block.args.append(Value(i64))
            total = self.builder.binary("add", blocks[-1].args[-1], self.reach.position)
            yielded.append(total)
        return yielded

    def _zeros(self, values: list[Value]) -> list[Value]:
        return [self.builder.constant(0, i64) for _ in values]

    def _leave(
        self,
        around: Reach | None,
        carried: list[Value],
        op: ops.For | ops.While | None = None,
        count: Value | None = None,
    ) -> None:
        """End what `_reaching` began, a loop; with a ``count`` it will be recorded itself."""
        inner, self.reach = self.reach, around
        if inner is None or around is None:
            return
        ends = {**inner.ends, **dict(zip(inner.carried, carried, strict=False))}
        if op is None or count is None:
            around.ends.update(ends)
            return
        builder, stored = self.builder, carried[-1] if self.may_store(op) else None
        if stored is not None:
            ends = self.without_stored(op, ends, stored)
        start = around.position = around.ends[op] = self.end_of(op, around.position, count, stored)
        for each, end in ends.items():
            add = partial(builder.binary, "add", start, end)
            around.ends[each] = builder.early(add, start, end)

    def _join_reach(
        self, blocks: list[Block], reaches: list[Reach | None]
    ) -> list[Operation | None]:
        """Let both sides of an if yield how far their loops reach, and, for None, the position."""
        if None in reaches or not any(reach.ends for reach in reaches if reach is not None):
            return []
        known = [reach for reach in reaches if reach is not None]
        keys = list(dict.fromkeys(op for reach in known for op in reach.ends))
        zero = self.builder.constant(0, i64)
        for block, reach in zip(blocks, known, strict=True):
            terminator = block.ops[-1]
            assert isinstance(terminator, ops.Yield)
            ends = [reach.ends.get(op, zero) for op in keys]
            terminator.values = [*terminator.values, *ends, reach.position]
        return [*keys, None]

    def _know_reach(self, keys: list[Operation | None], values: list[Value]) -> None:
        for op, value in zip(keys, values, strict=True):
            assert self.reach is not None
            if op is None:
                self.reach.position = value
            else:
                self.reach.ends[op] = value

    def _bind_all(self, primal: Sequence[Hashable], new: list[Value]) -> None:
        for key, value in zip(primal, new, strict=False):
            self.bind(key, value)

    def _record(self, op: ops.For | ops.While) -> Record:
        """The record of a loop, which may be checked before it is pushed to."""
        if op not in self.records:
            self.records[op] = Record("r", self._slots(op), op.location, self.capacity)
        return self.records[op]

    def _slots(self, op: ops.For | ops.While) -> list[DType]:
        """The types of what the record of a loop holds."""
        return [value.type for value in op.inits]


def _bits_type(dtype: DType) -> DType | None:
    """The unsigned type that holds the bits of a float; None for others."""
    return by_name(f"u{dtype.bits}") if dtype.is_float else None


_PLAIN: dict[type[Operation], Callable[[Replayer, Any], None]] = {
    ops.Load: Replayer._load,
    ops.Store: Replayer._store,
    ops.Atomic: Replayer._atomic,
    ops.CompareExchange: Replayer._atomic,
    ops.Subgroup: Replayer._subgroup,
    ops.Barrier: Replayer._barrier,
    ops.Print: Replayer._nothing,
    ops.Assert: Replayer._nothing,
    ops.For: Replayer._plain_for,
    ops.While: Replayer._plain_while,
    ops.If: Replayer._plain_if,
}
