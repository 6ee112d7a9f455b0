"""Small arrays that work items add to at places that vary: a block of threads adds to a copy.

The copy is in memory that the threads of the block share, where updates of one element are much
cheaper. It begins with zeros; when all work items of the block are done, its elements are added to
those of the array.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from octants.analysis.affine_forms import Forms
from octants.analysis.noalias import are_apart
from octants.analysis.privatisation import find_sums, is_dense
from octants.ir import ops
from octants.ir.core import ArrayRef, Operation, Task

_MOST_BYTES = 1 << 13
"""Of all copies of a block: a GPU is full of blocks even so, and small launches begin soon."""


def find_copies(task: Task, apart: bool, collected: Collection[Operation]) -> list[ArrayRef]:
    """The targets of sums that are small, but for what is ``collected`` in another way.

    ``apart`` says that no two arrays share memory. Where they may, all work items must be done with
    the others before they add.
    """
    sums = find_sums(task, True, collected)
    small, room = list[ArrayRef](), _MOST_BYTES
    for target in (*sums.parts, *filter(is_dense, sums.turns)):
        nbytes = count(target) * target[0].dtype.size
        if 0 < nbytes <= room:
            small.append(target)
            room -= nbytes
    if apart or not small:
        return small
    forms, accesses = Forms(task), [op for op in task.body.walk() if isinstance(op, ops.Access)]
    return [target for target in small if _is_last(target, accesses, forms)]


def _is_last(target: ArrayRef, accesses: list[ops.Access], forms: Forms) -> bool:
    """Whether what may be the memory of a target is never accessed after it is added to."""
    own = [op for op in accesses if op.ref == target]
    return all(
        forms.precedes(other, update)
        for other in accesses
        if other not in own and not are_apart(other.ref, target)
        for update in own
    )


def count(target: ArrayRef) -> int:
    """The elements of an array; 0 if the launch decides how many there are."""
    array, _ = target
    shape = () if array.rank == 0 else array.fixed_shape
    return 0 if shape is None else math.prod((*shape, *array.element_shape))
