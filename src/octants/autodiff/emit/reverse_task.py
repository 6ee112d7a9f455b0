"""Emits the reverse of one task as planned: a sweep forward, which records, and one backward."""

from __future__ import annotations

from collections.abc import Collection

from octants.autodiff.emit.backward_sweep import Backward
from octants.autodiff.emit.primal_emitter import PrimalEmitter
from octants.autodiff.emit.primal_operations import OnRead
from octants.autodiff.emit.records import RecordStack
from octants.autodiff.emit.replay import Replay
from octants.autodiff.emit.reverse_task_builder import EntryBuilder
from octants.autodiff.facts.task_facts import TaskFacts
from octants.autodiff.improve.loops_first_to_last import LastFirst
from octants.autodiff.improve.recorded_components import record_components
from octants.autodiff.plan.recording_plan import RecordingPlan
from octants.autodiff.plan.stored_nests import LoopUses
from octants.ir import ops
from octants.ir.core import Array, Block, Operation, Record, Value
from octants.lazy_dataclass import dataclass
from octants.target import Capabilities
from octants.types.scalars import i64


@dataclass(frozen=True, slots=True)
class Emitted:
    """The body of a reversed task.

    `records` are the records of its loops. `copies`, `runs`, `replays` and `unknown` are those of
    the `PrimalEmitter`. `derivative_ops` are the operations that compute derivatives, `origins` the
    primal operations of which others are copies. `last_first` are the loops of the backward sweep.
    """

    body: Block
    records: dict[Operation, Record]
    copies: dict[Operation, list[Operation]]
    runs: dict[Operation, list[Operation]]
    replays: dict[Operation, list[Value]]
    unknown: set[Value]
    derivative_ops: set[Operation]
    origins: dict[Operation, Operation]
    last_first: LastFirst

    @property
    def is_known(self) -> bool:
        """Whether the body, pruned, uses no results of late loops."""
        return not self.unknown or all(
            self.unknown.isdisjoint(op.operands) for op in self.body.walk()
        )

    def loop_uses(self, left: Collection[Operation], used: Collection[Value]) -> LoopUses:
        """How the sweeps use the loops, from the operations and the operands that pruning left."""
        return LoopUses(
            self.records,
            [op for op, copies in self.copies.items() if any(each in left for each in copies)],
            [op for op, copies in self.runs.items() if any(each in left for each in copies)],
            {op: sum(value in used for value in found) for op, found in self.replays.items()},
        )


def emit(
    facts: TaskFacts,
    plan: RecordingPlan,
    arrays: dict[Array, Array],
    on_read: OnRead,
    overwritten: frozenset[Array],
    machine: Capabilities,
) -> Emitted:
    """Emit the reverse of a task.

    Args:
        facts: the facts of the task.
        plan: how its loops are recorded.
        arrays: maps primal arrays to those of the reverse kernel.
        on_read: called for each read of primal memory.
        overwritten: the arrays to which a task with a log repeats its stores.
        machine: whether sums may be contracted, and the forced capacity of records.

    Returns:
        The body and what belongs to it, not pruned.
    """
    primal = facts.body
    body = Block([Value(arg.type, arg.name) for arg in primal.args])
    builder = EntryBuilder(body, contracts=machine.contracts)
    emitter = PrimalEmitter(builder, facts, plan, arrays, on_read, machine.capacity)
    replay, stack = Replay(emitter), RecordStack(builder.constant(0, i64), is_first=True)
    emitter.values.bind_all(primal.args, body.args)
    if facts.log is not None:
        _rerun_stores(emitter, stack, overwritten)
    replay.query_capacity(stack)
    with emitter.memory.storing_shared(True):
        replay.record(primal, stack)
    backward = Backward(replay)
    backward.reverse(primal)
    builder.yield_()
    body.ops[:0] = builder.entry
    record_components(body, list(emitter.records.of_loops.values()), emitter.memory.component_reads)
    return Emitted(
        body,
        emitter.records.of_loops,
        emitter.copies,
        emitter.runs,
        emitter.replays,
        emitter.unknown,
        backward.derivative_ops,
        emitter.memory.origins,
        backward.last_first,
    )


def _rerun_stores(
    emitter: PrimalEmitter, stack: RecordStack, overwritten: frozenset[Array]
) -> None:
    """Run the task forward with its stores, and log what hazardous loads read."""
    log = emitter.facts.log
    assert log is not None and log.end is not None
    builder, record = emitter.builder, emitter.records.log
    with emitter.memory.storing(overwritten):
        emitter.emit_block(log.body)
    base, end = builder.constant(0, i64), emitter.values[log.end]
    if emitter.memory.varying_positions:
        one = builder.constant(1, i64)
        end = builder.binary("max", end, one)
        builder.append(ops.RecordReserve(record, emitter.records.end(record, base, end)))
        emitter.memory.last_logged = builder.binary("sub", end, one)
    stack.position = emitter.records.end(record, base, end)
