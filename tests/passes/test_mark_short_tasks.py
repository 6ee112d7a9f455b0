"""Tasks that are known to be short: which of them may use more of a GPU."""

from __future__ import annotations

import pytest

from octants.ir.cooperative_tasks import ALL_REGISTERS
from octants.passes.tasks.mark_short_tasks import mark_short_tasks
from tests.ir.parser import parse

KERNEL = """\
kernel @k
array @x: f32, 1, ndarray, () [primal]
serial @k_0 {{
  yield()
}}
parallel @k_1 {{
  %0: i32 = constant<{lower}>()
  %1: i32 = {upper}
  yield(%0, %1)
}} {{ (%2: i32):
  %3: f32 = constant<0.0>()
  store<@x, primal>(%3, %2)
  yield()
}}
"""
FILLS = 800


@pytest.mark.parametrize(
    ("lower", "upper", "is_short"),
    [
        (0, "constant<100>()", True),
        (0, "constant<101>()", False),
        (1000, "constant<1100>()", True),
        (0, "constant<0>()", False),
        (0, "shape<@x, 0>()", False),
    ],
)
def test_which_launches(lower: int, upper: str, is_short: bool) -> None:
    module = parse(KERNEL.format(lower=lower, upper=upper))
    mark_short_tasks(module, FILLS)
    assert [task.options.get(ALL_REGISTERS, False) for task in module.tasks] == [False, is_short]
