"""Runs a task forward again, so that it can be reversed: decides who emits a loop, or an if."""

from __future__ import annotations

from octants.autodiff.branches import Branches
from octants.autodiff.checkpoints import Capacity
from octants.autodiff.fixed_length_blocks import LoopInFixedLengthBlocks
from octants.autodiff.loop_recording import LoopInBlocks, WholeLoop
from octants.autodiff.plan import Plan
from octants.autodiff.primal_memory import Flag
from octants.autodiff.recording_strategy import Strategy
from octants.autodiff.records import Stack
from octants.autodiff.stored_loops import StoredLoops
from octants.autodiff.stored_nests import Loop
from octants.autodiff.sweep import Sweep
from octants.autodiff.task_builder import EntryBuilder
from octants.autodiff.task_facts import Facts
from octants.ir import ops
from octants.ir.core import Array, Block, Operation


class Replay:
    """Emits blocks so that they can be reversed, as a plan says.

    `loops` has how each loop is recorded that has a reverse.
    """

    def __init__(
        self,
        builder: EntryBuilder,
        facts: Facts,
        plan: Plan,
        arrays: dict[Array, Array],
        flag: Flag,
        capacity: int,
    ) -> None:
        self.loops: dict[Operation, Strategy] = {}
        self.sweep = Sweep(builder, facts, plan, arrays, flag, capacity, self.loops)
        self.stores = StoredLoops(self.sweep)
        self.branches = Branches(self.sweep, self.stores, self.record)

    def make_room(self, stack: Stack) -> None:
        """Find out the room on the tape of loops in blocks, and for what loops store."""
        sweep = self.sweep
        for op in sweep.facts.body.walk():
            if isinstance(op, (ops.For, ops.While)):
                self.loops[op] = self._strategy(op, stack)
        self.stores.make_room(stack)

    def _strategy(self, op: Loop, stack: Stack) -> Strategy:
        sweep, plan = self.sweep, self.sweep.plan
        if op not in plan.in_blocks:
            return WholeLoop(sweep, self.stores, op)
        records = sweep.records.of(op), sweep.records.checkpoints_of(op)
        room = Capacity.of(sweep.builder, *records, plan, stack.position)
        in_blocks = LoopInFixedLengthBlocks if op in plan.even else LoopInBlocks
        return in_blocks(sweep, self.stores, op, room)

    def record(self, block: Block, stack: Stack) -> None:
        """Emit the operations of a block so that it can be reversed."""
        sweep = self.sweep
        for op in block.ops[:-1]:
            if not (op.REGIONS and sweep.facts.is_reversed(op)):
                sweep.emit(op)
                continue
            sweep.builder.location = op.location
            if isinstance(op, ops.If):
                self.branches.record(op, stack)
            elif op in sweep.plan.nests.around:
                assert isinstance(op, (ops.For, ops.While))
                self.stores.record_unless_kept(op, self.loops[op], stack)
            else:
                self._record_loop(op, stack)

    def _record_loop(self, op: Operation, stack: Stack) -> None:
        reaches = self.sweep.reaches
        if stack.is_first:
            reaches.begin()
        self.loops[op].record(stack)
        if stack.is_first:
            reaches.reserve(op, self.sweep.values, self.sweep.records)
