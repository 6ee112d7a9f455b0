"""Adds up what a loop adds to a row of an array in memory near the work item, and adds that once.

The gradient of a matrix times a row adds to each element of the row for each row of the matrix. The
rows of work items are far from each other in memory, so each addition takes as many transactions as
a subgroup has threads. What the threads have near them is side by side.

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

The terms are added in another order then, as no replay can tell: the arrays are adjoints.
"""

from __future__ import annotations

from collections import Counter

from octants.analysis.affine_analysis import AffineExpressions
from octants.analysis.distinct_iterations import differ, varying
from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.array_aliasing import may_alias
from octants.ir.builder import Builder
from octants.ir.cloning import emit
from octants.ir.cooperative_tasks import cooperates
from octants.ir.core import Array, Block, Companion, Module, Operation, Space, Task, Value
from octants.ir.slices import backward_slice
from octants.lazy_dataclass import dataclass
from octants.simplify import simplify
from octants.types.layouts import one_axis
from octants.types.scalars import i32

_MOST_BYTES = 1 << 10
"""The most bytes of the rows of a task."""
_FEWEST = 4
"""The fewest iterations around that are worth an array for the row."""


@staged("sum_rows_locally")
def sum_rows_locally(module: Module) -> None:
    """Rewrite the loops of all parallel tasks, in place."""
    tasks = [task for task in module.tasks if task.is_parallel and not cooperates(task)]
    changes = [_Rewriter(module, task).run() for task in tasks]
    if any(changes):
        simplify(module)


@dataclass(frozen=True, slots=True)
class _Row:
    """An addition to an element of a row in each iteration of a loop."""

    loop: ops.For
    load: ops.Load
    store: ops.Store


