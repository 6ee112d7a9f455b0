"""Groups updates that the threads of a subgroup combine together, element by element.

Threads in step that all add to one element combine their values first, by one exchange for each
doubling: five for an element in a subgroup of 32. For several elements together they exchange half
of the values that are left each time, so that each thread is left with the sum of one element:
16 + 8 + 4 + 2 + 1 exchanges for 32 elements. Such elements follow each other in straight-line code:
components of vectors, or iterations that `passes.loops.unroll_shared_sums` has unrolled.

The updates of a group are of one array, and their indices differ by constants from those of the
first: threads that agree on the first element agree on all. All are made where the last one of them
stands. No operation between may see that.
"""

from __future__ import annotations

from collections.abc import Collection, Container

from octants.analysis.indices.affine_analysis import AffineExpressions
from octants.analysis.indices.affine_arithmetic import wrapped
from octants.ir import ops
from octants.ir.array_aliasing import may_alias
from octants.ir.core import ArrayRef, Block, Operation, Task, Value
from octants.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class SumGroup:
    """Updates, in order, and by how much the indices of each exceed those of the first one."""

    updates: tuple[ops.Atomic, ...]
    distances: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Family:
    """The common part of a group's updates: an array, a function, the terms of all indices.

    Indices within a family differ by constants.
    """

    target: ArrayRef
    fn: str
    terms: tuple[tuple[object, ...], ...]


class SumFamilies:
    """Facts about the updates of a task that subgroups may make together.

    Args:
        task: The task.
        updates: The updates that threads in step may combine (`reductions.find_shared`).
        noalias: No two arrays of its kernel share memory.
    """

    def __init__(self, task: Task, updates: Container[Operation], noalias: bool) -> None:
        self.updates = updates
        self._noalias = noalias
        self._affine = AffineExpressions(task)

    def family(self, op: ops.Atomic) -> Family:
        """The family of an update."""
        terms = (self._affine.expression(index).terms for index in op.indices)
        pairs = zip((index.type for index in op.indices), terms, strict=True)
        return Family(op.ref, op.fn, tuple((kind, frozenset(t.items())) for kind, t in pairs))

    def distances(self, first: ops.Atomic, op: ops.Atomic) -> tuple[int, ...]:
        """By how much the indices of an update exceed those of another one of its family."""
        pairs = zip(first.indices, op.indices, strict=True)
        return tuple(wrapped(self._constant(b) - self._constant(a), a.type.bits) for a, b in pairs)

    def _constant(self, index: Value) -> int:
        return self._affine.expression(index).constant

    def advances(self, op: ops.Atomic, counter: Value, others: Container[Value]) -> bool:
        """Whether the element of an update moves on by constants with a counter alone.

        None of the ``others`` is a term of its indices.
        """
        terms = [self._affine.expression(index).terms for index in op.indices]
        return any(counter in each for each in terms) and not any(
            atom in others for each in terms for atom in each
        )

    def may_pass(self, family: Family, op: Operation) -> bool:
        """Whether updates of a family may be made after an operation instead of before it."""
        if isinstance(op, ops.Access):
            return self._commutes(family, op) or not may_alias(op.ref, family.target, self._noalias)
        if op.regions:
            inner = (each for region in op.regions for each in region.ops)
            return all(self.may_pass(family, each) for each in inner)
        return op.is_scalar or isinstance(op, (ops.Yield, ops.RecordPop))

    def _commutes(self, family: Family, op: ops.Access) -> bool:
        return (
            op in self.updates
            and isinstance(op, ops.Atomic)
            and op.fn == family.fn
            and op.array.dtype is family.target.array.dtype
        )


def find_groups(
    task: Task, updates: Collection[Operation], noalias: bool, most: int
) -> list[SumGroup]:
    """Find the groups of a task; see `SumFamilies` for the arguments. A group has ``most``."""
    found: list[SumGroup] = []
    if updates:
        _find(task.body, SumFamilies(task, updates, noalias), most, found)
    return found


def _find(block: Block, facts: SumFamilies, most: int, found: list[SumGroup]) -> None:
    waiting: dict[Family, list[ops.Atomic]] = {}

    def end(family: Family) -> None:
        first, *others = group = waiting.pop(family)
        if others:
            distances = tuple(facts.distances(first, op) for op in group)
            found.append(SumGroup(tuple(group), distances))

    for op in block.ops:
        for region in op.regions:
            _find(region, facts, most, found)
        for family in [each for each in waiting if not facts.may_pass(each, op)]:
            end(family)
        if op in facts.updates:
            assert isinstance(op, ops.Atomic)
            family = facts.family(op)
            waiting.setdefault(family, []).append(op)
            if len(waiting[family]) == most:
                end(family)
    for family in list(waiting):
        end(family)
