"""Unrolls short loops over local vectors, if all indices of vectors are constants then.

A driver's compiler may keep vectors in memory of the work item though it unrolls the loops itself.
With constants, components are values, or at least registers.

Before::

    array @x: f32, 1, field, () [primal (16,) ((0, 1, 0, 4),) ()]
    array @v: f32, 1, local, () [primal (3,) ((0, 1, 0, 4),) ()]
    parallel (%2: i32 < constant<16>()) {
      %3: i32 = constant<0>()
      %4: i32 = constant<2>()
      %5: f32 = constant<0.0>()
      for(%3, %4) { (%6: i32):
        %7: f32 = load<@x, primal>(%6)
        store<@v, primal>(%7, %6)
        yield()
      }
      %8: f32 = for(%3, %4, %5) { (%9: i32, %10: f32):
        %11: f32 = load<@v, primal>(%9)
        %12: f32 = fma(%11, %11, %10)
        yield(%12)
      }
      store<@x, primal>(%8, %2)
    }

After::

    parallel (%2: i32 < constant<16>()) {
      %3: i32 = constant<0>()
      %4: f32 = constant<0.0>()
      %5: f32 = load<@x, primal>(%3)
      store<@v, primal>(%5, %3)
      %6: i32 = constant<1>()
      %7: f32 = load<@x, primal>(%6)
      store<@v, primal>(%7, %6)
      %8: f32 = fma(%5, %5, %4)
      %9: f32 = fma(%7, %7, %8)
      store<@x, primal>(%9, %2)
    }
"""

from __future__ import annotations

from collections.abc import Iterator

from octants.analysis.cost_model import operations_in
from octants.analysis.floats import slow_paths
from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Block, Module, Operation, Space, Value
from octants.passes.loops.unrolled_iterations import LoopRewriter, copy_folded, write_iterations
from octants.simplify import simplify

_MOST_TRIPS, _MOST_WORK = 24, 1000
"""The most iterations of a loop that is unrolled, and operations of all of them."""
_PLAIN = ops.Constant, ops.Load, ops.Store, ops.Atomic, ops.Yield


@staged("unroll_vector_loops")
def unroll_vector_loops(module: Module) -> None:
    """Unroll such loops of all tasks, in place."""
    changes = [_unroll(task.body) for task in module.tasks]
    if any(changes):
        simplify(module)


def _unroll(body: Block) -> bool:
    """Unroll the loops of a task; return whether there are any."""
    loops = LoopRewriter(body)
    short = {
        op: _known_inside(op, loops.builder)
        for op in body.walk()
        if isinstance(op, ops.For) and _is_short(op, loops.trips(op))
    }
    chosen = _chosen(body, short, loops.builder)

    def write(op: ops.For) -> None:
        if op not in chosen:
            loops.builder.append(op)
            return
        trips = loops.trips(op)
        assert trips is not None

        def copy(each: Operation, values: dict[Value, Value], _: int) -> None:
            copy_folded(loops.builder, each, values)

        results = write_iterations(loops.builder, op, op.lower, op.inits, trips, copy)
        loops.replaced.replace(op, results)

    if chosen:
        loops.rewrite(write)
    return bool(chosen)


def _is_short(op: ops.For, trips: int | None) -> bool:
    """Whether a loop may be unrolled here; those of sines and records are in `unroll_loops`."""
    if trips is None or not 0 < trips <= _MOST_TRIPS or trips * operations_in(op) > _MOST_WORK:
        return False
    return all(isinstance(each, _PLAIN) or _is_quick(each) for each in op.body.ops)


def _is_quick(op: Operation) -> bool:
    return op.is_scalar and not op.regions and not slow_paths.is_sine(op)


def _known_inside(loop: ops.For, builder: Builder) -> set[Value]:
    """The values of a loop that are constants in each iteration."""
    known = {loop.body.args[0]} if loop.lower in builder.constants else set[Value]()
    for op in loop.body.ops:
        is_whole = op.is_scalar and all(value.type.is_integer for value in op.results)
        if is_whole and all(x in known or x in builder.constants for x in op.operands):
            known.update(op.results)
    return known


def _chosen(body: Block, short: dict[ops.For, set[Value]], builder: Builder) -> set[ops.For]:
    """The loops to unroll: those where indices of vectors vary; none if others vary, too.

    A driver's compiler unrolls loops around them itself, unless these are much code.
    """
    found = set[ops.For]()
    for op, loop in _accesses(body, short):
        if all(index in builder.constants for index in op.indices):
            continue
        if loop is None or not all(x in short[loop] or x in builder.constants for x in op.indices):
            return set()
        found.add(loop)
    return found


def _accesses(
    body: Block, short: dict[ops.For, set[Value]], loop: ops.For | None = None
) -> Iterator[tuple[ops.Access, ops.For | None]]:
    """The accesses to local vectors, each with the short loop that it is in."""
    for op in body.ops:
        if isinstance(op, ops.Access) and op.array.space is Space.LOCAL:
            yield op, loop
        for region in op.regions:
            inner = op if isinstance(op, ops.For) and op in short else None
            yield from _accesses(region, short, inner)
