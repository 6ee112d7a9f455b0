"""Emits copies of primal operations without regions: scalar ones, loads, stores, atomics.

A replay has no side effects on primal arrays, with two exceptions. The first sweep of a task that
is reversed on the memory from before it repeats the stores to what the task overwrites, and saves
what hazardous loads read. A sweep over cooperating work items stores to shared arrays again
(`cooperative_tasks`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from octants.analysis.memory.repeated_reads import RepeatedReads
from octants.autodiff.emit.primal_values import PrimalValues
from octants.autodiff.emit.reverse_task_builder import EntryBuilder
from octants.autodiff.facts.hazardous_reads import ReadLog
from octants.autodiff.facts.task_facts import TaskFacts
from octants.autodiff.plan.stored_nests import outermost_loops
from octants.ir import ops
from octants.ir.core import Array, Companion, Operation, Record, Space, Value, rebuild
from octants.types.scalars import i64, u64

OnRead = Callable[[Operation, Operation, str], None]
"""Called for each read of primal memory with: the new operation, the primal one, the kind.

The kinds are those of `kernel_facts.Analysis.later_writes`, and "shared".
"""


class PrimalMemory:
    """Emits the copies, and reports what they read.

    `arrays` maps primal arrays to those of the reverse kernel, `origins` the copies of scalar
    operations to these. ``log`` is the record of logged reads. `varying_positions` are positions in
    it that may differ in a replay (`analysis.memory.repeated_reads`); none goes beyond
    `last_logged`.
    """

    def __init__(
        self,
        builder: EntryBuilder,
        facts: TaskFacts,
        values: PrimalValues,
        arrays: dict[Array, Array],
        on_read: OnRead,
        log: Record,
    ) -> None:
        self.arrays = arrays
        self.component_reads: dict[Operation, list[Operation]] = {}
        self.origins: dict[Operation, Operation] = {}
        self._builder = builder
        self._facts = facts
        self._values = values
        self._on_read = on_read
        self._log = log
        self.varying_positions = _varying_positions(facts.log)
        self.last_logged: Value | None = None
        self._stored: frozenset[Array] = frozenset()
        self._stores_shared = False

    @contextmanager
    def storing(self, arrays: frozenset[Array]) -> Iterator[None]:
        """Repeat the stores to some arrays inside the context, and write the log."""
        self._stored = arrays
        yield
        self._stored = frozenset()

    @contextmanager
    def storing_shared(self, stores: bool) -> Iterator[None]:
        """Repeat the stores to shared arrays inside the context, or not."""
        self._stores_shared = stores
        yield
        self._stores_shared = False

    def emit(self, op: Operation) -> None:
        """Emit a copy of an operation without regions."""
        _EMIT[type(op)](self, op)

    def emit_scalar(self, op: Operation) -> None:
        """Emit a copy of a scalar operation."""
        values = self._values
        if isinstance(op, ops.Constant):
            values.bind(op.result, self._builder.constant(op.value, op.result.type))
            return
        new = rebuild(op, values.mapped(op.operands))
        if isinstance(new, ops.Shape):
            new.array = self.arrays[new.array]
        if isinstance(op, ops.Extract):
            self.component_reads.setdefault(op, []).append(new)
        self.origins[new] = op
        values.bind_all(op.results, self._builder.append(new).results)

    def read(self, op: Any, kind: str) -> Value:
        """Load the element that a primal operation accessed, and report the read."""
        indices = self._values.mapped(op.indices)
        result = self._builder.load(self.arrays[op.array], indices, op.companion)
        if op.array.space is not Space.SHARED:
            self._on_read(self._builder.block.ops[-1], op, kind)
        elif not self._stores_shared:
            self._on_read(self._builder.block.ops[-1], op, "shared")
        return result

    def _load(self, op: ops.Load) -> None:
        if self._facts.is_saved(op):
            self._saved(op, op.result, op.array)
            return
        self._values.bind(op.result, self.read(op, "load"))

    def _saved(self, op: Any, result: Value, array: Array) -> None:
        """Emit a hazardous read.

        The first sweep reads. Replays use what it read if it did so once, or else read the log.
        """
        log, builder = self._facts.log, self._builder
        assert log is not None
        is_first, is_logged = array in self._stored, op in log.positions
        if is_first:
            self._values.bind(result, self._run(op))
        if not is_logged:
            if not is_first:
                self._values.bind(result, self._values[log.once[op]])
            return
        position = self._values[log.positions[op]]
        self._log.location = self._log.location or op.location
        base = builder.constant(0, i64)
        if is_first:
            word = builder.word(self._values[result])
            builder.append(ops.RecordPush(self._log, base, position, [word]))
            return
        if log.positions[op] in self.varying_positions:
            assert self.last_logged is not None
            position = builder.binary("min", position, self.last_logged)
        pop = ops.RecordPop(self._log, base, position, results=[Value(u64)])
        word = builder.append(pop).result
        if array in log.shared and not isinstance(op, ops.Load):
            self._on_read(pop, op, "atomic")
        self._values.bind(result, builder.of_word(word, array.dtype))

    def _run(self, op: Any) -> Value:
        """The result of a copy of an operation with its effect on memory."""
        new: Any = rebuild(op, self._values.mapped(op.operands))
        new.array = self.arrays[op.array]
        return self._builder.append(new).result

    def _store(self, op: ops.Store) -> None:
        if op.array in self._stored and op.companion is Companion.PRIMAL:
            value, *indices = self._values.mapped(op.operands)
            self._builder.store(self.arrays[op.array], indices, value)
        elif self._stores_shared and op.array.space is Space.SHARED:
            value, *indices = self._values.mapped(op.operands)
            array = self.arrays[op.array]
            self._builder.store(array, indices, value)
            if array.has(Companion.ADJOINT):
                zero = self._builder.constant(0, array.dtype)
                self._builder.store(array, indices, zero, Companion.ADJOINT)

    def _atomic(self, op: ops.Atomic | ops.CompareExchange) -> None:
        """Do not repeat an atomic, unless the first sweep has to, and logs its result."""
        if self._facts.is_saved(op):
            self._saved(op, op.result, op.array)
        elif op.array.space is not Space.SHARED:
            self._values.bind(op.result, self.read(op, "atomic"))
        elif self._stores_shared:  # its result has no uses
            self._run(op)

    def _barrier(self, op: ops.Barrier) -> None:
        """Repeat a barrier."""
        self._builder.barrier(op.scope)

    def _subgroup(self, op: ops.Subgroup) -> None:
        """Repeat an operation that all lanes reach."""
        new = rebuild(op, self._values.mapped(op.operands))
        self._values.bind(op.result, self._builder.append(new).result)

    def _custom_derivative(self, op: ops.CustomDerivative) -> None:
        """Let the values stand for the results."""
        self._values.bind_all(op.results, self._values.mapped(op.values))

    def _nothing(self, op: Operation) -> None:
        """Leave prints and assertions out."""


def _varying_positions(log: ReadLog | None) -> set[Value]:
    """The positions in a log that depend on memory that is read again, and not from the log."""
    if log is None:
        return set()
    return RepeatedReads(outermost_loops(log.body), log.positions).values.intersection(
        log.positions.values()
    )


_EMIT: dict[type[Operation], Callable[[PrimalMemory, Any], None]] = {
    ops.Load: PrimalMemory._load,
    ops.Store: PrimalMemory._store,
    ops.Atomic: PrimalMemory._atomic,
    ops.CompareExchange: PrimalMemory._atomic,
    ops.Subgroup: PrimalMemory._subgroup,
    ops.Barrier: PrimalMemory._barrier,
    ops.CustomDerivative: PrimalMemory._custom_derivative,
    ops.Print: PrimalMemory._nothing,
    ops.Assert: PrimalMemory._nothing,
}
