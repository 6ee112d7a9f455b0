"""Lets the task that gathers the sums of j also add up those of i, in one loop over pairs.

The derivative of a function of a pair (i, j) goes to both. A work item adds up its own share, and
another task gathers what it has scattered (`passes.sums.gather_sums`). If both run over the same
range, an item k of the second task can take the term of (i, k) for its element, and that of (k, j)
for what k added up before: with i = j, most of what the two terms compute is the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence

from octants.analysis.sums.gatherable_sums import PairLoops, mirrored
from octants.ir import ops
from octants.ir.array_aliasing import may_alias
from octants.ir.builder import Builder
from octants.ir.cloning import emit
from octants.ir.core import Array, Block, Module, Operation, Space, Value
from octants.passes.tasks.launch_temporaries import ItemNumbers
from octants.types.scalars import u1


class OwnSums:
    """The code of a task from a loop on, if it only sums and can run after the task.

    Args:
        facts: Facts of the task.
        loop: The loop, whose results are the sums.
        stored: The arrays of values of work items that later tasks can load.
        bounds: What launch-temporaries hold, by `stored_bounds`.
    """

    def __init__(
        self,
        facts: PairLoops,
        loop: ops.For,
        stored: Mapping[Value, Array],
        bounds: Mapping[Array, Hashable],
    ) -> None:
        self.loop = loop
        self._facts, self._stored, self._bounds = facts, stored, bounds
        body = facts.task.body
        start = body.ops.index(loop)
        (self.item,) = body.args
        self._behind = body.ops[start + 1 : -1]
        before = ((value, op) for op in body.ops[:start] for value in op.results)
        self._before = {value: op for value, op in before if value not in stored}
        self._needed: list[Operation] | None = None
        self.certain: set[Value] = set()
        """The values that are true if there is a work item: that the range has a number."""

    def can_move(self, sums: set[Operation]) -> bool:
        """Whether another task with an item for each iteration can do this; not the ``sums``."""
        facts, loop, task = self._facts, self.loop, self._facts.task
        assert task.domain is not None
        outer = self._range(task.domain, task.domain.yielded)
        if outer is None or outer != self._range(task.body, loop.operands):
            return False
        self.certain = {
            op.result
            for op in task.body.ops
            if isinstance(op, ops.Compare)
            and op.fn == "lt"
            and self._range(task.body, op.operands) == outer
        }
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

    def _range(self, block: Block, ends: Sequence[Value]) -> tuple[int, Hashable] | None:
        """The begin of a range, at least 0, and a key for its end; None if these are not known."""
        first = ops.constants_in(block).get(ends[0], -1)
        last = _identify(block, self._facts.is_repeatable, self._bounds).get(ends[1])
        return None if first < 0 or last is None else (first, last)

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
        values.update((value, builder.constant(True, u1)) for value in self.certain)
        for value, array in self._stored.items():
            number = numbers.number(builder, values[self.item])
            values[value] = builder.load(array, [number])
        for op in self._needed or ():
            if not values.keys() >= set(op.results):
                emit(builder, op, values)
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


def stored_bounds(module: Module, noalias: bool) -> dict[Array, Hashable]:
    """The contents of launch-temporary scalars that are stored once, as keys of `_identify`."""
    writes = [op for op in module.walk() if isinstance(op, ops.Write)]
    times = Counter(op.array for op in writes)

    def is_constant(op: Operation) -> bool:
        return isinstance(op, ops.Load) and not any(
            may_alias(op.ref, write.ref, noalias) for write in writes
        )

    found: dict[Array, Hashable] = {}
    for task in module.tasks:
        known = {} if task.is_parallel else _identify(task.body, is_constant, {})
        stores = (op for op in task.body.ops if isinstance(op, ops.Store))
        for op in stores if known else ():
            if op.array.space is Space.TEMPORARY and not op.indices and times[op.array] == 1:
                found[op.array] = known.get(op.value)
    return found


def _identify(
    block: Block, is_constant: Callable[[Operation], bool], bounds: Mapping[Array, Hashable]
) -> dict[Value, Hashable]:
    """Keys of the values of a block: of constants, extents, and elements that stay as they are.

    Values with equal keys are equal, but that one may be 0 where another one is less: both are ends
    of ranges without numbers from 0 on. Other values have none.
    """
    known: dict[Value, Hashable] = {}
    numbers = ops.constants_in(block)
    for op in block.ops:
        if isinstance(op, (ops.Constant, ops.Shape)):
            known[op.result] = (type(op), *op.attributes)
        elif isinstance(op, ops.Load) and is_constant(op):
            indices = [numbers.get(index) for index in op.indices]
            element = None if None in indices else (ops.Load, op.ref, *indices)
            known[op.result] = bounds.get(op.array, element)
        elif isinstance(op, ops.Binary) and op.fn == "max":
            found = {known.get(operand) for operand in op.operands} - {(ops.Constant, 0)}
            known[op.result] = found.pop() if len(found) == 1 else None
    return known
