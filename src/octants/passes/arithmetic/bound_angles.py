"""Leaves out the slow paths of sines and cosines whose angles are known to be small.

Before::

    array @y: f32, 1, ndarray, () [primal]
    parallel (%2: i32 < shape<@y, 0>()) {
      %3: f32 = cast(%2)
      %4: i32 = shape<@y, 0>()
      %5: f32 = cast(%4)
      %6: f32 = binary<div>(%3, %5)
      %7: f32 = constant<25.0>()
      %8: f32 = binary<mul>(%6, %7)
      %9: f32 = unary<sin>(%8)
      store<@y, primal>(%9, %2)
    }

After::

    parallel (%2: i32 < shape<@y, 0>()) {
      %3: f32 = cast(%2)
      %4: i32 = shape<@y, 0>()
      %5: f32 = cast(%4)
      %6: f32 = binary<div>(%3, %5)
      %7: f32 = constant<25.0>()
      %8: f32 = binary<mul>(%6, %7)
      %9: f32 = unary<sin_bounded>(%8)
      store<@y, primal>(%9, %2)
    }

Results have the same bits: the fast path is the one that the functions take for these angles. So
one task may leave out slow paths that another one, which replays it, keeps.
"""

from __future__ import annotations

from typing import TypeGuard

from octants.analysis.floats.float_ranges import FloatRanges, magnitude
from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.core import Module, Operation
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
        found = [op for op in task.body.walk() if _has_slow_path(op)]
        if not found:
            continue
        angles = [op.x for op in found]
        ranges = FloatRanges(task, ops.constants_in(task.body), angles)
        for op in found:
            if magnitude(ranges[op.x]) < _limit(op, estimates):
                op.fn = _NAMES[op.fn]


def _has_slow_path(op: Operation) -> TypeGuard[ops.Unary]:
    return isinstance(op, ops.Unary) and op.fn in _NAMES and op.x.type in (f32, f64)


def _limit(op: ops.Unary, estimates: bool) -> float:
    """Return a size up to which angles need no slow path."""
    if op.x.type is f64:
        return USUAL[53]
    return FAR if estimates and op.fn != "tan" else USUAL[24]
