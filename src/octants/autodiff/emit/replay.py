"""Runs a task again so that it can be reversed: selects the emitter of each loop and if."""

from __future__ import annotations

from octants.autodiff.emit.branches import Branches
from octants.autodiff.emit.checkpoints import Capacity
from octants.autodiff.emit.fixed_length_blocks import LoopInFixedLengthBlocks
from octants.autodiff.emit.loop_recording import LoopInBlocks, WholeLoop
from octants.autodiff.emit.primal_emitter import PrimalEmitter
from octants.autodiff.emit.recording_strategy import Strategy
from octants.autodiff.emit.records import RecordStack
from octants.autodiff.emit.stored_loops import StoredLoops
from octants.ir import ops
from octants.ir.core import Block, Operation


class Replay:
    """Emits blocks with the records that their reverse needs, as a plan says."""

    def __init__(self, emitter: PrimalEmitter) -> None:
        self.emitter = emitter
        self.stored_loops = StoredLoops(emitter)
        self.branches = Branches(emitter, self.stored_loops, self.record)

    def query_capacity(self, stack: RecordStack) -> None:
        """Emit the queries of record-buffer capacity, for loops in blocks and for stored loops."""
        emitter = self.emitter
        for op in emitter.facts.body.walk():
            if isinstance(op, ops.Loop):
                emitter.loops[op] = self._strategy(op, stack)
        self.stored_loops.query_capacity(stack)

    def _strategy(self, op: ops.Loop, stack: RecordStack) -> Strategy:
        emitter, plan = self.emitter, self.emitter.plan
        if op not in plan.in_blocks:
            return WholeLoop(emitter, self.stored_loops, op)
        records = emitter.records.of(op), emitter.records.checkpoints_of(op)
        unblocked = plan.unblocked.get(op, 0)
        capacity = Capacity.of(emitter.builder, *records, plan, stack.position, unblocked)
        in_blocks = LoopInFixedLengthBlocks if op in plan.fixed_length else LoopInBlocks
        return in_blocks(emitter, self.stored_loops, op, capacity)

    def record(self, block: Block, stack: RecordStack) -> None:
        """Emit the operations of a block with the records that its reverse needs."""
        emitter = self.emitter
        for op in block.ops[:-1]:
            if not (op.REGIONS and emitter.facts.is_reversed(op)):
                emitter.emit(op)
                continue
            emitter.builder.location = op.location
            if isinstance(op, ops.If):
                self.branches.record(op, stack)
            elif emitter.plan.has_recorded_results(op):
                self._pass_recorded(op, stack)
            elif op in emitter.plan.nests.around:
                assert isinstance(op, ops.Loop)
                self.stored_loops.record_unless_stored(op, emitter.loops[op], stack)
            else:
                self._record_loop(op, stack)

    def _record_loop(self, op: Operation, stack: RecordStack) -> None:
        high_water = self.emitter.high_water
        if stack.is_first:
            high_water.begin()
        self.emitter.loops[op].record(stack)
        if not stack.is_first:
            results = self.emitter.values.mapped(op.results)
            self.emitter.replays.setdefault(op, []).extend(results)
        if stack.is_first:
            high_water.reserve(op, self.emitter.values, self.emitter.records)

    def _pass_recorded(self, op: Operation, stack: RecordStack) -> None:
        """Note the facts of a loop whose results have been read back: it has no record."""
        assert isinstance(op, ops.For)
        values = self.emitter.values
        count = self.emitter.builder.trips(*values.mapped(op.operands[:2]))
        values.note(op, base=stack.position, count=count, end=stack.position)
        if op in self.emitter.plan.nested:
            values.note(op, first=self.stored_loops.first_of_nested(op))
