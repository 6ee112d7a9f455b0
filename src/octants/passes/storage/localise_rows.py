"""Keeps rows that a loop reads or adds to in each iteration in memory near the work item.

A matrix times a row reads each element of the row for each row of the matrix, and its gradient adds
to each of them as often. The rows of work items are far from each other in memory, so each access
takes as many transactions as a subgroup has threads, or as a vector has lanes. What work items have
near them is side by side. So a row that is only read is copied before the loop, and what is added
to a row of an adjoint is added up, and added once behind the loop.

Before::

    array @x: f32, 2, field, () [adjoint (8, 4) ((0, 1, 0, 16), (1, 1, 0, 4)) ()]
    array @w: f32, 2, field, () [primal (6, 4) ((0, 1, 0, 16), (1, 1, 0, 4)) ()]
    parallel (%2: i32 < constant<8>()) {
      %3: i32 = constant<0>()
      %4: i32 = constant<6>()
      %5: i32 = constant<4>()
      for(%3, %4) { (%6: i32):
        for(%3, %5) { (%7: i32):
          %8: f32 = load<@w, primal>(%6, %7)
          %9: f32 = load<@x, adjoint>(%2, %7)
          %10: f32 = binary<add>(%9, %8)
          store<@x, adjoint>(%10, %2, %7)
          yield()
        }
        yield()
      }
    }

After::

    array @x: f32, 2, field, () [adjoint (8, 4) ((0, 1, 0, 16), (1, 1, 0, 4)) ()]
    array @w: f32, 2, field, () [primal (6, 4) ((0, 1, 0, 16), (1, 1, 0, 4)) ()]
    array @k_0_row2: f32, 1, local, () [primal (4,) ((0, 1, 0, 4),) ()]
    parallel (%2: i32 < constant<8>()) {
      %3: i32 = constant<0>()
      %4: i32 = constant<6>()
      %5: i32 = constant<4>()
      %6: f32 = constant<-0.0>()
      for(%3, %5) { (%7: i32):
        store<@k_0_row2, primal>(%6, %7)
        yield()
      }
      for(%3, %4) { (%8: i32):
        for(%3, %5) { (%9: i32):
          %10: f32 = load<@w, primal>(%8, %9)
          %11: f32 = load<@k_0_row2, primal>(%9)
          %12: f32 = binary<add>(%11, %10)
          store<@k_0_row2, primal>(%12, %9)
          yield()
        }
        yield()
      }
      for(%3, %5) { (%13: i32):
        %14: f32 = load<@k_0_row2, primal>(%13)
        %15: f32 = load<@x, adjoint>(%2, %13)
        %16: f32 = binary<add>(%15, %14)
        store<@x, adjoint>(%16, %2, %13)
        yield()
      }
    }

The terms are added in another order then, as no replay can tell: the arrays are adjoints. A row is
copied where nothing in the loop may write to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence

from octants.analysis.control_flow.uniformity import Uniformity
from octants.analysis.indices.affine_analysis import AffineExpressions
from octants.analysis.indices.array_strides import address_step
from octants.analysis.indices.distinct_iterations import differ, varying
from octants.analysis.lanes.choose_loops import may_run
from octants.analysis.lanes.row_major_loops import find_rows
from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.array_aliasing import may_alias
from octants.ir.builder import Builder
from octants.ir.cloning import emit
from octants.ir.cooperative_tasks import cooperates
from octants.ir.core import (
    Array,
    ArrayRef,
    Block,
    Companion,
    Module,
    Operation,
    Space,
    Task,
    Value,
)
from octants.ir.slices import backward_slice
from octants.lazy_dataclass import dataclass
from octants.passes.loops.jam_loops import has_nests
from octants.simplify import simplify
from octants.target import Vectors
from octants.types.layouts import one_axis
from octants.types.scalars import i32

_MOST_BYTES, _MOST_IN_LANES = 1 << 10, 1 << 12
"""The most bytes of the rows of a task, on GPUs and on CPUs."""
_FEWEST = 4
"""The fewest iterations around that are worth an array for the row."""
_IN_MEMORY = (Space.FIELD, Space.NDARRAY, Space.TEMPORARY)


@staged("localise_rows")
def localise_rows(module: Module, vectors: Vectors | None = None) -> None:
    """Rewrite the loops of all parallel tasks, in place.

    Args:
        module: the module.
        vectors: the vectors in whose lanes work items run; None where each has a thread.
    """
    tasks = [
        task
        for task in module.tasks
        if task.is_parallel and has_nests(task) and not cooperates(task)
        if vectors is None or may_run(task, vectors)
    ]
    most = _MOST_BYTES if vectors is None else _MOST_IN_LANES
    changes = [_Rewriter(module, task, most).run() for task in tasks]
    if any(changes):
        simplify(module)


@dataclass(frozen=True, slots=True)
class _Row:
    """The accesses of a loop to a row: to one element in each iteration.

    `store` is None where the row is only read. `slice` computes the indices.
    """

    loop: ops.For
    load: ops.Load
    store: ops.Store | None
    slice: Sequence[Operation]


class _Rewriter:
    """Rewrites a task."""

    def __init__(self, module: Module, task: Task, most_bytes: int) -> None:
        self._module, self._task, self._left = module, task, most_bytes
        self._affine = AffineExpressions(task)
        self._constants = ops.constants_in(task.body)
        self._users = Counter(value for op in task.body.walk() for value in op.operands)
        rows = find_rows(task)
        self._items = {task.body.args[0], *(rows.columns if rows else ())}
        self._facts = Uniformity(task.body, rows.numbers if rows else ())

    def run(self) -> bool:
        """Rewrite the task; gives whether anything has changed."""
        return self._visit(self._task.body)

    def _visit(self, block: Block) -> bool:
        result: list[Operation] = []
        has_changed = False
        copies: dict[Hashable, tuple[ArrayRef, Array]] = {}
        for op in block.ops:
            behind: list[Operation] = []
            is_long = isinstance(op, ops.For) and self._is_long(op)
            if isinstance(op, ops.For) and is_long:
                for row in list(self._read_rows(op)):
                    has_changed |= self._copy(op, row, copies, result)
            for region in op.regions:
                has_changed |= self._visit(region)
            if isinstance(op, ops.For) and is_long:
                for row in self._sums(op):
                    if self._fits(row.loop, row.load):
                        array = self._array(row)
                        result += self._clear(row, array)
                        behind += self._if_it_runs(op, self._add(row, array))
                        self._redirect(row, array)
                        has_changed = True
            written = _written(Block([], [op, *behind]))
            copies = {
                key: (ref, array)
                for key, (ref, array) in copies.items()
                if not any(may_alias(ref, other, self._module.noalias) for other in written)
            }
            result += [op, *behind]
        block.ops[:] = result
        return has_changed

    # -- which -------------------------------------------------------------------------------------

    def _is_long(self, outer: ops.For) -> bool:
        """Whether so many iterations may run that an array for a row is worth it."""
        trips = outer.trips(self._constants)
        return trips is None or trips >= _FEWEST

    def _fits(self, loop: ops.For, load: ops.Load) -> bool:
        """Whether a row is short, and memory is left for it."""
        trips = loop.trips(self._constants)
        return trips is not None and 0 < trips * load.array.dtype.size <= self._left

    def _read_rows(self, outer: ops.For) -> Iterator[_Row]:
        """The rows that the loops in a loop only read."""
        written, slices = _written(outer.body), _IndexSlices(outer)
        for loop in self._loops_in(outer.body):
            for load in loop.body.ops:
                if (
                    isinstance(load, ops.Load)
                    and self._is_far(load)
                    and not any(may_alias(load.ref, x, self._module.noalias) for x in written)
                    and (found := slices.find(loop.body.args[0], load.indices)) is not None
                ):
                    yield _Row(loop, load, None, found)

    def _loops_in(self, block: Block) -> Iterator[ops.For]:
        """The loops of a block that surely run, and those in them."""
        for op in block.ops:
            if isinstance(op, ops.For) and (op.trips(self._constants) or 0) > 0:
                yield op
                yield from self._loops_in(op.body)

    def _is_far(self, load: ops.Load) -> bool:
        """Whether work items in step load elements that are no neighbours."""
        array = load.array
        if array.space not in _IN_MEMORY or array.dtype.is_bool:
            return False
        if not any(map(self._facts.varies, load.indices)):
            return False
        distance = address_step(self._affine, load, self._items, self._facts.varies)
        return distance not in (0, array.dtype.size)

    def _sums(self, outer: ops.For) -> list[_Row]:
        """The rows that the loops in a loop add to."""
        changing, slices = varying(outer), _IndexSlices(outer)
        accesses = [op for op in outer.body.walk() if isinstance(op, ops.Access)]
        rows = [
            row
            for loop in outer.body.ops
            if isinstance(loop, ops.For)
            for store in loop.body.ops
            if isinstance(store, ops.Store) and (row := self._sum(loop, store, slices)) is not None
        ]
        return [row for row in rows if self._is_alone(row, accesses, changing)]

    def _sum(self, loop: ops.For, store: ops.Store, slices: _IndexSlices) -> _Row | None:
        """The addition that ends with a store, if it is one to an adjoint."""
        if store.companion is not Companion.ADJOINT or not store.array.dtype.is_float:
            return None
        makers = {value: op for op in loop.body.ops for value in op.results}
        add = makers.get(store.value)
        if not isinstance(add, ops.Binary) or add.fn != "add":
            return None
        for value in add.operands:
            load = makers.get(value)
            if isinstance(load, ops.Load) and (load.ref, load.indices) == (
                store.ref,
                store.indices,
            ):
                found = slices.find(loop.body.args[0], load.indices)
                is_once = self._users[load.result] == self._users[add.result] == 1
                return _Row(loop, load, store, found) if is_once and found is not None else None
        return None

    def _is_alone(self, row: _Row, accesses: list[ops.Access], changing: set[Value]) -> bool:
        """Whether only the addition accesses the row, and each element once in its loop."""
        load, others = row.load, (op for op in accesses if op not in (row.load, row.store))
        if any(may_alias(op.ref, load.ref, self._module.noalias) for op in others):
            return False
        return differ(self._affine, row.loop.body.args[0], changing, load, load)

    # -- rewriting ---------------------------------------------------------------------------------

    def _copy(
        self,
        outer: ops.For,
        row: _Row,
        copies: dict[Hashable, tuple[ArrayRef, Array]],
        result: list[Operation],
    ) -> bool:
        """Let a row that is read be one of ``copies``, or a new one; gives whether it is.

        Args:
            outer: The loop.
            row: The row.
            copies: The copies that were made before the loop, by rows and the bounds that a loop
                has to have for its copy to have been made, None for one that is always made.
            result: The operations before the loop.
        """
        key = self._key(row)
        runs = None if outer.trips(self._constants) is not None else (outer.lower, outer.upper)
        found = copies.get((key, None)) or copies.get((key, runs))
        if found is None:
            if not self._fits(row.loop, row.load):
                return False
            array = self._array(row)
            result += self._if_it_runs(outer, self._fill(row, array))
            found = copies[key, runs] = row.load.ref, array
        self._redirect(row, found[1])
        return True

    def _key(self, row: _Row) -> Hashable:
        """The key of a row, which rows with equal elements share."""
        counter, load = row.loop.body.args[0], row.load
        bounds = self._constants[row.loop.lower], self._constants[row.loop.upper]
        indices = [
            (
                index.type,
                expression.constant,
                frozenset((None if v is counter else v, n) for v, n in expression.terms.items()),
            )
            for index in load.indices
            for expression in [self._affine.expression(index)]
        ]
        return load.ref, bounds, tuple(indices)

    def _array(self, row: _Row) -> Array:
        """An array of the work item for a row."""
        dtype, trips = row.load.array.dtype, row.loop.trips(self._constants)
        assert trips is not None
        self._left -= trips * dtype.size
        layout = one_axis(trips, dtype.size)
        name = f"{self._task.name}_row{len(self._module.arrays)}"
        array = Array(name, dtype, 1, Space.LOCAL, (), {Companion.PRIMAL: layout})
        self._module.arrays.append(array)
        return array

    def _if_it_runs(self, outer: ops.For, inner: list[Operation]) -> list[Operation]:
        """Operations for a row, which may be nowhere if a loop does not run."""
        if outer.trips(self._constants) is not None:
            return inner
        builder = Builder()
        builder.location = outer.location
        with builder.only_if(builder.compare("lt", outer.lower, outer.upper)) as runs:
            runs.then.ops += inner
        return builder.block.ops

    def _fill(self, row: _Row, array: Array) -> list[Operation]:
        """Operations that copy a row."""

        def fill(builder: Builder, position: Value, values: dict[Value, Value]) -> None:
            builder.store(array, [position], _load(builder, row, values))

        return self._for_each(row, fill)

    def _clear(self, row: _Row, array: Array) -> list[Operation]:
        """Operations that set the sums of a row to zero."""

        def clear(builder: Builder, position: Value, _: dict[Value, Value]) -> None:
            builder.store(array, [position], builder.constant(-0.0, array.dtype))

        return self._for_each(row, clear)

    def _add(self, row: _Row, array: Array) -> list[Operation]:
        """Operations that add the sums to the row."""

        def add(builder: Builder, position: Value, values: dict[Value, Value]) -> None:
            total = builder.load(array, [position])
            both = builder.binary("add", _load(builder, row, values), total)
            indices = [values.get(index, index) for index in row.load.indices]
            builder.append(ops.Store(*row.load.ref, both, indices))

        return self._for_each(row, add)

    def _for_each(
        self, row: _Row, write: Callable[[Builder, Value, dict[Value, Value]], None]
    ) -> list[Operation]:
        """A loop over a row, whose iteration ``write`` writes."""
        builder, loop = Builder(), row.loop
        builder.location = row.load.location
        lower, upper = (
            builder.constant(self._constants[bound], bound.type)
            for bound in (loop.lower, loop.upper)
        )
        body = Block([Value(loop.lower.type)])
        values = {loop.body.args[0]: body.args[0]}
        with builder.into(body):
            for op in row.slice:
                emit(builder, op, values)
            write(builder, self._position(builder, row, body.args[0]), values)
            builder.yield_()
        builder.for_(lower, upper, [], body)
        return builder.block.ops

    def _redirect(self, row: _Row, array: Array) -> None:
        """Let what accesses a row access an array."""
        builder = Builder()
        position = self._position(builder, row, row.loop.body.args[0])
        row.loop.body.ops[:0] = builder.block.ops
        for access in (row.load, row.store):
            if access is not None:
                access.array, access.companion = array, Companion.PRIMAL
                access.indices = [position]

    def _position(self, builder: Builder, row: _Row, counter: Value) -> Value:
        """The position of an iteration's element in the row."""
        first = builder.constant(self._constants[row.loop.lower], counter.type)
        return builder.binary("sub", builder.cast(counter, i32), builder.cast(first, i32))


