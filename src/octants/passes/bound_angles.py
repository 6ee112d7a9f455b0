"""Leaves out the slow paths of sines and cosines whose angles are known to be small.

Before::

    array @y: f32, 1, ndarray, () [primal]
    parallel {
      %0: i64 = constant<0>()
      %1: i32 = shape<@y, 0>()
      %2: i64 = cast(%1)
      yield(%0, %2)
    } { (%3: i64):
      %4: i32 = cast(%3)
      %5: f32 = cast(%4)
      %6: i32 = shape<@y, 0>()
      %7: f32 = cast(%6)
      %8: f32 = binary<div>(%5, %7)
      %9: f32 = constant<25.0>()
      %10: f32 = binary<mul>(%8, %9)
      %11: f32 = unary<sin>(%10)
      store<@y, primal>(%11, %4)
      yield()
    }

After::

    parallel {
      %0: i64 = constant<0>()
      %1: i32 = shape<@y, 0>()
      %2: i64 = cast(%1)
      yield(%0, %2)
    } { (%3: i64):
      %4: i32 = cast(%3)
      %5: f32 = cast(%4)
      %6: i32 = shape<@y, 0>()
      %7: f32 = cast(%6)
      %8: f32 = binary<div>(%5, %7)
      %9: f32 = constant<25.0>()
      %10: f32 = binary<mul>(%8, %9)
      %11: f32 = unary<sin_bounded>(%10)
      store<@y, primal>(%11, %4)
      yield()
    }

Results have the same bits: the fast path is the one that the functions take for these angles. So
one task may leave out slow paths that another one, which replays it, keeps.
"""

from __future__ import annotations

from typing import TypeGuard

from octants.analysis.float_ranges import FloatRanges, magnitude
from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.core import Block, Module, Operation
from octants.ir.ops.arithmetic import BOUNDED
from octants.mathlib.argument_reduction import USUAL
from octants.mathlib.fast_by_estimates import FAR
from octants.types.scalars import f32, f64

_NAMES = {fn: name for name, fn in BOUNDED.items()}


@staged("bound_angles")
def bound_angles(module: Module, estimates: bool = False) -> None:
    """Rewrite all tasks, in place.

    Args:
        module: the module.
        estimates: whether the machine estimates sines and cosines of f32, up to `FAR`.
    """
    for task in module.tasks:
        if any(map(_has_slow_path, task.body.walk())):
            ranges = FloatRanges(task, ops.constants_in(task.body))
            _rewrite(task.body, ranges, estimates)


def _has_slow_path(op: Operation) -> TypeGuard[ops.Unary]:
    return isinstance(op, ops.Unary) and op.fn in _NAMES and op.x.type in (f32, f64)


def _rewrite(block: Block, ranges: FloatRanges, estimates: bool) -> None:
    for op in block.ops:
        for region in op.regions:
            _rewrite(region, ranges, estimates)
        if _has_slow_path(op) and magnitude(ranges[op.x]) < _limit(op, estimates):
            op.fn = _NAMES[op.fn]


def _limit(op: ops.Unary, estimates: bool) -> float:
    """Return a size up to which angles need no slow path."""
    if op.x.type is f64:
        return USUAL[53]
    return FAR if estimates and op.fn != "tan" else USUAL[24]
