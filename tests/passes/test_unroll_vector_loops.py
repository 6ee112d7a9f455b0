"""Short loops over local vectors that are unrolled: which, and that results stay the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octants.interpreter import run
from octants.ir import ops
from octants.ir.cloning import copy_module
from octants.ir.core import Module, Space
from octants.ir.verifier import verify
from octants.passes.loops.unroll_vector_loops import unroll_vector_loops
from tests.ir.parser import parse

KERNEL = """\
kernel @k
array @x: f32, 1, field, () [primal (32,) ((0, 1, 0, 4),) ()]
array @n: i32, 1, field, () [primal (4,) ((0, 1, 0, 4),) ()]
array @v: f32, 1, local, () [primal (32,) ((0, 1, 0, 4),) ()]
parallel @k_0 {{
  %0: i32 = constant<0>()
  %1: i32 = constant<1>()
  yield(%0, %1)
}} {{ (%2: i32):
  %3: i32 = constant<0>()
  %4: i32 = constant<{trips}>()
  %5: i32 = constant<5>()
  %6: f32 = constant<0.5>()
  %7: i32 = load<@n, primal>(%3)
  for(%3, %4) {{ (%8: i32):
    %9: f32 = load<@x, primal>(%8)
    store<@v, primal>(%9, %8)
    yield()
  }}
  %10: f32 = for(%3, %4, %6) {{ (%11: i32, %12: f32):
    %13: i32 = {index}
    %14: f32 = load<@v, primal>(%13)
    %15: f32 = {function}
    %16: f32 = fma(%15, %14, %12)
    yield(%16)
  }}
  store<@x, primal>(%10, %5)
  yield()
}}
"""
COUNTER, SAME = "binary<add>(%11, %3)", "binary<add>(%14, %6)"


def kernel(trips: int, index: str = COUNTER, function: str = SAME) -> Module:
    module = parse(KERNEL.format(trips=trips, index=index, function=function))
    verify(module)
    return module


def results(module: Module) -> np.ndarray[Any, Any]:
    arrays: dict[str, Any] = {
        "x": np.arange(32, dtype=np.float32) / 8,
        "n": np.array([2, 0, 0, 0], np.int32),
    }
    run(module, arrays)
    return np.asarray(arrays["x"])


@pytest.mark.parametrize(
    ("module", "left"),
    [
        (kernel(8), 0),
        (kernel(24), 0),
        (kernel(1), 0),
        (kernel(25), 2),  # too many
        (kernel(6, "binary<sub>(%5, %11)"), 0),
        (kernel(6, "binary<and>(%11, %7)"), 2),  # an index that only the launch knows
        (kernel(6, "binary<add>(%7, %3)"), 2),
        (kernel(6, function="unary<sin>(%14)"), 2),  # which `unroll_loops` writes with estimates
    ],
)
def test_loops_are_unrolled_if_all_indices_are_constants_then(module: Module, left: int) -> None:
    result = copy_module(module)
    unroll_vector_loops(result)
    verify(result)
    assert sum(isinstance(op, ops.For) for op in result.walk()) == left
    if not left:
        constants = ops.constants_in(result)
        accesses = [op for op in result.walk() if isinstance(op, ops.Access)]
        local = [op for op in accesses if op.array.space is Space.LOCAL]
        assert all(index in constants for op in local for index in op.indices)
    np.testing.assert_array_equal(results(module), results(result))
