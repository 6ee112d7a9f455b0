"""Launch-temporary arrays with an element for each work item of a task.

Their extent is a constant. So there must be one that no work item exceeds: the bounds of the task,
if these are constants, or the extent of an axis that each work item accesses at its own index.
"""

from __future__ import annotations

from octants.analysis.forms import Forms
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Array, Companion, Operation, Space, Task, Value

LARGEST = 1 << 28
"""The most bytes of an array."""

_ACCESSES = (ops.Load, ops.Store, ops.Atomic, ops.CompareExchange)


class ItemNumbers:
    """How the work items of a parallel task are numbered from zero, if that is known."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._found: tuple[int, int] | None = None  # the extent, and what is added to the index
        self._has_looked = False

    def can_keep(self, value: Value) -> bool:
        """Whether there can be an array for a value of each work item."""
        if not self._has_looked:
            self._found, self._has_looked = self._look(), True
        return self._found is not None and self._found[0] * value.type.size <= LARGEST

    def array(self, name: str, value: Value) -> Array:
        """An array for a value of each work item."""
        assert self._found is not None
        layouts = {Companion.PRIMAL: None}
        extent = max(1, self._found[0])
        return Array(name, value.type, 0, Space.TEMPORARY, (extent,), layouts)  # type: ignore[arg-type]

    def number(self, builder: Builder, item: Value) -> Value:
        """The number of a work item."""
        assert self._found is not None
        return builder.binary("add", item, builder.constant(self._found[1], item.type))

    def _look(self) -> tuple[int, int] | None:
        task = self._task
        assert task.domain is not None
        forms = Forms(task)
        lower, upper = (forms.form(value) for value in task.domain.yielded[:2])
        if not lower.terms and not upper.terms:
            return upper.constant - lower.constant, -lower.constant
        found = [each for op in task.body.ops for each in _extents(op, forms)]
        return min(found, default=None)


def _extents(op: Operation, forms: Forms) -> list[tuple[int, int]]:
    """The axes of an access that is made at the index of the work item, or so much more."""
    if not isinstance(op, _ACCESSES) or op.array.fixed_shape is None:
        return []
    indices = [forms.form(index) for index in op.indices[: op.array.rank]]
    return [
        (extent, form.constant)
        for extent, form in zip(op.array.fixed_shape, indices, strict=True)
        if form.terms == {forms.item: 1}
    ]
