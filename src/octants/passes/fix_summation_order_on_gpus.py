"""Fixes the order of sums by many threads: what `fix_summation_order` does on GPUs.

The work items of a task are distributed to a fixed number of threads. Each thread has a private
copy, called a *part*, of what is added to: one number for each element that all work items add to,
and one for each element of arrays. The parts are added up along a tree that is always the same.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import field

from octants.analysis.affine_analysis import AffineExpressions
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.cloning import emit
from octants.ir.core import Array, ArrayRef, Block, Companion, Module, Operation, Task, Value
from octants.ir.slices import emit_slice
from octants.lazy_dataclass import dataclass
from octants.passes.launch_temporaries import add_temporary, load_bounds, make_bounds, store_bounds
from octants.types.scalars import DType, i32, i64, register_type

MOST, LEAST = 1 << 17, 1 << 6
"""Threads, at most and at least: with fewer, a serial sum is as fast."""
_BRANCHES = 1 << 6
_BYTES = 1 << 28  # of all parts of a task, at most
PRIMAL = Companion.PRIMAL


@dataclass(eq=False, slots=True)
class OrderedSums:
    """Sums whose parts are in one array: so many numbers, of `dtype`.

    They are the elements of a `target`, or the elements of `uniform_updates`, each of which is the
    same for all work items.
    """

    dtype: DType
    count: int
    target: ArrayRef | None = None
    uniform_updates: list[ops.Atomic] = field(default_factory=list)
    parts: Array | None = None

    @property
    def nbytes(self) -> int:
        """The bytes of one part."""
        return self.count * self.dtype.size


def find_parts(
    task: Task, shared: Collection[Operation], spread: Collection[Operation]
) -> OrderedParts | None:
    """The parts for updates of elements that are the same for all work items, and of others.

    None if they would take too much memory, or if an array has no fixed number of elements.
    """
    found = OrderedParts(task)
    for op in shared:
        found.add_uniform_element(op)
    for op in spread:
        if not found.add_target(op):
            return None
    return found if found.threads >= LEAST else None


def elements(array: Array) -> tuple[int, ...] | None:
    """The extents of the axes of an array and of its elements, if they are known."""
    shape = array.fixed_shape or () if array.rank == 0 else array.fixed_shape
    return None if shape is None or array.like is not None else (*shape, *array.element_shape)


class OrderedParts:
    """The parts of a task."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._affine = AffineExpressions(task)
        self._uniform_sums: dict[DType, OrderedSums] = {}
        self._numbers: dict[object, int] = {}
        self._targets: dict[ArrayRef, OrderedSums] = {}

    def add_uniform_element(self, op: Operation) -> None:
        """Have parts for the element of an update, which is the same for all work items."""
        assert isinstance(op, ops.Atomic)
        dtype = register_type(op.array.dtype)
        sums = self._uniform_sums.setdefault(dtype, OrderedSums(dtype, 0))
        if self._affine.element(op) not in self._numbers:
            self._numbers[self._affine.element(op)] = sums.count
            sums.uniform_updates.append(op)
            sums.count += 1

    def add_target(self, op: Operation) -> bool:
        """Have parts for an array; False if that cannot be."""
        assert isinstance(op, ops.Atomic)
        target, shape = op.ref, elements(op.array)
        if shape is None:
            return False
        self._targets.setdefault(
            target, OrderedSums(register_type(op.array.dtype), math.prod(shape), target)
        )
        return True

    @property
    def _all(self) -> list[OrderedSums]:
        return [*self._uniform_sums.values(), *self._targets.values()]

    @property
    def threads(self) -> int:
        """How many there are: as many as `_BYTES` hold parts of; a power of two."""
        nbytes = sum(sums.nbytes for sums in self._all)
        return min(MOST, 1 << max(0, (_BYTES // max(1, nbytes)).bit_length() - 1))

    # -- tasks ------------------------------------------------------------------------------------

    def tasks(self, module: Module) -> list[Task]:
        """The tasks that replace the task: its bounds, its work items, the sums of their parts."""
        tasks, bounds = list[Task](), None
        assert self._task.domain is not None
        if not all(map(self._affine.is_uniform, self._task.domain.yielded)):
            bounds = make_bounds(module, self._task)
            tasks.append(store_bounds(self._task, bounds))
        for number, sums in enumerate(self._all):
            name = f"{self._task.name}_parts{number}"
            sums.parts = add_temporary(module, name, sums.dtype, (sums.count, self.threads))
        tasks.append(self._strided_task(bounds))
        for sums in self._all:
            tasks += self._branches(module, sums)
            tasks.append(self._root(sums))
        return tasks

    def _parallel(self, name: str, count: int, body: Block, **options: object) -> Task:
        domain = Builder()
        kind = body.args[0].type
        domain.yield_([domain.constant(0, kind), domain.constant(count, kind)])
        return Task(name, body, domain.block, self._task.location, dict(options))

    def _bounds(self, builder: Builder, bounds: Array | None) -> tuple[Value, Value]:
        """The lower and the upper bound, i64, computed again where they are not kept."""
        if bounds is not None:
            return load_bounds(builder, bounds)
        assert self._task.domain is not None
        ends = emit_slice(builder, self._task.domain.yielded, self._affine.definitions)
        lower, upper = (builder.cast(value, i64) for value in ends)
        return lower, upper

    def _strided_task(self, bounds: Array | None) -> Task:
        """Thread t has the work items t, t + n, t + 2 n, ... after the first one."""
        item = self._task.body.args[0]
        thread = Value(i32, "thread")
        builder = Builder(Block([thread]))
        builder.location = self._task.location
        lower, upper = self._bounds(builder, bounds)
        first, step = builder.cast(thread, i64), builder.offset(self.threads)
        last = builder.binary("sub", builder.offset(self.threads - 1), first)
        rest = builder.binary("add", builder.binary("sub", upper, lower), last)
        count = builder.binary("max", builder.binary("floordiv", rest, step), builder.offset(0))
        begin = builder.binary("add", lower, first)
        body = Block([Value(i64, "iteration")])
        with builder.into(body):
            before = builder.binary("mul", body.args[0], step)
            number = builder.cast(builder.binary("add", begin, before), item.type)
            if any(op.reports for op in self._task.body.walk()):
                builder.append(ops.ActAs(number))
            self._copy(builder, self._task.body, {item: number}, thread)
        builder.for_(builder.offset(0), count, [], body)
        builder.yield_()
        options = dict(self._task.options)
        return self._parallel(self._task.name, self.threads, builder.block, **options)

    def _copy(
        self, builder: Builder, block: Block, values: dict[Value, Value], thread: Value
    ) -> None:
        """The operations of a block, with updates that go to the parts of a thread."""
        for op in block.ops:
            builder.location = op.location
            if isinstance(op, ops.Atomic) and self._redirect(builder, op, values, thread):
                continue
            emit(builder, op, values)
            copy = builder.block.ops[-1]
            for region, original in zip(copy.regions, op.regions, strict=True):
                region.ops.clear()
                with builder.into(region):
                    self._copy(builder, original, values, thread)

    def _redirect(
        self,
        builder: Builder,
        op: ops.Atomic,
        values: dict[Value, Value],
        thread: Value,
    ) -> bool:
        """Add to the thread's part, where an update has one."""
        sums, number = self._targets.get(op.ref), self._numbers.get(self._affine.element(op))
        if sums is not None:
            indices = [values.get(index, index) for index in op.indices]
            element = _linear(builder, indices, elements(op.array) or ())
        elif number is not None:
            sums, element = self._uniform_sums[register_type(op.array.dtype)], builder.index(number)
        else:
            return False
        assert sums.parts is not None
        value = builder.cast(values.get(op.value, op.value), sums.dtype)
        builder.atomic(op.fn, sums.parts, [element, thread], value)
        return True

    def _branches(self, module: Module, sums: OrderedSums) -> list[Task]:
        """Tasks that leave fewer parts of each number, until one thread can add them up."""
        tasks, left = [], self.threads
        while left > _BRANCHES:
            left //= _BRANCHES
            assert sums.parts is not None
            name = f"{sums.parts.name}_{left}"
            fewer = add_temporary(module, name, sums.dtype, (sums.count, left))
            index = Value(i64, "index")
            builder = Builder(Block([index]))
            builder.location = self._task.location
            size = builder.offset(left)
            number, branch = (builder.binary(fn, index, size) for fn in ("floordiv", "mod"))
            total = _total(builder, sums.parts, number, branch, _BRANCHES, left)
            builder.store(fewer, [number, branch], total)
            builder.yield_()
            tasks.append(self._parallel(name, sums.count * left, builder.block))
            sums.parts = fewer
        return tasks

    def _root(self, sums: OrderedSums) -> Task:
        """Adds what is left of the parts to where it belongs."""
        return self._of_uniform_elements(sums) if sums.target is None else self._of_target(sums)

    def _of_uniform_elements(self, sums: OrderedSums) -> Task:
        builder = Builder(Block())
        builder.location = self._task.location
        for number, op in enumerate(sums.uniform_updates):
            total = self._left(builder, sums, builder.index(number))
            with self._if_any(builder, total):
                indices = emit_slice(builder, op.indices, self._affine.definitions)
                total = builder.cast(total, op.array.dtype)
                builder.atomic("add", op.array, indices, total, op.companion)
        builder.yield_()
        return Task(f"{self._task.name}_sums", builder.block, None, self._task.location)

    def _of_target(self, sums: OrderedSums) -> Task:
        assert sums.target is not None
        array, companion = sums.target
        number = Value(i32, "number")
        builder = Builder(Block([number]))
        builder.location = self._task.location
        total = self._left(builder, sums, number)
        with self._if_any(builder, total):
            indices = _separate(builder, number, elements(array) or ())
            builder.atomic("add", array, indices, builder.cast(total, array.dtype), companion)
        builder.yield_()
        name = f"{self._task.name}_{array.name}_{companion.value}"
        return self._parallel(name, sums.count, builder.block)

    def _left(self, builder: Builder, sums: OrderedSums, number: Value) -> Value:
        """The sum of the remaining parts of one element."""
        assert sums.parts is not None
        count = sums.parts.element_shape[1]
        return _total(builder, sums.parts, number, builder.index(0), count, 1)

    @contextmanager
    def _if_any(self, builder: Builder, total: Value) -> Iterator[None]:
        """A branch for where a sum is not zero: what nothing is added to may not even be there."""
        is_any = builder.compare("ne", total, builder.constant(0, total.type))
        with builder.only_if(is_any):
            yield


def _total(
    builder: Builder, parts: Array, number: Value, first: Value, count: int, step: int
) -> Value:
    """The sum of so many parts of a number, from the first one on, in steps."""
    zero, kind = builder.constant(0, parts.dtype), first.type
    body = Block([Value(kind, "iteration"), Value(parts.dtype, "total")])
    iteration, total = body.args
    with builder.into(body):
        after = builder.binary("mul", iteration, builder.constant(step, kind))
        value = builder.load(parts, [number, builder.binary("add", first, after)])
        builder.yield_([builder.binary("add", total, value)])
    ends = builder.constant(0, kind), builder.constant(count, kind)
    return builder.for_(*ends, [zero], body).results[0]


def _linear(builder: Builder, indices: list[Value], shape: tuple[int, ...]) -> Value:
    """The number of an element in row-major order."""
    number = builder.index(0)
    for index, extent in zip(indices, shape, strict=True):
        row = builder.binary("mul", number, builder.index(extent))
        number = builder.binary("add", row, builder.cast(index, i32))
    return number


def _separate(builder: Builder, number: Value, shape: tuple[int, ...]) -> list[Value]:
    """The indices of the element of a number."""
    indices: list[Value] = []
    for extent in reversed(shape):
        size = builder.index(extent)
        indices.insert(0, builder.binary("mod", number, size))
        number = builder.binary("floordiv", number, size)
    return indices
