"""Launch-temporary arrays: of sums, of the bounds of a task, of a value of each work item.

There must be an extent that no work item exceeds: constant bounds of the task, or the extent of an
axis that each work item accesses at its own index.
"""

from __future__ import annotations

from octants.analysis.indices.affine_analysis import AffineExpressions
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.cloning import copy_block
from octants.ir.core import Array, Companion, Module, Operation, Space, Task, Value
from octants.lazy_dataclass import dataclass
from octants.types.scalars import DType, i64

LARGEST = 1 << 28
"""The most bytes of an array of constant extent."""


def add_temporary(module: Module, name: str, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Add an array without axes to a module, whose element has a shape."""
    array = Array(name, dtype, 0, Space.TEMPORARY, shape, {Companion.PRIMAL: None})
    module.arrays.append(array)
    return array


# -- the bounds of a task's work items, for tasks that replace it --------------------------------


def make_bounds(module: Module, task: Task) -> Array:
    """An array for (lower, upper), as i64."""
    return add_temporary(module, f"{task.name}_bounds", i64, (2,))


def store_bounds(task: Task, bounds: Array) -> Task:
    """A serial task that keeps the bounds, which the work items may change."""
    assert task.domain is not None
    block = copy_block(task.domain, {})
    builder = Builder(block)
    for number, value in enumerate(block.ops.pop().operands):
        wide = builder.cast(value, i64)
        builder.store(bounds, [builder.index(number)], wide)
    builder.yield_()
    return Task(f"{task.name}_bounds", block, None, task.location)


def load_bounds(builder: Builder, bounds: Array) -> tuple[Value, Value]:
    """The lower and the upper bound, i64."""
    lower, upper = (builder.load(bounds, [builder.index(k)]) for k in range(2))
    return lower, upper


# -- a value of each work item -------------------------------------------------------------------


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
    array, shape = op.array.whole, op.array.fixed_shape
    return [
        _Numbering(expression.constant, shape[axis] if shape is not None else (array, axis))
        for axis, expression in enumerate(map(affine.expression, op.indices[: op.array.rank]))
        if expression.terms == {affine.item: 1} and expression.bits == affine.item.type.bits
    ]
