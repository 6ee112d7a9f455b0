"""Loops that do nothing but nest become one loop, unless its counter would wrap."""

from __future__ import annotations

import pytest

from octants.ir import ops
from octants.ir.core import Task
from octants.passes.loops.collapse_nests import collapse_nests
from tests.ir.parser import parse

NEST = """
kernel @k
array @y: f32, 1, ndarray, () [primal]
parallel @k_0 {{
  %0: i32 = constant<0>()
  %1: i32 = constant<3>()
  yield(%0, %1)
}} {{ (%2: i32):
  %3: i32 = constant<-1>()
  %4: i32 = constant<{outer}>()
  %5: i32 = constant<{inner}>()
  %6: f32 = constant<0.0>()
  %7: f32 = for(%3, %4, %6) {{ (%8: i32, %9: f32):
    %10: f32 = for(%3, %5, %9) {{ (%11: i32, %12: f32):
      %13: f32 = cast(%11)
      %14: f32 = binary<add>(%12, %13)
      yield(%14)
    }}
    yield(%10)
  }}
  store<@y, primal>(%7, %2)
  yield()
}}
"""


def _collapsed(outer: int, inner: int) -> list[int | None]:
    """The trip counts of the loops that are left of two, from -1 to some bounds."""
    task = parse(NEST.format(outer=outer, inner=inner)).tasks[0]
    assert isinstance(task, Task)
    loops = {op for op in task.body.ops if isinstance(op, ops.For)}
    collapse_nests(task, loops, ops.constants_in(task.body))
    numbers = ops.constants_in(task.body)
    return [op.trips(numbers) for op in task.body.walk() if isinstance(op, ops.For)]


@pytest.mark.parametrize(
    ("outer", "inner", "left"),
    [
        (2, 4, [15]),
        ((1 << 15) - 1, (1 << 15) - 1, [1 << 30]),
        ((1 << 16) - 1, (1 << 15) - 2, [(1 << 31) - (1 << 16)]),
        ((1 << 16) - 1, (1 << 15) - 1, [1 << 16, 1 << 15]),
        (69_999, 69_999, [70_000, 70_000]),
        (-1, 4, [0, 5]),
        (4, -5, [5, 0]),
    ],
)
def test_one_loop_is_made_where_an_i32_counts_it(outer: int, inner: int, left: list[int]) -> None:
    assert _collapsed(outer, inner) == left
