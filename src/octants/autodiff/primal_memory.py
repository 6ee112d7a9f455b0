"""Emits copies of primal operations that are scalar or access memory.

A replay has no primal side effects, but for two. The first sweep of a task that is reversed on the
memory from before it runs the stores to what it overwrites, and logs what hazardous loads read. A
sweep over work items that share memory writes shared arrays again (see `cooperation`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from octants.autodiff.primal_values import PrimalValues
from octants.autodiff.task_builder import EntryBuilder
from octants.autodiff.task_facts import Facts
from octants.ir import ops
from octants.ir.core import Array, Companion, Operation, Record, Space, Value, rebuild
from octants.types.scalars import i64, u64

Flag = Callable[[Operation, Operation, str], None]
"""Told of each read of primal memory: the new operation, the primal one, what is read."""


class PrimalMemory:
    """Emits them over ``arrays``, which stand for the primal ones, and flags what it reads.

    ``log`` is the record of what the first sweep reads.
    """

    def __init__(
        self,
        builder: EntryBuilder,
        facts: Facts,
        values: PrimalValues,
        arrays: dict[Array, Array],
        flag: Flag,
        log: Record,
    ) -> None:
        self.arrays = arrays
        self._builder = builder
        self._facts = facts
        self._values = values
        self._flag = flag
        self._log = log
        self._stored: frozenset[Array] = frozenset()
        self._shares = False

    @contextmanager
    def storing(self, arrays: frozenset[Array]) -> Iterator[None]:
        """Have stores to some arrays run, and the log written, meanwhile."""
        self._stored = arrays
        yield
        self._stored = frozenset()

    @contextmanager
    def sharing(self, shares: bool) -> Iterator[None]:
        """Have shared arrays written again meanwhile, or not."""
        self._shares = shares
        yield
        self._shares = False

    def emit(self, op: Operation) -> None:
        """Emit a copy of an operation without regions."""
        _EMIT[type(op)](self, op)

    def emit_scalar(self, op: Operation) -> None:
        """Emit a copy of one that is scalar."""
        values = self._values
        if isinstance(op, ops.Constant):
            values.bind(op.result, self._builder.constant(op.value, op.result.type))
            return
        new = rebuild(op, values.mapped(op.operands))
        if isinstance(new, ops.Shape):
            new.array = self.arrays[new.array]
        values.bind(op.results[0], self._builder.append(new).result)

    def read(self, op: Any, kind: str) -> Value:
        """Load where a primal access went, noting that the value is needed."""
        indices = self._values.mapped(op.indices)
        result = self._builder.load(self.arrays[op.array], indices, op.companion)
        if op.array.space is not Space.SHARED:
            self._flag(self._builder.block.ops[-1], op, kind)
        elif not self._shares:
            self._flag(self._builder.block.ops[-1], op, "shared")
        return result

    def _load(self, op: ops.Load) -> None:
        if self._facts.is_logged(op):
            self._logged(op, op.result, op.array)
            return
        self._values.bind(op.result, self.read(op, "load"))

    def _logged(self, op: Any, result: Value, array: Array) -> None:
        """A hazardous read: the first sweep reads and logs, replays take it from the log."""
        log = self._facts.log
        assert log is not None
        builder = self._builder
        position = self._values[log.positions[op]]
        self._log.location = self._log.location or op.location
        base = builder.constant(0, i64)
        if array in self._stored:
            value = self._run(op)
            self._values.bind(result, value)
            builder.append(ops.RecordPush(self._log, base, position, [builder.word(value)]))
            return
        pop = ops.RecordPop(self._log, base, position, results=[Value(u64)])
        word = builder.append(pop).result
        if array in log.shared and not isinstance(op, ops.Load):
            self._flag(pop, op, "atomic")
        self._values.bind(result, builder.of_word(word, array.dtype))

    def _run(self, op: Any) -> Value:
        """The result of a copy of an operation, which does to memory what that did."""
        new: Any = rebuild(op, self._values.mapped(op.operands))
        new.array = self.arrays[op.array]
        return self._builder.append(new).result

    def _store(self, op: ops.Store) -> None:
        if op.array in self._stored and op.companion is Companion.PRIMAL:
            value, *indices = self._values.mapped(op.operands)
            self._builder.store(self.arrays[op.array], indices, value)
        elif self._shares and op.array.space is Space.SHARED:
            value, *indices = self._values.mapped(op.operands)
            array = self.arrays[op.array]
            self._builder.store(array, indices, value)
            if array.has(Companion.ADJOINT):
                zero = self._builder.constant(0, array.dtype)
                self._builder.store(array, indices, zero, Companion.ADJOINT)

    def _atomic(self, op: ops.Atomic | ops.CompareExchange) -> None:
        """An atomic is not run again; only what the first sweep must run, and log, is."""
        if self._facts.is_logged(op):
            self._logged(op, op.result, op.array)
        elif op.array.space is not Space.SHARED:
            self._values.bind(op.result, self.read(op, "atomic"))
        elif self._shares:  # what it returns is of no use to anybody
            self._run(op)

    def _barrier(self, op: ops.Barrier) -> None:
        """The work items of a block wait for each other as they did."""
        self._builder.barrier(op.scope)

    def _subgroup(self, op: ops.Subgroup) -> None:
        """All lanes come here again."""
        new = rebuild(op, self._values.mapped(op.operands))
        self._values.bind(op.result, self._builder.append(new).result)

    def _nothing(self, op: Operation) -> None:
        """Prints and assertions of the forward run are not repeated."""


_EMIT: dict[type[Operation], Callable[[PrimalMemory, Any], None]] = {
    ops.Load: PrimalMemory._load,
    ops.Store: PrimalMemory._store,
    ops.Atomic: PrimalMemory._atomic,
    ops.CompareExchange: PrimalMemory._atomic,
    ops.Subgroup: PrimalMemory._subgroup,
    ops.Barrier: PrimalMemory._barrier,
    ops.Print: PrimalMemory._nothing,
    ops.Assert: PrimalMemory._nothing,
}
