"""Loops that run a block of another loop's iterations."""

from __future__ import annotations

import pytest

from octants.analysis.control_flow.strip_mined_loops import BlocksOfLoops
from octants.ir import ops
from tests.ir.parser import parse

TASK = """
kernel @k
array @x: f32, 1, field, () [primal]
array @n: i64, 1, field, () [primal]
record #r: f32
serial @k_0 {{
  %zero: i64 = constant<0>()
  %one: i64 = constant<1>()
  %count: i64 = load<@n, primal>(%zero)
  %capacity: i64 = record_capacity<#r, 1>(%zero)
  %fixed: i64 = binary<mul>(%one, %count)
  for(%zero, %count) {{ (%k: i64):
    %start: i64 = binary<mul>(%k, {length})
    %left: i64 = binary<sub>(%count, %start)
    %size: i64 = {size}
    for(%zero, %size) {{ (%j: i64):
      yield()
    }}
    yield()
  }}
  yield()
}}
"""

CASES = {
    "as many as fit, or are left": ("%capacity", "binary<min>(%capacity, %left)", True),
    "the other way round": ("%capacity", "binary<min>(%left, %capacity)", True),
    "more than fit": ("%capacity", "binary<max>(%capacity, %left)", False),
    "as many as fit": ("%capacity", "binary<min>(%capacity, %count)", False),
    "as many as are left": ("%one", "binary<min>(%left, %left)", False),
    "a number without a capacity": ("%fixed", "binary<min>(%fixed, %left)", False),
    "its own number": ("%capacity", "binary<add>(%count, %zero)", False),
}


@pytest.mark.parametrize("case", CASES)
def test_the_loop_of_whose_iterations_it_runs_some(case: str) -> None:
    length, size, is_block = CASES[case]
    module = parse(TASK.format(length=length, size=size))
    body = module.tasks[0].body
    around, inner = (op for op in body.walk() if isinstance(op, ops.For))
    blocks = BlocksOfLoops(body)
    assert blocks.whole(inner) is (around if is_block else inner)
    assert blocks.whole(around) is around
