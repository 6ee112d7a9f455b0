"""Lets the task that gathers the sums of j also add up those of i, in one loop over pairs.

The derivative of a function of a pair (i, j) goes to both. A work item adds up its own share, and
another task gathers what it has scattered (`passes.gather_sums`). If both run over the same range,
an item k of the second task can take the term of (i, k) for its element, and that of (k, j) for
what k added up before: with i = j, most of what the two terms compute is the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from octants.analysis.gatherable_sums import PairLoops, mirrored
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.cloning import emit
from octants.ir.core import Array, Block, Operation, Value
from octants.passes.launch_temporaries import ItemNumbers


class OwnSums:
    """The code of a task from a loop on, if it only sums and can run after the task.

    Args:
        facts: Facts of the task.
        loop: The loop, whose results are the sums.
        stored: The arrays of values of work items that later tasks can load.
    """

    def __init__(self, facts: PairLoops, loop: ops.For, stored: Mapping[Value, Array]) -> None:
        self.loop = loop
        self._facts, self._stored = facts, stored
        body = facts.task.body
        start = body.ops.index(loop)
        (self.item,) = body.args
        self._behind = body.ops[start + 1 : -1]
        before = ((value, op) for op in body.ops[:start] for value in op.results)
        self._before = {value: op for value, op in before if value not in stored}
        self._needed: list[Operation] | None = None

    def can_move(self, sums: set[Operation]) -> bool:
        """Whether another task with an item for each iteration can do this; not the ``sums``."""
        facts, loop, task = self._facts, self.loop, self._facts.task
        assert task.domain is not None
        outer = _bounds(task.domain, task.domain.yielded)
        if None in outer or outer != _bounds(task.body, loop.operands):
            return False
        terms = [op for op in loop.body.ops if op not in sums]
        if mirrored(loop, facts.numbers) is not None or not loop.inits:
            return False
        if any(op.regions or not facts.is_repeatable(op) for op in terms):
            return False  # branches would not share what they compute
        if not all(map(self._may_wait, self._behind)):
            return False
        wanted = [*loop.operands, *loop.body.yielded]
        wanted += (v for op in Block([], [*terms, *self._behind]).walk() for v in op.operands)
        self._needed = facts.repeatable_slice(wanted, self._before)
        return self._needed is not None

    def _may_wait(self, op: Operation) -> bool:
        """Whether an operation can run after the task: it adds to what is not read, or reads."""
        if isinstance(op, ops.If):
            return all(self._may_wait(each) for region in op.regions for each in region.ops)
        if isinstance(op, ops.Atomic):
            return self._facts.is_sum(op) and not self._facts.is_observed(op)
        return not op.regions and self._facts.is_repeatable(op)

    def drop(self) -> None:
        """Drop all this from the task."""
        body = self._facts.task.body
        body.ops[body.ops.index(self.loop) : -1] = []

    # -- in the other task -------------------------------------------------------------------------

    def begin(self, builder: Builder, item: Value, numbers: ItemNumbers) -> dict[Value, Value]:
        """Emit what is needed of a work item; return what stands for its values."""
        values = {self.item: builder.cast(item, self.item.type)}
        for op in self._needed or ():
            emit(builder, op, values)
        for value, array in self._stored.items():
            number = numbers.number(builder, values[self.item])
            values[value] = builder.load(array, [number])
        return values

    def inits(self, values: Mapping[Value, Value]) -> list[Value]:
        """The values that the sums begin with."""
        return [values.get(init, init) for init in self.loop.inits]

    def add(self, builder: Builder, body: Block, values: dict[Value, Value]) -> list[Value]:
        """Emit the terms of an iteration; return the sums with them.

        Args:
            builder: Where they are emitted.
            body: The block of the loop, which carries a counter and the sums.
            values: What stands for values of the old loop.
        """
        counter, *carried = self.loop.body.args
        values[counter] = builder.cast(body.args[0], counter.type)
        values.update(zip(carried, body.args[1:], strict=True))
        for op in self.loop.body.ops[:-1]:
            emit(builder, op, values)
        return [values.get(value, value) for value in self.loop.body.yielded]

    def end(self, builder: Builder, results: Sequence[Value], values: dict[Value, Value]) -> None:
        """Emit what follows the loop, from its results."""
        values.update(zip(self.loop.results, results, strict=True))
        for op in self._behind:
            emit(builder, op, values)


def _bounds(block: Block, values: Sequence[Value]) -> list[Hashable]:
    """The constants or extents that the first two values are; None for a value that is neither."""
    known: dict[Value, Hashable] = {}
    for op in block.ops:
        if isinstance(op, (ops.Constant, ops.Shape)):
            known[op.result] = (type(op), *op.attributes)
        elif isinstance(op, ops.Binary) and op.fn == "max":  # an extent is at least 0
            found = {known.get(operand) for operand in op.operands} - {(ops.Constant, 0)}
            extent = found.pop() if len(found) == 1 else None
            if isinstance(extent, tuple) and extent[0] is ops.Shape:
                known[op.result] = extent
    return [known.get(value) for value in values[:2]]
