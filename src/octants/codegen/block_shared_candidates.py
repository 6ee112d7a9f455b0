"""Choose the arrays that a block of threads privatises in shared memory.

Work items add to such an array at varying indices. The block's copy begins with zeros and is in
shared memory, where updates of one element are much cheaper; when all work items of the block are
done, its elements are added to those of the array.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from octants.analysis.indices.affine_analysis import AffineExpressions
from octants.analysis.sums.privatisation import find_sums, is_dense
from octants.analysis.sums.reductions import find_shared
from octants.analysis.sums.sum_groups import SumGroup, find_groups
from octants.ir import ops
from octants.ir.array_aliasing import may_alias
from octants.ir.core import ArrayRef, Operation, Space, Task
from octants.lazy_dataclass import dataclass

_SMALL = 1 << 13
"""The bytes of copies that are made for any launch: many blocks fit, and small launches start soon.
"""
_OF_NDARRAY = 1 << 14
"""The bytes of the copy of an array whose shape the launch determines."""
_GROUP = 32
"""The most updates that subgroups make together."""
_MANY = 16
"""So many updates of a group go to memory at once: a copy saves little, and threads that add floats
in shared memory wait for each other.
"""
_FEW = 4
"""The most updates of such an array: each is written twice."""


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """A copy of ``target`` with memory for ``count`` elements.

    With `fits` the array has so many; otherwise the launch determines how many, and the copy is
    used if they fit. With `is_repaid` a block adds often enough in any launch; otherwise the copy
    is used if the block has a quarter as many work items as the array has elements. Each of so many
    `subgroups` of the block has its own, to which its lanes add in step; 0 if all share one.
    """

    target: ArrayRef
    count: int
    fits: bool
    is_repaid: bool
    subgroups: int = 0

    @property
    def nbytes(self) -> int:
        """The bytes of all copies of a block."""
        return self.count * max(1, self.subgroups) * self.target.array.dtype.size

    @property
    def is_always_used(self) -> bool:
        """Whether no launch leaves the copy out."""
        return self.fits and self.is_repaid


def find_subgroup_copies(
    task: Task, noalias: bool, grouped: Collection[Operation], subgroups: int, most: int
) -> list[BlockCopy]:
    """Return copies of arrays that only ``grouped`` updates reach, for each of some subgroups.

    All copies take ``most`` bytes together.
    """
    found, repeated = list[BlockCopy](), _in_loops(task)
    accesses = [op for op in task.body.walk() if isinstance(op, ops.Access)]
    for target in find_sums(task, True).private_copies:
        updates = {op for op in accesses if op.ref == target}
        repaid = not repeated.isdisjoint(updates)
        copy = BlockCopy(target, _count(target), True, repaid, subgroups)
        if updates.issubset(grouped) and 0 < copy.nbytes <= most:
            found.append(copy)
            most -= copy.nbytes
    return _last(found, task, noalias)


def find_copies(
    task: Task, noalias: bool, collected: Collection[Operation], shared_bytes: int
) -> list[BlockCopy]:
    """Return copies for the targets of sums, but for those ``collected`` otherwise.

    With ``noalias`` no two arrays share memory. Where they may, a block adds only after all its
    work items have made their other accesses. All copies of a block take two thirds of its
    ``shared_bytes`` at most: the rest is for its reductions.
    """
    sums = find_sums(task, True, collected)
    found, left = list[BlockCopy](), min(_SMALL, shared_bytes)
    for target in (*sums.private_copies, *filter(is_dense, sums.alternating)):
        nbytes = _count(target) * target[0].dtype.size
        if 0 < nbytes <= left:
            found.append(BlockCopy(target, _count(target), fits=True, is_repaid=True))
            left -= nbytes
    small = {copy.target for copy in found}
    left += shared_bytes * 2 // 3 - _SMALL
    accesses = [op for op in task.body.walk() if isinstance(op, ops.Access)]
    repeated = _in_loops(task)
    for target in sums.private_copies:
        size, count = target[0].dtype.size, _count(target)
        updates = [op for op in accesses if op.ref == target]
        most, nbytes = left, count * size or _OF_NDARRAY
        if _are_combined(task, updates, noalias):
            most, nbytes = min(left, _SMALL), count * size or _SMALL
        is_known = count > 0 or (
            target[0].space is Space.NDARRAY and _site_count(task, updates, noalias) <= _FEW
        )
        if target not in small and is_known and nbytes <= most:
            repaid = not repeated.isdisjoint(updates)
            found.append(BlockCopy(target, nbytes // size, fits=count > 0, is_repaid=repaid))
            left -= nbytes
    return _last(found, task, noalias)


def _in_loops(task: Task) -> set[Operation]:
    """Return the operations in loops."""
    return {
        op
        for loop in task.body.walk()
        if isinstance(loop, ops.Loop)
        for region in loop.regions
        for op in region.walk()
    }


def _last(found: list[BlockCopy], task: Task, noalias: bool) -> list[BlockCopy]:
    """Return the copies that can be added when all other accesses have been made."""
    if noalias or not found:
        return found
    affine = AffineExpressions(task)
    accesses = [op for op in task.body.walk() if isinstance(op, ops.Access)]
    return [copy for copy in found if _is_last(copy.target, accesses, affine)]


def _site_count(task: Task, updates: list[ops.Access], noalias: bool) -> int:
    """Return how many updates are written: one for each group of those made together."""
    if len(updates) <= _FEW:
        return len(updates)
    groups = _groups(task, updates, noalias)
    return len(updates) - sum(len(group.updates) - 1 for group in groups)


def _are_combined(task: Task, updates: list[ops.Access], noalias: bool) -> bool:
    """Return whether subgroups make all updates of an array together, many at a time."""
    lengths = [len(group.updates) for group in _groups(task, updates, noalias)]
    count = sum(isinstance(op, ops.Atomic) for op in updates)
    return min(lengths, default=0) >= _MANY and sum(lengths) == count


def _groups(task: Task, updates: list[ops.Access], noalias: bool) -> list[SumGroup]:
    """Return the groups of the updates of an array."""
    return find_groups(task, find_shared(task.body).intersection(updates), noalias, _GROUP)


def _is_last(target: ArrayRef, accesses: list[ops.Access], affine: AffineExpressions) -> bool:
    """Return whether no access behind the update may touch the target's memory."""
    own = [op for op in accesses if op.ref == target]
    return all(
        affine.precedes(other, update)
        for other in accesses
        if other not in own and may_alias(other.ref, target)
        for update in own
    )


def _count(target: ArrayRef) -> int:
    """Return the number of elements of an array; 0 if the launch determines it."""
    array, _ = target
    shape = () if array.rank == 0 else array.fixed_shape
    return 0 if shape is None else math.prod((*shape, *array.element_shape))
