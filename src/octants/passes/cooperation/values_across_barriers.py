"""The values of a block's work items while these run one after the other.

A value that a work item needs after a convergent operation is in a local array, with an element
for each work item; branches and loops have masks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.cooperative_tasks import sizes
from octants.ir.core import Array, Block, Companion, Module, Space, Task, Value
from octants.passes.tasks.launch_temporaries import load_bounds
from octants.types.layouts import one_axis
from octants.types.scalars import DType, i32, i64, u1

PRIMAL = Companion.PRIMAL
Fill = Callable[[Value], None]
"""Builds what one work item does, of its number in the block, i32."""


class BlockValues:
    """Builds the body of a work item that is a block of those of a task; `bounds` are theirs."""

    def __init__(self, module: Module, task: Task, bounds: Array) -> None:
        self.module = module
        self.task = task
        self.block_dim, self.subgroup_size = sizes(task)
        self.index = task.body.args[0]
        self.constants = {op.result: op for op in task.body.walk() if isinstance(op, ops.Constant)}
        self._uses = Counter(value for op in task.body.walk() for value in op.operands)
        self._arrays: dict[Value, Array] = {}  # of live values
        number = Value(i64, "block")
        build = self.builder = Builder(Block([number]))
        build.location = task.location
        lower, upper = load_bounds(build, bounds)
        size = build.offset(self.block_dim)
        first = build.binary("add", lower, build.binary("mul", number, size))
        count = build.binary("min", build.binary("sub", upper, first), size)
        self.first, self.count = build.cast(first, self.index.type), build.cast(count, i32)
        self.zero = build.index(0)

    # -- values ------------------------------------------------------------------------------------

    def array(self, name: str, dtype: DType) -> Array:
        """An element for each work item of a block."""
        layout = one_axis(self.block_dim, dtype.size)
        full = f"{self.task.name}_{name}{len(self.module.arrays)}"
        array = Array(full, dtype, 1, Space.LOCAL, (), {PRIMAL: layout})
        self.module.arrays.append(array)
        return array

    def array_of(self, value: Value) -> Array:
        """The array of a value that is live across a convergent operation."""
        if value not in self._arrays:
            self._arrays[value] = self.array("value", value.type)
        return self._arrays[value]

    def at(self, value: Value, thread: Value) -> Value:
        """A value of the original body for a work item."""
        build = self.builder
        if value in self.constants:
            return build.constant(self.constants[value].value, value.type)
        if value is self.index:
            return build.binary("add", self.first, build.cast(thread, value.type))
        return build.load(self.array_of(value), [thread])

    def store(self, value: Value, thread: Value, new: Value) -> None:
        self.builder.store(self.array_of(value), [thread], new)

    def is_used_elsewhere(self, value: Value, inside: Counter[Value]) -> bool:
        return value not in self.constants and self._uses[value] > inside[value]

    def share(self, *names: list[Value]) -> None:
        """Let the values of a loop that follow each other be one."""
        for same in zip(*names, strict=True):
            shared = self.array_of(same[0])
            self._arrays.update(dict.fromkeys(same, shared))

    # -- all work items of the block ---------------------------------------------------------------

    def each(self, mask: Array | None, fill: Fill) -> None:
        """A loop over the work items; those that are not in the mask do nothing."""
        build, body = self.builder, Block([Value(i32, "thread")])
        with build.into(body):
            (thread,) = body.args
            if mask is None:
                fill(thread)
            else:
                with build.only_if(build.load(mask, [thread])):
                    fill(thread)
            build.yield_()
        build.for_(self.zero, self.count, [], body)

    def mask(self, name: str, choose: Callable[[Value], Value], mask: Array | None) -> Array:
        """Those in a mask for which a condition holds."""
        result = self.array(name, u1)
        self.narrow(result, choose, mask)
        return result

    def narrow(self, result: Array, choose: Callable[[Value], Value], mask: Array | None) -> Value:
        """Fill a mask with those of another one for which a condition holds; whether there are any.

        Who is not in the mask has nothing to be asked for, and is not asked.
        """
        build = self.builder
        body = Block([Value(i32, "thread"), Value(u1)])
        with build.into(body):
            thread, before = body.args
            if mask is None:
                chosen = choose(thread)
            else:
                then, orelse = Block(), Block()
                with build.into(then):
                    build.yield_([choose(thread)])
                with build.into(orelse):
                    build.yield_([build.constant(False, u1)])
                chosen = build.if_(build.load(mask, [thread]), then, orelse).result
            build.store(result, [thread], chosen)
            build.yield_([build.binary("or", before, chosen)])
        return build.for_(self.zero, self.count, [build.constant(False, u1)], body).result

    def hand_on(self, results: list[Value], yielded: list[Value], mask: Array | None) -> None:
        """Let values be what others are, all at the same time."""

        def fill(thread: Value) -> None:
            values = [self.at(value, thread) for value in yielded]
            for result, value in zip(results, values, strict=True):
                self.store(result, thread, value)

        if results:
            self.each(mask, fill)

    @contextmanager
    def while_any(self, start: Value) -> Iterator[list[Value]]:
        """A loop that goes on as long as the value that it is given at its end holds."""
        build = self.builder
        condition, body = Block([Value(u1)]), Block([Value(u1)])
        with build.into(condition):
            build.yield_(condition.args)
        with build.into(body):
            end: list[Value] = []
            yield end
            build.yield_(end)
        build.while_([start], condition, body)
