"""The records of a task, and their positions in the record buffer."""

from __future__ import annotations

from octants.autodiff.emit.reverse_task_builder import EntryBuilder
from octants.autodiff.plan.recording_plan import RecordingPlan
from octants.ir import ops
from octants.ir.core import CHECKPOINT, LOG, REST, Operation, Record, Value
from octants.lazy_dataclass import dataclass
from octants.types.scalars import DType, i64, u64


@dataclass(eq=False, slots=True)
class RecordStack:
    """The position from which the record buffer is free (i64, bytes) while a block is recorded.

    In the `is_first` sweep, space is reserved for the loops in loops, which are recorded later.
    """

    position: Value
    is_first: bool = False


class Records:
    """Makes the records of a task as planned, each when it is first used.

    With a forced ``capacity``, those of loops hold so many iterations. `log` is the record of
    logged reads.
    """

    def __init__(self, builder: EntryBuilder, plan: RecordingPlan, capacity: int) -> None:
        self.log = Record(LOG, [u64])
        self._builder = builder
        self._plan = plan
        self._capacity = capacity
        self._loops: dict[Operation, Record] = {}
        self._checkpoints: dict[Operation, Record] = {}
        self._remainders: dict[Operation, Record] = {}

    @property
    def of_loops(self) -> dict[Operation, Record]:
        """The records of the iterations of loops, by loop."""
        return self._loops

    def of(self, op: ops.Loop) -> Record:
        """The record of the iterations of a loop."""
        if op not in self._loops:
            local, is_unrolled = self._plan.local.get(op, 0), op in self._plan.unrolled
            self._loops[op] = Record(
                "r", self._slots(op), op.location, self._capacity, local, is_unrolled
            )
        return self._loops[op]

    def checkpoints_of(self, op: ops.Loop) -> Record:
        """The record of the checkpoints of a loop."""
        if op not in self._checkpoints:
            types = [value.type for value in op.inits]
            self._checkpoints[op] = Record(CHECKPOINT, types, op.location)
        return self._checkpoints[op]

    def remainder_of(self, op: ops.Loop) -> Record:
        """The record of the iterations behind the last fixed-length block of a loop."""
        if op not in self._remainders:
            local = self._plan.unblocked[op] if isinstance(op, ops.For) else self._plan.local[op]
            self._remainders[op] = Record(REST, self._slots(op), op.location, 0, local)
        return self._remainders[op]

    def _slots(self, op: ops.Loop) -> list[DType]:
        """The types of the slots in the record of an iteration."""
        slots = [value.type for value in op.inits]
        slots += [value.type for value in self._plan.recorded_results(op)]
        if self._plan.nests.has_frames(op):
            slots += self._plan.nests.exports(op.body).values()
        return slots

    def check(self, op: ops.Loop, count: Value) -> None:
        """End the work item unless a record of forced capacity holds so many iterations.

        The check is emitted where a loop is recorded, and in the first sweep also for the loops
        that are recorded later, when an iteration around them is reversed: a work item that
        overflows ends before anything in it has been reversed. A `for` is checked before it runs, a
        `while` after it has counted itself. `simplify.dead_code` removes the checks of records
        without slots.

        Args:
            op: the primal loop.
            count: its trip count (i64).
        """
        if self.of(op).capacity:
            self._builder.append(ops.RecordCheck(self.of(op), count))

    # -- positions ---------------------------------------------------------------------------------

    def end(self, record: Record, base: Value, count: Value) -> Value:
        """The position (i64, bytes) at which ``count`` iterations end that begin at ``base``."""
        end = ops.RecordEnd(record, base, count, results=[Value(i64)])
        return self._builder.append(end).result

    def base_for(self, record: Record, position: Value, number: Value) -> Value:
        """The base of a record for which the iteration ``number`` is at ``position``."""
        none = self._builder.constant(0, i64)
        return self.end(record, position, self._builder.binary("sub", none, number))

    def push(self, record: Record, base: Value, number: Value, values: list[Value]) -> None:
        """Record the values of an iteration."""
        self._builder.append(ops.RecordPush(record, base, number, values))

    def pop(self, record: Record, base: Value, number: Value, results: list[Value]) -> None:
        """Read the values of an iteration back, into ``results``."""
        self._builder.append(ops.RecordPop(record, base, number, results=results))
