"""Sums of tasks whose order does not depend on the number of threads; see `fix_summation_order`.

The work items of a task are divided among a fixed number of threads. Each thread has partial sums:
one for each element that all work items add to, and one for each element of arrays. They are added
up in an order that is always the same: on CPUs one after the other, on GPUs along a tree.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import field

from octants.analysis.indices.affine_analysis import AffineExpressions
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.cloning import emit
from octants.ir.core import Array, ArrayRef, Block, Module, Operation, Task, Value
from octants.ir.slices import emit_slice
from octants.lazy_dataclass import dataclass
from octants.passes.tasks.launch_temporaries import (
    add_temporary,
    load_bounds,
    make_bounds,
    store_bounds,
)
from octants.types.scalars import DType, i32, i64, register_type

CHUNKS = 128
"""The threads of a CPU: each runs a contiguous chunk of the work items."""
MOST, LEAST = 1 << 17, 1 << 6
"""The threads of a GPU, at most and at least: with fewer, a serial sum is as fast."""
_BRANCHES = 1 << 6
_BYTES = 1 << 28  # of all partial sums of a task, at most


@dataclass(eq=False, slots=True)
class PartialSums:
    """The partial sums of `count` numbers of `dtype`, in one array.

    These are the elements of a `target`, or the elements of `uniform_updates`, each of which is the
    same for all work items.
    """

    dtype: DType
    count: int
    target: ArrayRef | None = None
    uniform_updates: list[ops.Atomic] = field(default_factory=list)
    array: Array | None = None

    @property
    def nbytes(self) -> int:
        """The bytes of one thread."""
        return self.count * self.dtype.size


def reductions_in_chunks(task: Task, updates: Collection[Operation]) -> OrderedReductions:
    """The reductions of updates of elements that are the same for all work items, on a CPU."""
    found = OrderedReductions(task, CHUNKS)
    for op in updates:
        found.add_uniform_element(op)
    return found


def reductions_by_many_threads(
    task: Task, uniform: Collection[Operation], others: Collection[Operation]
) -> OrderedReductions | None:
    """The reductions of updates of elements that are the same for all work items, and of others.

    None if they would take too much memory, or if an array has no fixed number of elements.
    """
    found = OrderedReductions(task)
    for op in uniform:
        found.add_uniform_element(op)
    for op in others:
        if not found.add_target(op):
            return None
    return found if found.threads >= LEAST else None


def elements(array: Array) -> tuple[int, ...] | None:
    """The extents of the axes of an array and of its elements, if they are known."""
    shape = array.fixed_shape or () if array.rank == 0 else array.fixed_shape
    return None if shape is None or array.like is not None else (*shape, *array.element_shape)


class OrderedReductions:
    """The reductions of a task, by so many `chunks` of work items, or by as many threads as fit."""

    def __init__(self, task: Task, chunks: int = 0) -> None:
        self._task, self._chunks = task, chunks
        self._affine = AffineExpressions(task)
        self._uniform_sums: dict[DType, PartialSums] = {}
        self._numbers: dict[object, int] = {}
        self._indices: dict[int, Value] = {}  # of these numbers, outside of the threads' loops
        self._targets: dict[ArrayRef, PartialSums] = {}

    def add_uniform_element(self, op: Operation) -> None:
        """Have partial sums for the element of an update: it is the same for all work items."""
        assert isinstance(op, ops.Atomic)
        dtype = register_type(op.array.dtype)
        sums = self._uniform_sums.setdefault(dtype, PartialSums(dtype, 0))
        if self._affine.element(op) not in self._numbers:
            self._numbers[self._affine.element(op)] = sums.count
            sums.uniform_updates.append(op)
            sums.count += 1

    def add_target(self, op: Operation) -> bool:
        """Have partial sums for each element of an array; False if that cannot be."""
        assert isinstance(op, ops.Atomic)
        target, shape = op.ref, elements(op.array)
        if shape is None:
            return False
        self._targets.setdefault(
            target, PartialSums(register_type(op.array.dtype), math.prod(shape), target)
        )
        return True

    @property
    def _all(self) -> list[PartialSums]:
        return [*self._uniform_sums.values(), *self._targets.values()]

    @property
    def threads(self) -> int:
        """How many there are: as many as `_BYTES` hold partial sums of; a power of two."""
        if self._chunks:
            return self._chunks
        nbytes = sum(sums.nbytes for sums in self._all)
        return min(MOST, 1 << max(0, (_BYTES // max(1, nbytes)).bit_length() - 1))

    # -- tasks ------------------------------------------------------------------------------------

    def tasks(self, module: Module) -> list[Task]:
        """The tasks that replace the task: its bounds, its work items, the sums of their sums."""
        tasks, bounds = list[Task](), None
        assert self._task.domain is not None
        if not all(map(self._affine.is_uniform, self._task.domain.yielded)):
            bounds = make_bounds(module, self._task)
            tasks.append(store_bounds(self._task, bounds))
        for number, sums in enumerate(self._all):
            name = f"{self._task.name}_sums{number}"
            sums.array = add_temporary(module, name, sums.dtype, (sums.count, self.threads))
        tasks.append(self._thread_task(bounds))
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

    def _thread_task(self, bounds: Array | None) -> Task:
        """The task of the threads: each runs its work items, in order."""
        thread = Value(self._task.body.args[0].type if self._chunks else i32, "thread")
        builder = Builder(Block([thread]))
        builder.location = self._task.location
        lower, upper = self._bounds(builder, bounds)
        self._indices = {
            each: builder.index(each) for each in dict.fromkeys(self._numbers.values())
        }
        run = self._run_chunk if self._chunks else self._run_strided
        run(builder, lower, upper, thread)
        builder.yield_()
        options = dict(self._task.options)
        return self._parallel(self._task.name, self.threads, builder.block, **options)

    def _run_chunk(self, builder: Builder, lower: Value, upper: Value, thread: Value) -> None:
        """Run the work items of a chunk."""
        kind = self._task.body.args[0].type
        count = builder.binary("max", builder.binary("sub", upper, lower), builder.offset(0))
        first, total = builder.cast(thread, i64), builder.offset(self.threads)
        ends = []
        for number in (first, builder.binary("add", first, builder.offset(1))):
            share = builder.binary("floordiv", builder.binary("mul", count, number), total)
            ends.append(builder.cast(builder.binary("add", lower, share), kind))
        body = Block([Value(kind, "item")])
        with builder.into(body):
            self._run_item(builder, body.args[0], thread)
        begin, end = ends
        builder.for_(begin, end, [], body)

    def _run_strided(self, builder: Builder, lower: Value, upper: Value, thread: Value) -> None:
        """Run the work items t, t + n, t + 2 n, ... after the first one, in thread t of n."""
        first, step = builder.cast(thread, i64), builder.offset(self.threads)
        last = builder.binary("sub", builder.offset(self.threads - 1), first)
        rest = builder.binary("add", builder.binary("sub", upper, lower), last)
        count = builder.binary("max", builder.binary("floordiv", rest, step), builder.offset(0))
        begin = builder.binary("add", lower, first)
        body = Block([Value(i64, "iteration")])
        with builder.into(body):
            before = builder.binary("mul", body.args[0], step)
            number = builder.binary("add", begin, before)
            self._run_item(builder, builder.cast(number, self._task.body.args[0].type), thread)
        builder.for_(builder.offset(0), count, [], body)

    def _run_item(self, builder: Builder, number: Value, thread: Value) -> None:
        """Run the work item of a number."""
        body = self._task.body
        if any(op.reports for op in body.walk()):
            builder.append(ops.ActAs(number))
        self._copy(builder, body, {body.args[0]: number}, thread)

    def _copy(
        self, builder: Builder, block: Block, values: dict[Value, Value], thread: Value
    ) -> None:
        """Copy the operations of a block, with updates of the partial sums of a thread."""
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
        """Add to the thread's partial sum, where an update has one."""
        sums, number = self._targets.get(op.ref), self._numbers.get(self._affine.element(op))
        if sums is not None:
            indices = [values.get(index, index) for index in op.indices]
            element = _linear(builder, indices, elements(op.array) or ())
        elif number is not None:
            sums = self._uniform_sums[register_type(op.array.dtype)]
            element = self._indices[number]
        else:
            return False
        assert sums.array is not None
        value = builder.cast(values.get(op.value, op.value), sums.dtype)
        builder.atomic(op.fn, sums.array, [element, thread], value)
        return True

    def _branches(self, module: Module, sums: PartialSums) -> list[Task]:
        """Tasks that leave fewer partial sums of each number, until one thread can add them up."""
        tasks, left = [], self.threads
        while not self._chunks and left > _BRANCHES:
            left //= _BRANCHES
            assert sums.array is not None
            name = f"{sums.array.name}_{left}"
            fewer = add_temporary(module, name, sums.dtype, (sums.count, left))
            index = Value(i64, "index")
            builder = Builder(Block([index]))
            builder.location = self._task.location
            size = builder.offset(left)
            number, branch = (builder.binary(fn, index, size) for fn in ("floordiv", "mod"))
            total = _total(builder, sums.array, number, branch, _BRANCHES, left)
            builder.store(fewer, [number, branch], total)
            builder.yield_()
            tasks.append(self._parallel(name, sums.count * left, builder.block))
            sums.array = fewer
        return tasks

    def _root(self, sums: PartialSums) -> Task:
        """Adds the partial sums that are left to where they belong."""
        return self._of_uniform_elements(sums) if sums.target is None else self._of_target(sums)

    def _of_uniform_elements(self, sums: PartialSums) -> Task:
        builder = Builder(Block())
        builder.location = self._task.location
        for number, op in enumerate(sums.uniform_updates):
            total = self._left(builder, sums, builder.index(number))
            with self._if_any(builder, total):
                indices = emit_slice(builder, op.indices, self._affine.definitions)
                total = builder.cast(total, op.array.dtype)
                builder.atomic("add", op.array, indices, total, op.companion)
        builder.yield_()
        return Task(f"{self._task.name}_combine", builder.block, None, self._task.location)

    def _of_target(self, sums: PartialSums) -> Task:
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

    def _left(self, builder: Builder, sums: PartialSums, number: Value) -> Value:
        """The sum of the partial sums that are left of one element."""
        assert sums.array is not None
        count = sums.array.element_shape[1]
        return _total(builder, sums.array, number, builder.index(0), count, 1)

    @contextmanager
    def _if_any(self, builder: Builder, total: Value) -> Iterator[None]:
        """A branch for where a sum is not zero: what nothing is added to may not even be there."""
        is_any = builder.compare("ne", total, builder.constant(0, total.type))
        with builder.only_if(is_any):
            yield


def _total(
    builder: Builder, sums: Array, number: Value, first: Value, count: int, step: int
) -> Value:
    """The sum of so many partial sums of a number, from the first one on, in steps."""
    zero, kind = builder.constant(0, sums.dtype), first.type
    body = Block([Value(kind, "iteration"), Value(sums.dtype, "total")])
    iteration, total = body.args
    with builder.into(body):
        after = builder.binary("mul", iteration, builder.constant(step, kind))
        value = builder.load(sums, [number, builder.binary("add", first, after)])
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
