"""Finds serial loops in parallel tasks whose scattered sums can be gathered instead.

In a parallel loop over i, a serial loop over j scatters if it adds to elements whose indices follow
from j alone. The same sums can be gathered by a parallel loop over j that contains a serial loop
over i, and which recomputes each pair (i, j). The result is the same if

- the bounds of the loop over j are the same for all i, and those of i can be recomputed;
- each term follows from i, from j, and from values before the loop, not from what the iterations
carry, nor from a record buffer;
- terms are loaded from memory that the task does not change, and nothing in the task reads the
sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from octants.ir import ops
from octants.ir.array_aliasing import may_alias
from octants.ir.cooperative_tasks import cooperates
from octants.ir.core import ArrayRef, Block, Operation, Task, Value
from octants.ir.slices import backward_slice
from octants.types.scalars import u1

FEW = 4
"""The fewest work items, or iterations, that are worth a task of their own."""

_CONTROL = (ops.For, ops.While, ops.If)


class PairLoops:
    """Facts of a task; with ``noalias`` no two of its arrays share memory."""

    def __init__(self, task: Task, noalias: bool) -> None:
        self.task = task
        self._noalias = noalias
        self._used = task.body.used()
        self.numbers = ops.constants_in(task.body)
        self._written: set[ArrayRef] = set()
        self._observed: set[ArrayRef] = set()  # by more than sums
        for op in task.body.walk():
            if isinstance(op, ops.Write):
                self._written.add(op.ref)
            if isinstance(op, ops.Access) and not self.is_sum(op):
                self._observed.add(op.ref)

    def is_free(self) -> bool:
        """Whether other work items can recompute its work items and their number."""
        task = self.task
        if task.domain is None or cooperates(task) or task.options.get("fixed_order"):
            return False
        if any(op.is_tied for op in task.body.walk()):
            return False
        return all(map(self.is_repeatable, task.domain.ops))

    def count(self) -> int | None:
        """The number of work items, if it is known."""
        return ops.known_work_items(self.task)

    def fills(self, count: int) -> bool:
        """Whether the number of work items is known, and at least ``count``."""
        found = self.count()
        return found is not None and found >= count

    def find(self) -> Iterator[tuple[ops.For, set[Operation]]]:
        """The loops with the same bounds for all work items, with their sums at indices of j."""
        task = self.task
        if task.domain is None or not self.is_free():
            return
        count = self.count()
        if count is not None and count < FEW:
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
        """Whether a loop is known to have fewer than so many iterations."""
        trips = loop.trips(self.numbers) if isinstance(loop, ops.For) else None
        return trips is not None and trips < few

    def most_iterations(self, loop: ops.For, most: int) -> int:
        """The iterations of a loop, from 1 to ``most``, which also stands for an unknown number."""
        trips = loop.trips(self.numbers)
        return most if trips is None else min(most, max(1, trips))

    def meet(self, one: ops.Access, other: ops.Access) -> bool:
        """Whether two accesses may be to one element."""
        return self._may_be_in(one.ref, [other.ref])

    def is_repeatable(self, op: Operation) -> bool:
        """Whether an operation gives the same result after the task, for the same operands."""
        if op.is_scalar or isinstance(op, ops.Yield):
            return True
        if isinstance(op, ops.Load):
            return not self._may_be_in(op.ref, self._written)
        if isinstance(op, _CONTROL):
            return all(self.is_repeatable(inner) for region in op.regions for inner in region.ops)
        return False

    def repeatable_slice(
        self, values: Iterable[Value], definitions: Mapping[Value, Operation]
    ) -> list[Operation] | None:
        """The rematerialisation slice of values; None if it has a loop or must not run again."""
        found = backward_slice(values, definitions)
        has_loop = any(isinstance(each, ops.Loop) for op in found for each in op.walk())
        return None if has_loop or not all(map(self.is_repeatable, found)) else found

    def following(self, block: Block, known: Iterable[Value] = ()) -> set[Value]:
        """The values of a block that follow from constants and from known values.

        That excludes its regions, except ifs, as far as these read no memory.
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
        """The updates of a loop whose indices follow from its counter."""
        following = self.following(loop.body, {*known, loop.body.args[0]})
        for op in atomics_outside_loops(loop.body):
            if self.is_sum(op) and following.issuperset(op.indices):
                seen = self._may_be_in(op.ref, self._observed)
                if not seen and not known.issuperset(op.indices):
                    yield op

    def is_observed(self, op: ops.Access) -> bool:
        """Whether the task may access an element by more than sums."""
        return self._may_be_in(op.ref, self._observed)

    def is_sum(self, op: Operation) -> bool:
        """Whether an operation adds to memory, and its result is not used."""
        if not isinstance(op, ops.Atomic) or op.fn not in ("add", "sub"):
            return False
        return op.array.dtype is not u1 and op.result not in self._used

    def _may_be_in(self, target: ArrayRef, others: Iterable[ArrayRef]) -> bool:
        """Whether a reference may alias one of others."""
        return any(may_alias(target, other, self._noalias) for other in others)


def mirrored(loop: ops.For, numbers: Mapping[Value, Any]) -> Value | None:
    """The value of a loop that counts down to zero: n - i - 1, for i from 0 to n.

    If the order of iterations is free, loads at this value can be contiguous. ``numbers`` maps the
    constants around the loop to numbers.
    """
    if numbers.get(loop.lower) != 0:
        return None
    subtractions = [op for op in loop.body.ops if isinstance(op, ops.Binary) and op.fn == "sub"]
    ends = (loop.upper, loop.body.args[0])
    left = {op.result for op in subtractions if (op.lhs, op.rhs) == ends}
    return next(
        (op.result for op in subtractions if op.lhs in left and numbers.get(op.rhs) == 1), None
    )


def atomics_outside_loops(block: Block) -> Iterator[ops.Atomic]:
    """The atomics of a block and its ifs, without those of its loops."""
    for op in block.ops:
        if isinstance(op, ops.Atomic):
            yield op
        elif isinstance(op, ops.If):
            for region in op.regions:
                yield from atomics_outside_loops(region)
