"""The bounds of a task's work items in launch-temporary memory, for tasks that replace it."""

from __future__ import annotations

from octants.ir.builder import Builder
from octants.ir.cloning import copy_block
from octants.ir.core import Array, Companion, Space, Task, Value
from octants.types.scalars import i64


def make_bounds(task: Task) -> Array:
    """An array that holds (lower, upper), as i64."""
    layouts = {Companion.PRIMAL: None}
    return Array(f"{task.name}_bounds", i64, 0, Space.TEMPORARY, (2,), layouts)  # type: ignore[arg-type]


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
