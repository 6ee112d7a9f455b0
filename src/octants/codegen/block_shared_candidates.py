"""Choose the small arrays that a block of threads privatises in shared memory.

Work items add to such an array at varying indices. The block's copy begins with zeros and is in
shared memory, where updates of one element are much cheaper; when all work items of the block are
done, its elements are added to those of the array.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from octants.analysis.affine_analysis import AffineExpressions
from octants.analysis.privatisation import find_sums, is_dense
from octants.ir import ops
from octants.ir.array_aliasing import may_alias
from octants.ir.core import ArrayRef, Operation, Task

_MOST_BYTES = 1 << 13
"""The bytes of all copies of a block: a GPU still holds many blocks, and small launches start soon.
"""


def find_copies(task: Task, noalias: bool, collected: Collection[Operation]) -> list[ArrayRef]:
    """Return the targets of sums that are small, but for those ``collected`` otherwise.

    With ``noalias`` no two arrays share memory. Where they may, a block adds only after all its
    work items have made their other accesses.
    """
    sums = find_sums(task, True, collected)
    small, left = list[ArrayRef](), _MOST_BYTES
    for target in (*sums.private_copies, *filter(is_dense, sums.alternating)):
        nbytes = count(target) * target[0].dtype.size
        if 0 < nbytes <= left:
            small.append(target)
            left -= nbytes
    if noalias or not small:
        return small
    affine, accesses = (
        AffineExpressions(task),
        [op for op in task.body.walk() if isinstance(op, ops.Access)],
    )
    return [target for target in small if _is_last(target, accesses, affine)]


def _is_last(target: ArrayRef, accesses: list[ops.Access], affine: AffineExpressions) -> bool:
    """Return whether no access behind the update may touch the target's memory."""
    own = [op for op in accesses if op.ref == target]
    return all(
        affine.precedes(other, update)
        for other in accesses
        if other not in own and may_alias(other.ref, target)
        for update in own
    )


def count(target: ArrayRef) -> int:
    """Return the number of elements of an array; 0 if the launch determines it."""
    array, _ = target
    shape = () if array.rank == 0 else array.fixed_shape
    return 0 if shape is None else math.prod((*shape, *array.element_shape))