class _IndexSlices:
    """The operations that compute indices in a loop, and in the loops in it."""

    def __init__(self, outer: ops.For) -> None:
        inside = list(outer.body.walk())
        self._makers = {value: op for op in inside for value in op.results}
        regions = [outer.body, *(region for op in inside for region in op.regions)]
        self._carried = {arg for region in regions for arg in region.args}

    def find(self, counter: Value, indices: list[Value]) -> list[Operation] | None:
        """The operations that indices follow from, given a counter, in order.

        None if they read memory, or depend on anything else that iterations change.
        """
        needed = backward_slice(indices, self._makers)
        used = {*indices, *(value for op in needed for value in op.operands)} - {counter}
        is_pure = all(op.is_pure and not op.regions for op in needed)
        return needed if is_pure and used.isdisjoint(self._carried) else None


def _written(block: Block) -> set[ArrayRef]:
    """The arrays that the operations of a block write to."""
    return {op.ref for op in block.walk() if isinstance(op, ops.Write)}


def _load(builder: Builder, row: _Row, values: dict[Value, Value]) -> Value:
    """An element of a row, for values that stand for those of its loop."""
    indices = [values.get(index, index) for index in row.load.indices]
    load = ops.Load(*row.load.ref, indices, results=[Value(row.load.array.dtype)])
    builder.append(load)
    return load.result
