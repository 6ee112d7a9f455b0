"""How far the records of a nest will reach: what memory the reverse run comes to need in the end.

An inner loop is recorded when an iteration around it is reversed, and by then adjoints have been
changed: memory that is refused there would leave half a gradient. So the first sweep, which runs
inner loops plainly, finds out where their records would end, and asks for that much before anything
is reversed. For each of these loops the loops around it carry the furthest end so far::

    %far = for(%lower, %upper, ..., 0) { (%i, ..., %far):
      ...
      %trips = ...
      %end = record_end<#inner>(0, %trips)
      yield(..., max(%far, %end))
    }
    %end = record_end<#outer>(%base, ...)
    record_reserve<#inner>(%end + %far)

What does not depend on the loop is not carried, and `simplify.prune` removes what is found out
about loops that record nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from functools import partial

from octants.autodiff.primal_values import PrimalValues
from octants.autodiff.recording_strategy import Strategy
from octants.autodiff.records import Records
from octants.autodiff.stored_nests import Loop, Nests
from octants.autodiff.task_builder import EntryBuilder
from octants.ir import ops
from octants.ir.core import Block, Operation, Value
from octants.lazy_dataclass import dataclass
from octants.types.scalars import i64


@dataclass(eq=False, slots=True)
class Reach:
    """Positions from where the stack is free at the start of a block, in bytes (i64).

    `position` is where it is free after the loops of the block so far. `ends` has the furthest end
    of the record of each loop in it, `carried` the loops whose end differs between iterations.
    """

    position: Value
    ends: dict[Operation, Value] = field(default_factory=dict)
    carried: list[Operation] = field(default_factory=list)


class HighWaterMarks:
    """Finds out the reach of each block that the first sweep emits.

    Where a loop is emitted `enter` comes before its body, `carry` after it, `leave` after the loop.
    """

    def __init__(
        self, builder: EntryBuilder, nests: Nests, loops: Mapping[Operation, Strategy]
    ) -> None:
        self._builder = builder
        self._nests = nests
        self._loops = loops
        self._current: Reach | None = None  # of the block that is emitted, in the first sweep

    @property
    def is_sought(self) -> bool:
        """Whether loops that run here are recorded later, if they have a reverse."""
        return self._current is not None

    def begin(self) -> None:
        """Begin with a loop that is recorded in the first sweep, around which there is none."""
        self._current = Reach(self._builder.constant(0, i64))

    def reserve(self, op: Operation, values: PrimalValues, records: Records) -> None:
        """Make room behind a loop that is recorded for those in it, and end what was begun."""
        assert self._current is not None
        builder, start = self._builder, values[op, "end"]
        for each, end in self._current.ends.items():
            far = builder.binary("add", start, end)
            if not self._loops[op].in_blocks and self._nests.is_stored_in(each, op):
                top, kept = values[op, "top"], values[op, "kept"]
                far = builder.select(builder.compare("le", top, kept), start, far)
            builder.append(ops.RecordReserve(records.of_loops[each], far))
        self._current = None

    # -- loops -------------------------------------------------------------------------------------

    def enter(self) -> Reach | None:
        """Begin the body of a loop; gives the reach around it, for `leave`."""
        around = self._current
        if around is not None:
            self._current = Reach(self._builder.constant(0, i64))
        return around

    def carry(self, op: Operation | None, *blocks: Block) -> list[Value]:
        """What the body of a loop, the last block, yields more: it carries how far loops reach.

        A loop with which others may be stored also carries the bytes of all that is recorded in it.
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
        """What a loop starts with that carries so much more."""
        return [self._builder.constant(0, i64) for _ in carried]

    def leave(
        self,
        around: Reach | None,
        carried: Sequence[Value],
        op: Loop | None = None,
        count: Value | None = None,
    ) -> None:
        """End what `enter` began, of a loop; with a ``count`` it will be recorded itself.

        ``carried`` are the results of what it carries more.
        """
        inner, self._current = self._current, around
        if inner is None or around is None:
            return
        ends = {**inner.ends, **dict(zip(inner.carried, carried, strict=False))}
        if op is None or count is None:
            around.ends.update(ends)
            return
        builder, loop = self._builder, self._loops[op]
        stored = carried[-1] if self._nests.has_frames(op) else None
        if stored is not None:
            ends = loop.ends_unless_stored(ends, stored)
        start = loop.furthest_end(around.position, count, stored)
        around.position = around.ends[op] = start
        for each, end in ends.items():
            add = partial(builder.binary, "add", start, end)
            around.ends[each] = builder.early(add, start, end)

    @contextmanager
    def in_condition(self) -> Iterator[None]:
        """Emit the condition of a loop meanwhile, which is not reversed."""
        around, self._current = self._current, None
        yield
        self._current = around

    # -- branches ----------------------------------------------------------------------------------

    def sides(self) -> Sides:
        """Begin an if."""
        return Sides(self)


class Sides:
    """The reaches of the two sides of an if, which are emitted one after the other.

    After the `side`s comes `join`, before the if is built, and then `know`.
    """

    def __init__(self, reaches: HighWaterMarks) -> None:
        self._reaches = reaches
        self._around = reaches._current
        self._found: list[Reach | None] = []
        self._keys: list[Operation | None] = []

    @contextmanager
    def side(self) -> Iterator[None]:
        """Emit one side meanwhile."""
        self._reaches._current = self._around and Reach(self._around.position)
        yield
        self._found.append(self._reaches._current)
        self._reaches._current = self._around

    def join(self, blocks: list[Block]) -> None:
        """Let both sides yield how far their loops reach, and the position."""
        found = [reach for reach in self._found if reach is not None]
        if not any(reach.ends for reach in found):
            return
        keys = list(dict.fromkeys(op for reach in found for op in reach.ends))
        zero = self._reaches._builder.constant(0, i64)
        for block, reach in zip(blocks, found, strict=True):
            terminator = block.ops[-1]
            assert isinstance(terminator, ops.Yield)
            ends = [reach.ends.get(op, zero) for op in keys]
            terminator.values = [*terminator.values, *ends, reach.position]
        self._keys = [*keys, None]

    def know(self, values: list[Value]) -> None:
        """Note what the if gives more, behind its own results."""
        for op, value in zip(self._keys, values, strict=True):
            assert self._around is not None
            if op is None:
                self._around.position = value
            else:
                self._around.ends[op] = value
