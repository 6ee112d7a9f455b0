"""Unrolls loops: of sines, and for targets whose compilers do not, of records, and with barriers.

The records of an unrolled block have constant indices then, and code generation keeps them in
variables of the work item, which a driver turns into registers.

Before::

    array @x: f32, 0, field, () [primal, adjoint]
    record #r0 (2, 'unrolled'): f32
    serial {
      %0: i64 = constant<0>()
      %1: i64 = constant<2>()
      %2: i64 = constant<1>()
      %3: f32 = load<@x, primal>()
      %4: f32 = for(%0, %1, %3) { (%5: i64, %6: f32):
        record_push<#r0>(%0, %5, %6)
        %7: f32 = unary<exp>(%6)
        yield(%7)
      }
      %8: f32 = for(%0, %1, %4) { (%9: i64, %10: f32):
        %11: i64 = binary<sub>(%2, %9)
        %12: f32 = record_pop<#r0>(%0, %11)
        %13: f32 = binary<mul>(%10, %12)
        yield(%13)
      }
      store<@x, adjoint>(%8)
    }

After::

    serial {
      %0: i64 = constant<0>()
      %1: i64 = constant<1>()
      %2: f32 = load<@x, primal>()
      record_push<#r0>(%0, %0, %2)
      %3: f32 = unary<exp>(%2)
      record_push<#r0>(%0, %1, %3)
      %4: f32 = unary<exp>(%3)
      %5: f32 = record_pop<#r0>(%0, %1)
      %6: f32 = binary<mul>(%4, %5)
      %7: f32 = record_pop<#r0>(%0, %0)
      %8: f32 = binary<mul>(%6, %7)
      store<@x, adjoint>(%8)
    }

Short loops with a barrier are unrolled, too, such as those that halve the sums of a block: at each
iteration of a loop around a barrier the threads of a block have to agree whether it goes on.

An instruction that estimates sines and cosines of small angles needs a test of each angle in front
of it, and a slow path. Loops that do little else (`analysis.floats.slow_paths`) run in chunks of
iterations without tests, and a chunk is run again with the functions themselves unless all angles
were small::

    for each chunk:
      8 or 16 iterations, with estimates
      if an angle was large: the same iterations, with functions
    the remaining iterations, with estimates
    if an angle was large: the remaining iterations, with functions

The instruction takes as long as several additions, and leaves the units for these idle. So some
iterations compute polynomials instead, if no replay needs the bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence

from octants.analysis.floats import slow_paths
from octants.analysis.floats.float_magnitudes import Magnitudes
from octants.analysis.floats.replay_strictness import (
    APPROXIMATE_TRIG,
    may_round_differently,
    sines_and_cosines,
)
from octants.analysis.floats.speculated_iterations import (
    MOST_WORK,
    chunk_length,
    polynomial_iterations,
    surely_small,
)
from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.cloning import copy_operation
from octants.ir.cooperative_tasks import is_block_barrier
from octants.ir.core import Block, Module, Operation, Task, Value
from octants.ir.ops.arithmetic import BOUNDED
from octants.mathlib.fast_by_estimates import FAR
from octants.mathlib.ir_number import Number
from octants.mathlib.sine_series import Series, polynomial
from octants.passes.loops.unrolled_iterations import (
    LoopRewriter,
    copy_folded,
    write_chunks,
    write_iterations,
)
from octants.simplify import simplify
from octants.types.scalars import f32, f64, u1

MOST_WAITS = 10
"""The most iterations of a loop with a barrier for the work items of a block: halvings of a block.
"""
_EXACT = 1 << 24
"""The integers below are exact floats."""


@staged("unroll_loops")
def unroll_loops(module: Module, estimate_sums: int = 0, unrolls: bool = True) -> None:
    """Unroll the loops of all tasks, in place.

    Args:
        module: the finished kernel.
        estimate_sums: how many additions take as long as the machine's estimate of a sine or
            cosine; 0 if it has none, or if these may not be inexact.
        unrolls: unroll other loops than those of sines and cosines, too.
    """
    changes = [_Unroller(task, estimate_sums, unrolls).unroll() for task in module.tasks]
    if any(changes):
        simplify(module)


class _Unroller:
    """Rewrites a task."""

    def __init__(self, task: Task, estimate_sums: int, unrolls: bool) -> None:
        self._estimate_sums, self._unrolls = estimate_sums, unrolls
        self._may_change_bits = estimate_sums > 0 and may_round_differently(
            task, APPROXIMATE_TRIG, sines_and_cosines(task.body)
        )
        self._constants = ops.constants_in(task.body)
        self._loops = LoopRewriter(task.body)
        self._builder = self._loops.builder
        self._unrolled = self._loops_to_unroll()
        self._has_changed = False

    def unroll(self) -> bool:
        """Rewrite the task; gives whether anything has changed."""
        self._loops.rewrite(self._rewrite_loop)
        return self._has_changed

    def _loops_to_unroll(self) -> set[Operation]:
        """The loops that access unrolled records, if all accesses of these are in such loops."""
        body, trips = self._loops.body, self._loops.trips
        accesses = [op for op in body.walk() if isinstance(op, ops.RecordAccess)]
        loops = {
            access: loop
            for loop in body.walk()
            if isinstance(loop, ops.For) and trips(loop) is not None and not _updates(loop)
            for access in loop.body.ops
        }
        others = {op.record for op in accesses if op not in loops or not op.record.unrolled}
        return {loops[op] for op in accesses if op.record not in others}

    # -- loops -------------------------------------------------------------------------------------

    def _rewrite_loop(self, op: ops.For) -> None:
        trips, length = self._loops.trips(op), chunk_length(op)
        speculates = self._estimate_sums > 0 and trips not in (0, 1) and _can_speculate(op)
        is_unrolled = op in self._unrolled or (
            trips is not None and trips <= MOST_WAITS and _waits(op)
        )
        if speculates and trips is not None and is_unrolled:
            results = self._speculated(op, op.lower, op.inits, trips)
        elif self._unrolls and trips is not None and is_unrolled:
            results = self._copies(op, op.lower, op.inits, trips)
        elif speculates:
            results = self._in_chunks(op, length)
        else:
            self._builder.append(op)
            return
        self._loops.replaced.replace(op, results)
        self._has_changed = True

    def _in_chunks(self, op: ops.For, length: int) -> list[Value]:
        """Write chunks of a loop, if it is not too short, and the iterations behind the last one.

        Carried angles that are small behind each iteration are tested before the loop: unless all
        of these are small, it runs with the functions themselves.
        """
        builder, trips = self._builder, self._loops.trips(op)
        are_small, end = builder.constant(True, u1), op.upper
        if trips is None or trips >= length:
            small_later = self._angles_small_later(op)
            for arg, init in zip(op.body.args[1:], op.inits, strict=True):
                if arg in small_later:
                    are_small = builder.binary("and", are_small, slow_paths.is_small(builder, init))

            def chunk(first: Value, inits: list[Value]) -> list[Value]:
                return self._speculated(op, first, inits, length, small_later)

            end = builder.select(are_small, op.upper, op.lower)
            bounded = ops.For(op.lower, end, op.inits, op.body)
            op.lower, op.inits = write_chunks(builder, bounded, length, chunk)
        estimated = op.inits
        if trips is None or trips % length:
            *estimated, are_small = self._rest(op, end, are_small)
        again = copy_operation(op, {})
        return self._if_small(are_small, estimated, lambda: builder.append(again).results)

    def _rest(self, op: ops.For, end: Value, are_small: Value) -> list[Value]:
        """Write the iterations behind the last chunk; also return whether all angles are small."""
        builder = self._builder
        sines = filter(slow_paths.is_sine, op.body.ops)
        estimates = _Estimates({each: _bounded_in(each, 1) for each in sines})
        body = Block([*(Value(arg.type) for arg in op.body.args), Value(u1)])
        with builder.into(body):
            counter, *carried, so_far = body.args
            carried = self._copies(op, counter, carried, 1, estimates)
            builder.yield_([*carried, estimates.are_small(builder, so_far)])
        *results, all_small = builder.for_(op.lower, end, [*op.inits, are_small], body).results
        return [*results, all_small if estimates.has_guards else are_small]

    # -- iterations --------------------------------------------------------------------------------

    def _copies(
        self,
        op: ops.For,
        first: Value,
        inits: Sequence[Value],
        trips: int,
        estimates: _Estimates | None = None,
    ) -> list[Value]:
        """Write iterations of a loop, with estimates or the functions themselves."""
        builder = self._builder

        def copy(each: Operation, values: dict[Value, Value], number: int) -> None:
            if estimates is None:
                copy_folded(builder, each, values)
            else:
                estimates.copy(builder, each, values, number)

        return write_iterations(builder, op, first, inits, trips, copy)

    def _speculated(
        self,
        op: ops.For,
        first: Value,
        inits: Sequence[Value],
        trips: int,
        small: Collection[Value] = (),
    ) -> list[Value]:
        """Write iterations with estimates, and again with functions where an angle is large.

        The carried values that are known to be ``small`` have no guard.
        """
        builder, estimates = self._builder, self._plan(op, trips, small)
        estimated = self._copies(op, first, inits, trips, estimates)

        def exact() -> list[Value]:
            if op in self._unrolled:
                return self._copies(op, first, inits, trips)
            last = builder.binary("add", first, builder.constant(trips, first.type))
            again = copy_operation(op, {})
            assert isinstance(again, ops.For)
            again.lower, again.upper, again.inits = first, last, list(inits)
            return builder.append(again).results

        return self._if_small(estimates.are_small(builder), estimated, exact)

    def _if_small(
        self, are_small: Value, estimated: list[Value], exact: Callable[[], list[Value]]
    ) -> list[Value]:
        """Write a branch: estimated results where no angle is large, and exact ones elsewhere."""
        builder, small, large = self._builder, Block(), Block()
        if builder.constants.get(are_small):
            return estimated
        with builder.into(small):
            builder.yield_(estimated)
        with builder.into(large):
            builder.yield_(exact())
        return builder.if_(are_small, small, large).results

    def _plan(self, op: ops.For, trips: int, small: Collection[Value]) -> _Estimates:
        """Choose the guards and polynomials of so many iterations."""
        magnitudes = Magnitudes(op, self._constants)
        certain: dict[Operation, range] = {
            each: _bounded_in(each, trips)
            or (range(trips) if x in small else surely_small(magnitudes, x, FAR, trips))
            for each in op.body.ops
            if slow_paths.is_sine(each)
            for x in each.operands
        }
        steps: dict[Operation, int] = {
            each: magnitudes.step(each.x, _EXACT)
            for each in op.body.ops
            if isinstance(each, ops.Cast) and each.result.type in (f32, f64)
            if each.x.type.is_integer
        }
        polynomials: dict[int, Series] = {}
        if self._may_change_bits:
            polynomials = polynomial_iterations(op, magnitudes, trips, self._estimate_sums)
        return _Estimates(certain, polynomials, steps)

    def _angles_small_later(self, op: ops.For) -> list[Value]:
        """Return the carried angles that are small behind each iteration."""
        magnitudes = Magnitudes(op, self._constants)
        sines = filter(slow_paths.is_unbounded_sine, op.body.ops)
        angles = (x for each in sines for x in each.operands)
        return [x for x in angles if x in op.carried and magnitudes.later(x) < FAR]


class _Estimates:
    """Writes iterations with sines and cosines of small angles, and their `guards`.

    Iterations that are among those ``certain`` for a function have no guard; those with
    ``polynomials`` do not use the machine's estimate. Conversions of integers that go up or down by
    ``steps`` are additions in all iterations but the first one.
    """

    def __init__(
        self,
        certain: Mapping[Operation, range],
        polynomials: Mapping[int, Series] | None = None,
        steps: Mapping[Operation, int] | None = None,
    ) -> None:
        self._certain, self._polynomials, self._steps = certain, polynomials or {}, steps or {}
        self._guards: list[Value] = []
        self._firsts: dict[Operation, Value] = {}

    def copy(
        self, builder: Builder, op: Operation, values: dict[Value, Value], number: int
    ) -> None:
        """Write a copy of an operation for the iteration of a number."""
        step = self._steps.get(op, 0)
        if op in self._certain:
            assert isinstance(op, ops.Unary)
            values[op.result] = self._function(builder, op, values.get(op.x, op.x), number)
        elif step and number:
            (result,) = op.results
            further = builder.constant(float(step * number), result.type)
            values[result] = builder.binary("add", self._firsts[op], further)
        else:
            copy_folded(builder, op, values)
            self._firsts.update((op, values[result]) for result in op.results if step)

    def _function(self, builder: Builder, op: ops.Unary, x: Value, number: int) -> Value:
        """Write a function of ``x``, and its guard."""
        builder.location, fn = op.location, slow_paths.ESTIMATES[op.fn]
        chosen = self._polynomials.get(number)
        if chosen is None:
            found = builder.append(ops.Unary(fn, x, results=[Value(f32)])).result
        else:
            found = polynomial(fn.removesuffix("_estimate"), Number(builder, x), chosen).value
        if number not in self._certain[op]:
            self._guards.append(slow_paths.is_small(builder, x))
        return found

    @property
    def has_guards(self) -> bool:
        """Whether an angle may be large."""
        return bool(self._guards)

    def are_small(self, builder: Builder, so_far: Value | None = None) -> Value:
        """Write the conjunction of all guards, and of another one."""
        first = builder.constant(True, u1) if so_far is None else so_far
        return functools.reduce(functools.partial(builder.binary, "and"), self._guards, first)


def _bounded_in(sine: ops.Unary, trips: int) -> range:
    """Return the iterations in which an angle is small whatever it is in the others."""
    return range(trips if sine.fn in BOUNDED else 0)


def _can_speculate(op: ops.For) -> bool:
    if any(slow_paths.is_sine(inner) for each in op.body.ops for inner in slow_paths.inside(each)):
        return False
    return slow_paths.can_speculate(op, MOST_WORK)


def _waits(op: ops.For) -> bool:
    """Whether the work items of a block wait for each other in each iteration of a short loop."""
    has_loop = any(isinstance(each, ops.Loop) for each in op.body.walk())
    return any(map(is_block_barrier, op.body.ops)) and not has_loop


def _updates(op: ops.For) -> bool:
    """Whether a loop updates memory: its code is long."""
    return any(isinstance(each, ops.Write) and each.reads for each in op.body.walk())
