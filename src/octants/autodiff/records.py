"""The records of a task: which there are, and where they stand on the tape."""

from __future__ import annotations

from octants.autodiff.plan import Plan
from octants.autodiff.stored_nests import Loop
from octants.autodiff.task_builder import EntryBuilder
from octants.ir import ops
from octants.ir.core import CHECKPOINT, LOG, REST, Operation, Record, Value
from octants.lazy_dataclass import dataclass
from octants.types.scalars import DType, i64, u64


@dataclass(eq=False, slots=True)
class Stack:
    """From where on the tape is free (i64, in bytes) as a block is recorded.

    In the `is_first` sweep, room is made for loops in loops, which are recorded later.
    """

    position: Value
    is_first: bool = False


class Records:
    """Makes the records of a task as a plan says, each when it is first asked for.

    With a ``capacity`` those of loops hold so many iterations.
    """

    def __init__(self, builder: EntryBuilder, plan: Plan, capacity: int) -> None:
        self.log = Record(LOG, [u64])
        self._builder = builder
        self._plan = plan
        self._capacity = capacity
        self._loops: dict[Operation, Record] = {}
        self._checkpoints: dict[Operation, Record] = {}
        self._rests: dict[Operation, Record] = {}

    @property
    def of_loops(self) -> dict[Operation, Record]:
        """The records of single iterations, by loop."""
        return self._loops

    def of(self, op: Loop) -> Record:
        """The record of the iterations of a loop."""
        if op not in self._loops:
            local, is_unrolled = self._plan.local.get(op, 0), op in self._plan.unrolled
            self._loops[op] = Record(
                "r", self._slots(op), op.location, self._capacity, local, is_unrolled
            )
        return self._loops[op]

    def checkpoints_of(self, op: Loop) -> Record:
        """The record of the checkpoints of a loop."""
        if op not in self._checkpoints:
            types = [value.type for value in op.inits]
            self._checkpoints[op] = Record(CHECKPOINT, types, op.location)
        return self._checkpoints[op]

    def rest_of(self, op: Loop) -> Record:
        """The record of the iterations of a loop that are in none of its even blocks."""
        if op not in self._rests:
            local = 0 if isinstance(op, ops.For) else self._plan.local[op]
            self._rests[op] = Record(REST, self._slots(op), op.location, 0, local)
        return self._rests[op]

    def _slots(self, op: Loop) -> list[DType]:
        """The types of what the record of an iteration holds."""
        slots = [value.type for value in op.inits]
        if self._plan.nests.has_frames(op):
            slots += self._plan.nests.handed(op.body).values()
        return slots

    def check(self, op: Loop, count: Value) -> None:
        """End the work item unless the record of a loop holds so many iterations, if it is forced.

        Every loop that is recorded is checked where that happens, and the first sweep also checks
        those that it runs plainly because they are recorded later, when an iteration around them is
        reversed. So a work item that overflows ends before anything in it has been reversed. A
        `for` is checked before it runs, a `while` after it has counted itself: both say what they
        need. `simplify.prune` removes the checks of records that hold nothing.
        """
        if self.of(op).capacity:
            self._builder.append(ops.RecordCheck(self.of(op), count))

    # -- where they stand --------------------------------------------------------------------------

    def end(self, record: Record, base: Value, count: Value) -> Value:
        """Where a record ends that begins at a base, of so many iterations."""
        end = ops.RecordEnd(record, base, count, results=[Value(i64)])
        return self._builder.append(end).result

    def base_for(self, record: Record, position: Value, number: Value) -> Value:
        """The base from which the record of an iteration with a number stands at a position."""
        none = self._builder.constant(0, i64)
        return self.end(record, position, self._builder.binary("sub", none, number))

    def push(self, record: Record, base: Value, number: Value, values: list[Value]) -> None:
        """Record the values of an iteration."""
        self._builder.append(ops.RecordPush(record, base, number, values))

    def pop(self, record: Record, base: Value, number: Value, results: list[Value]) -> None:
        """Read the values of an iteration back, as results."""
        self._builder.append(ops.RecordPop(record, base, number, results=results))
