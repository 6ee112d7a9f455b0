"""Computes what the records of a nest's inner loops will take; the first sweep reserves that much.

An inner loop is recorded when an iteration around it is reversed. By then adjoints have been
changed: if memory ran out there, half a gradient would be left behind. So the first sweep, which
runs inner loops without recording them, computes where their records would end, and reserves that
much before anything is reversed. The loops around carry the furthest end so far of each inner
loop::

    %far = for(%lower, %upper, ..., 0) { (%i, ..., %far):
      ...
      %trips = ...
      %end = record_end<#inner>(0, %trips)
      yield(..., max(%far, %end))
    }
    %end = record_end<#outer>(%base, ...)
    record_reserve<#inner>(%end + %far)

Ends that do not depend on the loop are not carried, and `simplify.dead_code` removes the
computation for loops that record nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from functools import partial

from octants.autodiff.emit.primal_values import PrimalValues
from octants.autodiff.emit.recording_strategy import Strategy
from octants.autodiff.emit.records import Records
from octants.autodiff.emit.reverse_task_builder import EntryBuilder
from octants.autodiff.plan.stored_nests import StoredNests
from octants.ir import ops
from octants.ir.core import Block, Operation, Value
from octants.lazy_dataclass import dataclass
from octants.types.scalars import i64


@dataclass(eq=False, slots=True)
class HighWaterMark:
    """The bytes (i64) that a block's loops take in the record buffer, from its start on.

    `position` is where the record buffer is free after the loops of the block so far. `ends` maps
    each loop in it to the furthest end of its record, `carried` are the loops whose end differs
    between iterations.
    """

    position: Value
    ends: dict[Operation, Value] = field(default_factory=dict)
    carried: list[Operation] = field(default_factory=list)


class HighWaterMarks:
    """Tracks the high-water mark of each block that the first sweep emits.

    Around the body of a loop, call `enter` before it, `carry` behind it, and `leave` behind the
    loop.
    """

    def __init__(
        self, builder: EntryBuilder, nests: StoredNests, loops: Mapping[Operation, Strategy]
    ) -> None:
        self._builder = builder
        self._nests = nests
        self._loops = loops
        self._current: HighWaterMark | None = (
            None  # of the block that is emitted, in the first sweep
        )

    @property
    def is_tracking(self) -> bool:
        """Whether loops that are run here are recorded later, if they have a reverse."""
        return self._current is not None

    def begin(self) -> None:
        """Begin with an outermost loop, which the first sweep records."""
        self._current = HighWaterMark(self._builder.constant(0, i64))

    def reserve(self, op: Operation, values: PrimalValues, records: Records) -> None:
        """Reserve space behind an outermost recorded loop for the loops in it, and end tracking."""
        assert self._current is not None
        builder, start = self._builder, values[op, "end"]
        for each, end in self._current.ends.items():
            far = builder.binary("add", start, end)
            if not self._loops[op].in_blocks and self._nests.is_stored_in(each, op):
                top, stored_end = values[op, "top"], values[op, "stored_end"]
                far = builder.select(builder.compare("le", top, stored_end), start, far)
            builder.append(ops.RecordReserve(records.of_loops[each], far))
        self._current = None

    # -- loops -------------------------------------------------------------------------------------

    def enter(self) -> HighWaterMark | None:
        """Begin the body of a loop; gives the mark of the block around it, for `leave`."""
        around = self._current
        if around is not None:
            self._current = HighWaterMark(self._builder.constant(0, i64))
        return around

    def carry(self, op: Operation | None, *blocks: Block) -> list[Value]:
        """Let a loop carry the furthest ends of the loops in it.

        Args:
            op: the primal loop; if others may be stored with it, it also carries the bytes of all
                records in it.
            blocks: the regions of the loop; the last one is its body.

        Returns:
            The further values that the body yields.
        """
        yielded: list[Value] = []
        current = self._current
        if current is None:
            return yielded
        for inner, end in current.ends.items():
            if end in self._builder.entry_values:
                continue
            current.carried.append(inner)
            for block in blocks:
                block.args.append(Value(i64))
            yielded.append(self._builder.binary("max", blocks[-1].args[-1], end))
        if self._nests.has_frames(op):
            for block in blocks:
                block.args.append(Value(i64))
            total = self._builder.binary("add", blocks[-1].args[-1], current.position)
            yielded.append(total)
        return yielded

    def zeros(self, carried: list[Value]) -> list[Value]:
        """The initial values of so many further carried values."""
        return [self._builder.constant(0, i64) for _ in carried]

    def leave(
        self,
        around: HighWaterMark | None,
        carried: Sequence[Value],
        op: ops.Loop | None = None,
        count: Value | None = None,
    ) -> None:
        """End what `enter` began.

        Args:
            around: the mark that `enter` gave.
            carried: the results of the further carried values.
            op: the primal loop.
            count: its trip count (i64), if it is recorded later.
        """
        inner, self._current = self._current, around
        if inner is None or around is None:
            return
        ends = {**inner.ends, **dict(zip(inner.carried, carried, strict=False))}
        if op is None or count is None:
            around.ends.update(ends)
            return
        builder, loop = self._builder, self._loops[op]
        stored = builder.longest(carried[-1]) if self._nests.has_frames(op) else None
        if stored is not None:
            ends = loop.ends_unless_stored(ends, stored)
        start = loop.furthest_end(around.position, count, stored)
        around.position = around.ends[op] = start
        for each, end in ends.items():
            add = partial(builder.binary, "add", start, end)
            around.ends[each] = builder.hoisted(add, start, end)

    @contextmanager
    def in_condition(self) -> Iterator[None]:
        """Emit the condition of a loop inside the context; it is not reversed."""
        around, self._current = self._current, None
        yield
        self._current = around

    # -- branches ----------------------------------------------------------------------------------

    def branches(self) -> BranchMarks:
        """Begin an if."""
        return BranchMarks(self)


class BranchMarks:
    """The high-water marks of the two branches of an if, which are emitted one after the other.

    Call `branch` around each branch, `join` before the if is built, and `note` after it.
    """

    def __init__(self, high_water: HighWaterMarks) -> None:
        self._marks = high_water
        self._around = high_water._current
        self._found: list[HighWaterMark | None] = []
        self._keys: list[Operation | None] = []

    @contextmanager
    def branch(self) -> Iterator[None]:
        """Emit one branch inside the context."""
        self._marks._current = self._around and HighWaterMark(self._around.position)
        yield
        self._found.append(self._marks._current)
        self._marks._current = self._around

    def join(self, blocks: list[Block]) -> None:
        """Let both branches yield how far their loops reach, and the free position."""
        found = [reach for reach in self._found if reach is not None]
        if not any(reach.ends for reach in found):
            return
        keys = list(dict.fromkeys(op for reach in found for op in reach.ends))
        zero = self._marks._builder.constant(0, i64)
        for block, reach in zip(blocks, found, strict=True):
            terminator = block.ops[-1]
            assert isinstance(terminator, ops.Yield)
            ends = [reach.ends.get(op, zero) for op in keys]
            terminator.values = [*terminator.values, *ends, reach.position]
        self._keys = [*keys, None]

    def note(self, values: list[Value]) -> None:
        """Note what the if yields for `join`, behind its own results."""
        for op, value in zip(self._keys, values, strict=True):
            assert self._around is not None
            if op is None:
                self._around.position = value
            else:
                self._around.ends[op] = value
