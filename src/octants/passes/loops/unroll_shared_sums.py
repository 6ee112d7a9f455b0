"""Unrolls loops that add to an element in each iteration, the same one for all work items in step.

The gradient of a matrix that all work items multiply by is such a sum: each adds to every element.
The threads of a subgroup combine what they add to several elements at once with a fifth of the
exchanges that they need one by one (`analysis.sums.sum_groups`), and update those elements
together. The lanes of a CPU's vectors take half the instructions
(`codegen.llvm.lanes.grouped_additions`).

Before::

    array @x: f32, 1, ndarray, () [primal]
    array @w: f32, 1, ndarray, () [primal, adjoint]
    parallel (%2: i32 < shape<@x, 0>()) {
      %3: i32 = constant<0>()
      %4: i32 = constant<2>()
      %5: f32 = load<@x, primal>(%2)
      for(%3, %4) { (%6: i32):
        %7: f32 = atomic<add, @w, adjoint>(%5, %6)
        yield()
      }
    }

After::

    parallel (%2: i32 < shape<@x, 0>()) {
      %3: i32 = constant<0>()
      %4: f32 = load<@x, primal>(%2)
      %5: i32 = constant<1>()
      %6: f32 = atomic<add, @w, adjoint>(%4, %3)
      %7: f32 = atomic<add, @w, adjoint>(%4, %5)
    }

Longer loops run in chunks of iterations. On GPUs the iterations of a chunk run side by side if no
access to memory can tell: each operation for all of them, and then the next one. So the updates of
a group are of neighbouring elements of few rows, and loads of neighbours follow each other. Only
loops without loops in them are unrolled, whose bounds are the same for work items in step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

from octants.analysis.control_flow.uniformity import Uniformity
from octants.analysis.cost_model import operations_in
from octants.analysis.indices.affine_analysis import AffineExpressions
from octants.analysis.indices.distinct_iterations import differ, varying
from octants.analysis.lanes.choose_loops import choose, may_run
from octants.analysis.sums.reductions import find_reductions, find_shared
from octants.analysis.sums.sum_groups import SumFamilies
from octants.analysis.sums.sums_of_products import MOST_FACTORS, PIECE, ProductFinder
from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.array_aliasing import may_alias
from octants.ir.core import Module, Operation, Space, Task, Value
from octants.passes.loops.unrolled_iterations import (
    LoopRewriter,
    copy_folded,
    write_chunks,
    write_iterations,
    write_side_by_side,
)
from octants.simplify import simplify
from octants.target import Vectors

_TOGETHER = 32
"""The updates that are made together: as many as a subgroup has threads, on most machines."""
_MOST_TRIPS = 16
"""The most iterations of a chunk, unless the trip count is a constant of which chunks of as many as
above leave no rest.
"""
_MOST_WORK = 500
"""The most operations of a chunk."""
_SECTOR = 32
"""The bytes that GPUs update at once: a chunk whose iterations run side by side has so many columns
of a matrix, even if it has several groups of updates then."""
_MOST_WORK_OF_SECTORS = 1200
"""The most operations of such a chunk."""
_BYTES = 16
"""The bytes of elements that lanes add to together: a chunk has so many iterations, and no more."""
_LITTLE_WORK = 50
"""The most operations of an iteration in lanes: beside more, the additions take little time."""

_ACCESSES = (ops.Load, ops.Store, ops.Atomic)


@staged("unroll_shared_sums")
def unroll_shared_sums(
    module: Module, vectors: Vectors | None = None, *, exchanges: bool = False
) -> None:
    """Unroll such loops of all parallel tasks, in place; on a CPU, of those that run in lanes.

    Args:
        module: The finished kernel.
        vectors: The vectors of a CPU.
        exchanges: The threads of a subgroup exchange factors of products.
    """
    found = ((task, _candidates(task, vectors)) for task in module.tasks)
    changes = [
        _Unroller(task, loops, module.noalias, vectors, exchanges).unroll()
        for task, loops in found
        if loops
    ]
    if any(changes) and vectors is None:
        simplify(module)


def _candidates(task: Task, vectors: Vectors | None) -> list[ops.For]:
    """The loops without loops in which work items in step may add to elements."""
    if not task.is_parallel or task.options.get("fixed_order"):
        return []
    if vectors is not None and not may_run(task, vectors):
        return []
    most = _MOST_WORK if vectors is None else _LITTLE_WORK
    return [
        op
        for op in task.body.walk()
        if isinstance(op, ops.For)
        and any(isinstance(each, ops.Atomic) for each in op.body.ops)
        and not any(map(_stays_single, op.body.walk()))
        and operations_in(op) <= most
    ]


class _Unroller:
    """Rewrites a task."""

    def __init__(
        self,
        task: Task,
        candidates: list[ops.For],
        noalias: bool,
        vectors: Vectors | None,
        exchanges: bool,
    ) -> None:
        self._task, self._candidates = task, candidates
        self._noalias, self._vectors = noalias, vectors
        collected = {op for found in find_reductions(task, noalias) for op in found.atomics}
        sums = {op for op in find_shared(task.body) - collected if _is_in_memory(op)}
        self._affine = AffineExpressions(task)
        self._families = SumFamilies(task, sums, noalias)
        self._products = ProductFinder(task) if exchanges else None
        self._side_by_side = {op for op in candidates if self._can_run_side_by_side(op)}
        self._facts = Uniformity(task.body)
        self._loops = LoopRewriter(task.body)
        self._builder = self._loops.builder

    def unroll(self) -> bool:
        """Rewrite the task; gives whether anything has changed."""
        lengths: dict[Operation, int] = {
            op: length for op in self._candidates if (length := self._length(op)) > 1
        }
        if not lengths or not self._is_in_step():
            return False
        self._loops.rewrite(lambda op: self._rewrite_loop(op, lengths.get(op, 0)))
        return True

    def _is_in_step(self) -> bool:
        """Whether work items of the task run in step."""
        vectors = self._vectors
        return vectors is None or choose(self._task, vectors, self._noalias).lanes > 0

    def _length(self, op: ops.For) -> int:
        """Return the iterations of a chunk, a power of two; 0 if the loop stays."""
        sums = self._sums_of(op)
        if not sums or self._facts.diverges(op):
            return 0
        together = max(Counter(map(self._families.family, sums)).values())
        if self._vectors is not None:
            length = _BYTES // max(each.array.dtype.size for each in sums)
            return length if length * together <= _TOGETHER else 0
        times = self._times(op, sums)
        work = operations_in(op)
        most = min(times * _TOGETHER // together, times * _MOST_WORK // work)
        columns = _SECTOR // max(each.array.dtype.size for each in sums)
        if op in self._side_by_side and work * columns <= _MOST_WORK_OF_SECTORS:
            most = max(most, columns)
        if not most:
            return 0
        trips = self._loops.trips(op)
        length = 1 << (most.bit_length() - 1)
        if trips is None or (trips > length and trips % length):
            length = min(length, _MOST_TRIPS)
        return length

    def _times(self, op: ops.For, sums: Sequence[ops.Atomic]) -> int:
        """How many times the usual updates are made together: more if they add few products."""
        pairs = self._products.factors(sums) if self._products is not None else []
        factors = {value for pair in pairs for value in pair}
        varying = len(factors & op.body.defined())

        def are_few(times: int) -> bool:
            length = times * _TOGETHER // len(sums)
            return len(factors) - varying + length * varying <= MOST_FACTORS

        return next((times for times in (4, 2) if pairs and are_few(times)), 1)

    def _sums_of(self, loop: ops.For) -> list[ops.Atomic]:
        """The updates that reach another element in each iteration, and can wait for several."""
        results = {value for op in loop.body.walk() for value in op.results}
        counter, *carried = loop.body.args
        found = [
            op
            for op in loop.body.ops
            if isinstance(op, ops.Atomic)
            and op in self._families.updates
            and self._families.advances(op, counter, results.union(carried))
        ]
        families = {op: self._families.family(op) for op in found}
        can_wait = {
            family: all(self._families.may_pass(family, each) for each in loop.body.ops)
            for family in set(families.values())
        }
        return [op for op in found if can_wait[families[op]]]

    def _can_run_side_by_side(self, op: ops.For) -> bool:
        """Whether each operation of an iteration may run for several of them before the next."""
        accesses = [each for each in op.body.ops if isinstance(each, _ACCESSES)]
        computed = [each for each in op.body.ops[:-1] if each.is_scalar]
        if self._vectors or op.inits or len(accesses) + len(computed) < len(op.body.ops) - 1:
            return False
        pairs = combinations(accesses, 2)
        return all(self._may_swap(op, one, other) for one, other in pairs)

    def _may_swap(self, loop: ops.For, one: ops.Access, other: ops.Access) -> bool:
        """Whether accesses of different iterations may be made in another order."""
        if not (isinstance(one, ops.Write) or isinstance(other, ops.Write)):
            return True
        if not may_alias(one.ref, other.ref, self._noalias):
            return True
        updates = self._families.updates
        if isinstance(one, ops.Atomic) and isinstance(other, ops.Atomic) and one in updates:
            return other in updates and one.fn == other.fn
        counter = loop.body.args[0]
        return differ(self._affine, counter, varying(loop), one, other)

    # -- loops -------------------------------------------------------------------------------------

    def _rewrite_loop(self, op: ops.For, length: int) -> None:
        """Write a loop in chunks, if these have a length, and the iterations that are left."""
        builder, trips = self._builder, self._loops.trips(op)
        if not length:
            builder.append(op)
            return
        if trips is None or trips > length:

            def write(first: Value, inits: list[Value]) -> list[Value]:
                return self._iterations(op, first, inits, length)

            op.lower, op.inits = write_chunks(builder, op, length, write)
        if trips is None:
            builder.append(op)
            return
        left = trips % length if trips > length else trips
        self._loops.replaced.replace(op, self._rest(op, left))

    def _rest(self, op: ops.For, left: int) -> list[Value]:
        """Write the iterations that are left over: as many together as lanes can divide.

        A subgroup exchanges the factors of outer products whose columns are a power of two. If that
        is much code, a loop runs as many columns each time as are the fewest.
        """
        builder = self._builder
        has_rows = self._products is not None and len(self._sums_of(op)) % PIECE == 0
        if has_rows and left > PIECE and left * operations_in(op) > _MOST_WORK:

            def write(first: Value, inits: list[Value]) -> list[Value]:
                return self._iterations(op, first, inits, PIECE)

            op.lower, op.inits = write_chunks(builder, op, PIECE, write)
            left %= PIECE
        first, carried = op.lower, list(op.inits)
        while left:
            length = 1 << (left.bit_length() - 1) if has_rows and left >= PIECE else left
            carried = self._iterations(op, first, carried, length)
            first = builder.binary("add", first, builder.constant(length, first.type))
            left -= length
        return carried

    def _iterations(
        self, op: ops.For, first: Value, inits: Sequence[Value], trips: int
    ) -> list[Value]:
        def copy(each: Operation, values: dict[Value, Value], _: int) -> None:
            copy_folded(self._builder, each, values)

        if op in self._side_by_side:
            write_side_by_side(self._builder, op, first, trips, copy)
            return []
        return write_iterations(self._builder, op, first, inits, trips, copy)


def _is_in_memory(op: Operation) -> bool:
    """Whether an update is of an array that all blocks share."""
    return isinstance(op, ops.Atomic) and op.array.space is not Space.SHARED


def _stays_single(op: Operation) -> bool:
    """Whether an operation keeps the loop around it from being unrolled."""
    return isinstance(op, ops.Loop) or op.is_tied or op.is_convergent or op.reports