class _Rewriter:
    """Rewrites a task."""

    def __init__(self, module: Module, task: Task) -> None:
        self._module, self._task, self._left = module, task, _MOST_BYTES
        self._affine = AffineExpressions(task)
        self._constants = ops.constants_in(task.body)
        self._users = Counter(value for op in task.body.walk() for value in op.operands)

    def run(self) -> bool:
        """Rewrite the task; gives whether anything has changed."""
        return self._visit(self._task.body)

    def _visit(self, block: Block) -> bool:
        result: list[Operation] = []
        has_changed = False
        for op in block.ops:
            for region in op.regions:
                has_changed |= self._visit(region)
            behind: list[Operation] = []
            if isinstance(op, ops.For):
                for row in self._rows(op):
                    if self._row(row.loop, row.store) is None:
                        continue  # no memory is left for it
                    array = self._array(row)
                    result += self._clear(row, array)
                    behind += self._add(op, row, array)
                    self._redirect(row, array)
                    has_changed = True
            result += [op, *behind]
        block.ops[:] = result
        return has_changed

    # -- which -------------------------------------------------------------------------------------

    def _rows(self, outer: ops.For) -> list[_Row]:
        """The rows that the loops in a loop add to."""
        trips = outer.trips(self._constants)
        if trips is not None and trips < _FEWEST:
            return []
        changing = varying(outer)
        accesses = [op for op in outer.body.walk() if isinstance(op, ops.Access)]
        rows = [
            row
            for loop in outer.body.ops
            if isinstance(loop, ops.For)
            for store in loop.body.ops
            if isinstance(store, ops.Store) and (row := self._row(loop, store)) is not None
        ]
        return [row for row in rows if self._is_alone(row, accesses, changing)]

    def _row(self, loop: ops.For, store: ops.Store) -> _Row | None:
        """The addition that ends with a store, if it is one to an adjoint, and the row is short."""
        trips, dtype = loop.trips(self._constants), store.array.dtype
        is_adjoint = store.companion is Companion.ADJOINT and dtype.is_float
        if not is_adjoint or trips is None or not 0 < trips * dtype.size <= self._left:
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
                is_once = self._users[load.result] == self._users[add.result] == 1
                return _Row(loop, load, store) if is_once else None
        return None

    def _is_alone(self, row: _Row, accesses: list[ops.Access], changing: set[Value]) -> bool:
        """Whether only the addition accesses the row, and each element once in its loop."""
        store, counter = row.store, row.loop.body.args[0]
        others = (op for op in accesses if op is not row.load and op is not store)
        if any(may_alias(op.ref, store.ref, self._module.noalias) for op in others):
            return False
        atoms = {atom for index in store.indices for atom in self._affine.expression(index).terms}
        return (
            atoms.isdisjoint(changing - {counter})
            and differ(self._affine, counter, changing, store, store)
            and _index_slice(row) is not None
        )

    # -- rewriting ---------------------------------------------------------------------------------

    def _array(self, row: _Row) -> Array:
        """An array of the work item for a row."""
        dtype, trips = row.store.array.dtype, row.loop.trips(self._constants)
        assert trips is not None
        self._left -= trips * dtype.size
        layout = one_axis(trips, dtype.size)
        name = f"{self._task.name}_row{len(self._module.arrays)}"
        array = Array(name, dtype, 1, Space.LOCAL, (), {Companion.PRIMAL: layout})
        self._module.arrays.append(array)
        return array

    def _clear(self, row: _Row, array: Array) -> list[Operation]:
        """Operations that set the sums of a row to zero."""
        builder, loop, body = Builder(), row.loop, Block([Value(row.loop.lower.type)])
        builder.location = row.store.location
        zero = builder.constant(-0.0, array.dtype)
        with builder.into(body):
            builder.store(array, [self._position(builder, row, body.args[0])], zero)
            builder.yield_()
        builder.for_(*self._bounds(builder, loop), [], body)
        return builder.block.ops

    def _add(self, outer: ops.For, row: _Row, array: Array) -> list[Operation]:
        """Operations that add the sums to the row, if there are any: else it may be nowhere."""
        if outer.trips(self._constants) is not None:
            return self._add_all(row, array)
        builder = Builder()
        builder.location = row.store.location
        with builder.only_if(builder.compare("lt", outer.lower, outer.upper)) as runs:
            runs.then.ops += self._add_all(row, array)
        return builder.block.ops

    def _add_all(self, row: _Row, array: Array) -> list[Operation]:
        builder, loop, store = Builder(), row.loop, row.store
        builder.location = store.location
        body = Block([Value(loop.lower.type)])
        values = {loop.body.args[0]: body.args[0]}
        with builder.into(body):
            for op in _index_slice(row) or ():
                emit(builder, op, values)
            indices = [values.get(index, index) for index in store.indices]
            total = builder.load(array, [self._position(builder, row, body.args[0])])
            load = ops.Load(*store.ref, indices, results=[Value(array.dtype)])
            builder.append(load)
            both = builder.binary("add", load.result, total)
            builder.append(ops.Store(*store.ref, both, indices))
            builder.yield_()
        builder.for_(*self._bounds(builder, loop), [], body)
        return builder.block.ops

    def _redirect(self, row: _Row, array: Array) -> None:
        """Let an addition be one to a row's sum."""
        builder = Builder()
        position = self._position(builder, row, row.loop.body.args[0])
        row.loop.body.ops[:0] = builder.block.ops
        for access in (row.load, row.store):
            access.array, access.companion = array, Companion.PRIMAL
            access.indices = [position]

    def _bounds(self, builder: Builder, loop: ops.For) -> tuple[Value, Value]:
        """The bounds of a loop, wherever its constants are."""
        lower, upper = (
            builder.constant(self._constants[bound], bound.type)
            for bound in (loop.lower, loop.upper)
        )
        return lower, upper

    def _position(self, builder: Builder, row: _Row, counter: Value) -> Value:
        """The position of an iteration's element in the row."""
        first = builder.constant(self._constants[row.loop.lower], counter.type)
        return builder.cast(builder.binary("sub", counter, first), i32)


def _index_slice(row: _Row) -> list[Operation] | None:
    """The operations of an iteration that compute the indices of a row, in order.

    None if they read memory, or depend on what the loop carries besides its counter.
    """
    body, indices = row.loop.body, row.store.indices
    needed = backward_slice(indices, {value: op for op in body.ops for value in op.results})
    used = {*indices, *(value for op in needed for value in op.operands)}
    return needed if used.isdisjoint(body.args[1:]) and all(op.is_pure for op in needed) else None
