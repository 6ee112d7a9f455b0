"""Which serial loops of a parallel task scatter, and could be gathered from instead.

In a parallel loop over i, a serial loop over j scatters where it adds to places that follow from j
alone. The same sums can be gathered: by a loop over j that is parallel, with one over i in it.
There the pair (i, j) is computed again. That gives the same if

- the bounds of the loop over j are one for all i, and those of i can be computed again;
- what is added follows from i, from j, and from what stood before the loop, not from what the
  iterations carry on, nor from a tape;
- it is loaded from memory that the task does not change, and nothing in the task looks at the sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from octants.ir import ops
from octants.ir.aliases import may_overlap
from octants.ir.cooperation import cooperates
from octants.ir.core import ArrayRef, Block, Operation, Task, Value
from octants.types.scalars import u1

FEW = 4
"""So many work items, or iterations, are worth a task of their own."""

_CONTROL = (ops.For, ops.While, ops.If)


class PairLoops:
    """Facts of a task; ``apart`` says that no two arrays share memory."""

    def __init__(self, task: Task, apart: bool) -> None:
        self.task = task
        self._apart = apart
        self._used = {value for op in task.body.walk() for value in op.operands}
        self.numbers = numbers_of(task.body)
        self._written: set[ArrayRef] = set()
        self._observed: set[ArrayRef] = set()  # by more than sums
        for op in task.body.walk():
            if isinstance(op, ops.Write):
                self._written.add(op.ref)
            if isinstance(op, ops.Access) and not self.is_sum(op):
                self._observed.add(op.ref)

    def is_free(self) -> bool:
        """Whether its work items, and how many they are, can be told anew by other work items."""
        task = self.task
        if task.domain is None or cooperates(task) or task.options.get("fixed_order"):
            return False
        if any(op.is_tied for op in task.body.walk()):
            return False
        return all(map(self.is_repeatable, task.domain.ops))

    def count(self) -> int | None:
        """How many work items there are, if that is known."""
        domain = self.task.domain
        assert domain is not None
        lower, upper = (numbers_of(domain).get(bound) for bound in domain.yielded[:2])
        return None if lower is None or upper is None else max(0, int(upper - lower))

    def fills(self, count: int) -> bool:
        """Whether there are known to be so many work items, or more."""
        found = self.count()
        return found is not None and found >= count

    def find(self) -> Iterator[tuple[ops.For, set[Operation]]]:
        """The loops whose bounds are one for all work items, and their sums at places of j."""
        task = self.task
        if task.domain is None or not self.is_free():
            return
        if _are_few(numbers_of(task.domain), task.domain.yielded, FEW):
            return
        known = self.following(task.body)
        for op in task.body.ops:
            if not isinstance(op, ops.For) or not known.issuperset((op.lower, op.upper)):
                continue
            if not self.is_short(op, FEW):
                sums = set(self._sums(op, known))
                if sums:
                    yield op, sums

    def is_short(self, loop: Operation, few: int) -> bool:
        """Whether a loop is known to have less than so many iterations."""
        return isinstance(loop, ops.For) and _are_few(self.numbers, loop.operands, few)

    def meet(self, one: ops.Access, other: ops.Access) -> bool:
        """Whether two accesses may be to one element."""
        return self._may_be_in(one.ref, [other.ref])

    def is_repeatable(self, op: Operation) -> bool:
        """Whether an operation gives the same after the task, from the same operands."""
        if op.is_scalar or isinstance(op, ops.Yield):
            return True
        if isinstance(op, ops.Load):
            return not self._may_be_in(op.ref, self._written)
        if isinstance(op, _CONTROL):
            return all(self.is_repeatable(inner) for region in op.regions for inner in region.ops)
        return False

    def following(self, block: Block, known: Iterable[Value] = ()) -> set[Value]:
        """What follows, in a block but its regions, from constants and from what is known.

        In ifs there is more of it, as far as no memory is read.
        """
        found = set(known)
        self._follow(block, found, loads=True)
        return found

    def _follow(self, block: Block, found: set[Value], *, loads: bool) -> None:
        for op in block.ops:
            if isinstance(op, ops.If):
                for region in op.regions:
                    self._follow(region, found, loads=False)
                continue
            may = op.is_scalar or (loads and isinstance(op, ops.Load))
            if may and self.is_repeatable(op) and found.issuperset(op.operands):
                found.update(op.results)

    def _sums(self, loop: ops.For, known: set[Value]) -> Iterator[Operation]:
        """The updates of a loop whose places follow from its counter."""
        places = self.following(loop.body, {*known, loop.body.args[0]})
        for op in _own_updates(loop.body):
            if self.is_sum(op) and places.issuperset(op.indices):
                seen = self._may_be_in(op.ref, self._observed)
                if not seen and not known.issuperset(op.indices):
                    yield op

    def is_sum(self, op: Operation) -> bool:
        """Whether an operation adds to memory, where nobody asks what was there before."""
        if not isinstance(op, ops.Atomic) or op.fn not in ("add", "sub"):
            return False
        return op.array.dtype is not u1 and op.result not in self._used

    def _may_be_in(self, target: ArrayRef, others: Iterable[ArrayRef]) -> bool:
        """Whether an element of a target may be one of others."""
        if target in others:
            return True
        return not self._apart and any(
            other[0] is not target[0] and may_overlap(other[0], target[0]) for other in others
        )


def mirrored(loop: ops.For, numbers: Mapping[Value, Any]) -> Value | None:
    """The value of a loop that counts down to zero: n - i - 1, of i from 0 to n.

    ``numbers`` are the constants around it. Where the order of iterations is free, that of this
    value is as good, and what is loaded then comes one after the other.
    """
    if numbers.get(loop.lower) != 0:
        return None
    subtractions = [op for op in loop.body.ops if isinstance(op, ops.Binary) and op.fn == "sub"]
    ends = (loop.upper, loop.body.args[0])
    left = {op.result for op in subtractions if (op.lhs, op.rhs) == ends}
    return next(
        (op.result for op in subtractions if op.lhs in left and numbers.get(op.rhs) == 1), None
    )


def numbers_of(block: Block) -> dict[Value, Any]:
    """The constants of a block, but for its regions."""
    return {op.result: op.value for op in block.ops if isinstance(op, ops.Constant)}


def _own_updates(block: Block) -> Iterator[ops.Atomic]:
    """The atomics of a block and its ifs, not those of its loops."""
    for op in block.ops:
        if isinstance(op, ops.Atomic):
            yield op
        elif isinstance(op, ops.If):
            for region in op.regions:
                yield from _own_updates(region)


def _are_few(numbers: dict[Value, Any], bounds: list[Value], few: int) -> bool:
    """Whether there is less between two bounds, the first of some values."""
    lower, upper = (numbers.get(bound) for bound in bounds[:2])
    return lower is not None and upper is not None and bool(upper - lower < few)
