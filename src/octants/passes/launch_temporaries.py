"""Launch-temporary arrays with an element for each work item of a task.

There must be an extent that no work item exceeds: constant bounds of the task, or the extent of an
axis that each work item accesses at its own index.
"""

from __future__ import annotations

from octants.analysis.affine_analysis import AffineExpressions
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Array, Companion, Operation, Space, Task, Value
from octants.lazy_dataclass import dataclass

LARGEST = 1 << 28
"""The most bytes of an array of constant extent."""


@dataclass(frozen=True, slots=True)
class _Numbering:
    """Work items are numbered by their index and an `offset`, below an `extent`.

    That is a constant, or that of an axis of an array.
    """

    offset: int
    extent: int | tuple[Array, int]


class ItemNumbers:
    """How the work items of a parallel task are numbered from zero, if that is known."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._found: _Numbering | None = None
        self._is_numbered = False

    def can_store(self, value: Value) -> bool:
        """Whether there can be an array for a value of each work item."""
        if not self._is_numbered:
            self._found, self._is_numbered = self._number(), True
        if self._found is None:
            return False
        extent = self._found.extent
        return not isinstance(extent, int) or extent * value.type.size <= LARGEST

    def array(self, name: str, value: Value) -> Array:
        """An array for a value of each work item."""
        assert self._found is not None
        extent, layouts = self._found.extent, {Companion.PRIMAL: None}
        if isinstance(extent, int):
            shape = (max(1, extent),)
            return Array(name, value.type, 0, Space.TEMPORARY, shape, {**layouts})
        return Array(name, value.type, 1, Space.TEMPORARY, (), {**layouts}, extent)

    def number(self, builder: Builder, item: Value) -> Value:
        """The number of a work item."""
        assert self._found is not None
        return builder.binary("add", item, builder.constant(self._found.offset, item.type))

    def _number(self) -> _Numbering | None:
        task = self._task
        assert task.domain is not None
        affine = AffineExpressions(task)
        lower, upper = (affine.integer(value) for value in task.domain.yielded[:2])
        if not lower.terms and not upper.terms:
            return _Numbering(-lower.constant, upper.constant - lower.constant)
        found = [each for op in task.body.ops for each in _numberings(op, affine)]
        known = [each for each in found if isinstance(each.extent, int)]
        return next(iter([*known, *found]), None)


def _numberings(op: Operation, affine: AffineExpressions) -> list[_Numbering]:
    """By the axes of an access that is made at the index of the work item, or so much more."""
    if not isinstance(op, ops.Access) or op.array.space not in (Space.FIELD, Space.NDARRAY):
        return []
    assert affine.item is not None
    shape = op.array.fixed_shape
    return [
        _Numbering(expression.constant, shape[axis] if shape is not None else (op.array, axis))
        for axis, expression in enumerate(map(affine.expression, op.indices[: op.array.rank]))
        if expression.terms == {affine.item: 1} and expression.bits == affine.item.type.bits
    ]
