"""Runs a block's work items one after the other, from one barrier to the next.

Before::

    kernel @k
    array @x: f32, 1, ndarray, () [primal]
    array @pad: f32, 1, shared, () [primal (2,) ((0, 1, 0, 4),) ()]
    parallel @k_0 {'block_dim': 2, 'subgroup_size': 2} {
      %0: i32 = constant<0>()
      %1: i32 = shape<@x, 0>()
      yield(%0, %1)
    } { (%2: i32):
      %3: i32 = constant<1>()
      %4: i32 = binary<and>(%2, %3)
      %5: f32 = load<@x, primal>(%2)
      store<@pad, primal>(%5, %4)
      barrier<block>()
      %6: i32 = binary<xor>(%4, %3)
      %7: f32 = load<@pad, primal>(%6)
      store<@x, primal>(%7, %2)
      yield()
    }

After::

    kernel @k
    array @x: f32, 1, ndarray, () [primal]
    array @pad: f32, 1, shared, () [primal (2,) ((0, 1, 0, 4),) ()]
    array @k_0_bounds: i64, 0, temporary, (2,) [primal]
    array @k_0_pad3: f32, 1, local, () [primal (2,) ((0, 1, 0, 4),) ()]
    array @k_0_value4: i32, 1, local, () [primal (2,) ((0, 1, 0, 4),) ()]
    serial @k_0_bounds {
      %0: i32 = constant<0>()
      %1: i32 = shape<@x, 0>()
      %2: i64 = cast(%0)
      %3: i32 = constant<0>()
      store<@k_0_bounds, primal>(%2, %3)
      %4: i64 = cast(%1)
      %5: i32 = constant<1>()
      store<@k_0_bounds, primal>(%4, %5)
      yield()
    }
    parallel @k_0 {'block_dim': 2, 'subgroup_size': 2, 'simd': False} {
      %6: i32 = constant<0>()
      %7: i64 = load<@k_0_bounds, primal>(%6)
      %8: i32 = constant<1>()
      %9: i64 = load<@k_0_bounds, primal>(%8)
      %10: i64 = binary<sub>(%9, %7)
      %11: i64 = constant<1>()
      %12: i64 = binary<add>(%10, %11)
      %13: i64 = constant<0>()
      %14: i64 = constant<2>()
      %15: i64 = binary<floordiv>(%12, %14)
      yield(%13, %15)
    } { (%16: i64):
      %17: i32 = constant<0>()
      %18: i64 = load<@k_0_bounds, primal>(%17)
      %19: i32 = constant<1>()
      %20: i64 = load<@k_0_bounds, primal>(%19)
      %21: i64 = constant<2>()
      %22: i64 = binary<mul>(%16, %21)
      %23: i64 = binary<add>(%18, %22)
      %24: i64 = binary<sub>(%20, %23)
      %25: i64 = binary<min>(%24, %21)
      %26: i32 = cast(%23)
      %27: i32 = cast(%25)
      %28: i32 = constant<0>()
      for(%28, %27) { (%29: i32):
        %30: i32 = binary<add>(%26, %29)
        %31: i32 = constant<1>()
        %32: i32 = binary<and>(%30, %31)
        %33: f32 = load<@x, primal>(%30)
        store<@k_0_pad3, primal>(%33, %32)
        store<@k_0_value4, primal>(%32, %29)
        yield()
      }
      for(%28, %27) { (%34: i32):
        %35: i32 = load<@k_0_value4, primal>(%34)
        %36: i32 = constant<1>()
        %37: i32 = binary<add>(%26, %34)
        %38: i32 = binary<xor>(%35, %36)
        %39: f32 = load<@k_0_pad3, primal>(%38)
        store<@x, primal>(%39, %37)
        yield()
      }
      yield()
    }

A work item of the task that is made is a block. What a work item of the block computes before a
convergent operation and needs after it is in a local array, with an element for each work item.
Loops and branches with convergent operations run for all work items at once: each has a mask of
the active ones, and a loop ends when none is active. Shared arrays become local ones, updated
without atomics.

That is slow, and gives the bits of the interpreter. It is for devices whose threads cannot wait
for each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.cloning import copy_operation
from octants.ir.cooperative_tasks import cooperates, waiting_operations
from octants.ir.core import Array, ArrayRef, Block, Companion, Module, Operation, Space, Task, Value
from octants.passes.cooperation.localise_shared_arrays import localise
from octants.passes.cooperation.sequence_subgroups import subgroup
from octants.passes.cooperation.values_across_barriers import BlockValues
from octants.passes.tasks.launch_temporaries import load_bounds, make_bounds, store_bounds
from octants.types.scalars import u1

PRIMAL = Companion.PRIMAL


@staged("sequence_work_items")
def sequence_work_items(module: Module) -> None:
    """Replace the tasks whose work items cooperate by one work item for each block, in place."""
    tasks: list[Task] = []
    for task in module.tasks:
        tasks += _Blocks(module, task).tasks() if cooperates(task) else [task]
    module.tasks[:] = tasks


class _Blocks:
    """Builds a task whose work items are the blocks of another one."""

    def __init__(self, module: Module, task: Task) -> None:
        self.module = module
        self.task = task
        self.bounds = make_bounds(module, task)
        self.items = BlockValues(module, task, self.bounds)
        self.shared: dict[ArrayRef, Array] = {}
        self.waiting = waiting_operations(task.body)

    def tasks(self) -> list[Task]:
        """The bounds of the work items, and the blocks."""
        self._block(self.task.body, None)
        self.items.builder.yield_()
        name, location = self.task.name, self.task.location
        options = {**self.task.options, "simd": False}
        return [
            store_bounds(self.task, self.bounds),
            Task(name, self.items.builder.block, self._domain(), location, options),
        ]

    def _domain(self) -> Block:
        """The numbers of the blocks."""
        build, size = Builder(), self.items.block_dim
        lower, upper = load_bounds(build, self.bounds)
        count = build.binary("sub", upper, lower)
        rounded = build.binary("add", count, build.offset(size - 1))
        build.yield_([build.offset(0), build.binary("floordiv", rounded, build.offset(size))])
        return build.block

    # -- blocks of code ----------------------------------------------------------------------------

    def _block(self, block: Block, mask: Array | None) -> None:
        """Write the operations of a block for all work items.

        Args:
            block: The block of the original task.
            mask: The flags of the work items that run it; None stands for all of them.
        """
        run: list[Operation] = []
        for op in block.ops[:-1]:
            if op not in self.waiting:
                run.append(op)
                continue
            self._plain(run, mask)
            run = []
            self.items.builder.location = op.location
            if not isinstance(op, ops.Barrier):
                _MEET[type(op)](self, op, mask)
        self._plain(run, mask)

    def _plain(self, run: Sequence[Operation], mask: Array | None) -> None:
        """Operations that a work item runs by itself."""
        inside = Counter(value for op in _walk(run) for value in op.operands)
        defined = {value for op in run for value in op.results}
        kept = [value for value in defined if self.items.is_used_elsewhere(value, inside)]
        is_empty = all(isinstance(op, (ops.Constant, ops.Fence)) for op in run)
        if is_empty and not kept:
            return
        deep = defined.union(*(region.defined() for op in run for region in op.regions))
        given = [value for value in inside if value not in deep]
        reports = any(op.reports for op in _walk(run))

        def fill(thread: Value) -> None:
            if reports:
                self.items.builder.append(ops.ActAs(self.items.at(self.items.index, thread)))
            values = {value: self.items.at(value, thread) for value in given}
            block = Block([], [copy_operation(op, values) for op in run])
            localise(block, self._local_array)
            self.items.builder.block.ops += block.ops
            for value in _in_order(run, kept):
                self.items.store(value, thread, values[value])

        self.items.each(mask, fill)

    def _local_array(self, array: Array, companion: Companion) -> Array:
        """The local array for a shared one, or for a companion of it."""
        key = ArrayRef(array, companion)
        if key not in self.shared:
            name = f"{self.task.name}_{array.name}{len(self.module.arrays)}"
            layouts = {PRIMAL: array.layouts[companion]}
            self.shared[key] = Array(
                name, array.dtype, array.rank, Space.LOCAL, array.element_shape, layouts
            )
            self.module.arrays.append(self.shared[key])
        return self.shared[key]

    def _subgroup(self, op: ops.Subgroup, mask: Array | None) -> None:
        subgroup(self.items, op, mask)

    # -- branches and loops ------------------------------------------------------------------------

    def _if(self, op: ops.If, mask: Array | None) -> None:
        build = self.items.builder
        for side, is_taken in ((op.then, True), (op.orelse, False)):

            def choose(thread: Value, is_taken: bool = is_taken) -> Value:
                condition = self.items.at(op.condition, thread)
                return condition if is_taken else build.unary("not", condition)

            inside = self.items.mask("mask", choose, mask)
            self._block(side, inside)
            self.items.hand_on(op.results, side.yielded, inside)

    def _for(self, op: ops.For, mask: Array | None) -> None:
        items, build, (counter, *args) = self.items, self.items.builder, op.body.args
        items.share(args, op.results)
        items.hand_on([counter, *args], [op.lower, *op.inits], mask)
        inside = items.array("mask", u1)

        def goes_on(thread: Value) -> Value:
            return build.compare("lt", items.at(counter, thread), items.at(op.upper, thread))

        def advance(thread: Value) -> None:
            values = [items.at(value, thread) for value in op.body.yielded]
            one = build.constant(1, counter.type)
            items.store(counter, thread, build.binary("add", items.at(counter, thread), one))
            for arg, value in zip(args, values, strict=True):
                items.store(arg, thread, value)

        with items.while_any(items.narrow(inside, goes_on, mask)) as end:
            self._block(op.body, inside)
            items.each(inside, advance)
            end.append(items.narrow(inside, goes_on, inside))

    def _while(self, op: ops.While, mask: Array | None) -> None:
        items, (condition,) = self.items, op.condition.yielded
        items.share(op.condition.args, op.body.args, op.results)
        items.hand_on(op.condition.args, op.inits, mask)
        inside, yes = items.array("mask", u1), items.builder.constant(True, u1)
        with items.while_any(items.narrow(inside, lambda _: yes, mask)) as end:
            self._block(op.condition, inside)
            goes_on = items.narrow(inside, lambda thread: items.at(condition, thread), inside)
            with items.builder.only_if(goes_on):
                self._iterate(op, inside)
            end.append(goes_on)

    def _iterate(self, op: ops.While, inside: Array) -> None:
        self._block(op.body, inside)
        self.items.hand_on(op.body.args, op.body.yielded, inside)


_MEET: dict[type[Operation], Callable[[_Blocks, Any, Array | None], None]] = {
    ops.If: _Blocks._if,
    ops.For: _Blocks._for,
    ops.While: _Blocks._while,
    ops.Subgroup: _Blocks._subgroup,
}


def _in_order(run: Sequence[Operation], values: Sequence[Value]) -> list[Value]:
    """Values in the order of the operations that define them."""
    wanted = set(values)
    return [value for op in run for value in op.results if value in wanted]


def _walk(run: Sequence[Operation]) -> list[Operation]:
    return list(Block([], list(run)).walk())
