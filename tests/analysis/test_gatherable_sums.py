"""Serial loops in parallel tasks whose scattered sums can be gathered instead."""

from __future__ import annotations

import pytest

from octants.analysis.sums.gatherable_sums import PairLoops, mirrored
from octants.ir import ops
from tests.analysis.tasks import task_of
from tests.ir.parser import parse

FOUND = {
    "x[j] += y[i] * y[j]": 1,
    "x[j] -= y[i]": 1,
    "x[j] += y[i]; z[j, 0] += y[i]": 2,
    "if y[i] > 0.0: x[j] += y[i]": 1,
    "x[j + 1] += y[i]": 1,
    "x[i] += y[j]": 0,  # one element for a work item
    "x[0] += y[j]": 0,
    "x[p[j]] += y[i]": 1,  # read, but not written
    "x[(i + j) % 8] += y[i]": 0,
    "x[j] += x[i]": 0,  # the sums are read
    "y[j] += y[i]": 0,
    "x[j] = y[i]": 0,
    "qd.atomic_max(x[j], y[i])": 0,
    "x[j] = qd.atomic_add(z[j, 0], y[i])": 0,  # what was there before is used
    "for k in range(n): x[k] += y[i]": 0,  # of another loop
}


@pytest.mark.parametrize("body", FOUND)
def test_sums_that_can_be_gathered(body: str) -> None:
    lines = "; ".join(f"    {line}" for line in body.split("; "))
    task = task_of(f"for j in range(n):; {lines}")
    sums = [op for _, found in PairLoops(task, noalias=True).find() for op in found]
    assert len(sums) == FOUND[body]


BOUNDS = {"n": True, "3": False, "4": True, "n + 2": True, "p[0]": True, "i": False, "p[i]": False}


@pytest.mark.parametrize("end", BOUNDS)
def test_loops_of_the_same_length_for_all_work_items(end: str) -> None:
    task = task_of(f"for j in range({end}): x[j] += y[i]")
    assert bool(list(PairLoops(task, noalias=True).find())) is BOUNDS[end]


@pytest.mark.parametrize("noalias", [False, True])
def test_arguments_may_share_memory(noalias: bool) -> None:
    module = parse(SCATTERED)
    assert bool(list(PairLoops(module.tasks[0], noalias).find())) is noalias


SCATTERED = """
kernel @k
array @x: f32, 1, ndarray, () [primal]
array @y: f32, 1, ndarray, () [primal]
parallel @k_0 {
  %0: i32 = constant<0>()
  %1: i32 = constant<8>()
  yield(%0, %1)
} { (%i: i32):
  %2: i32 = constant<0>()
  %3: i32 = constant<8>()
  for(%2, %3) { (%j: i32):
    %4: f32 = load<@y, primal>(%i)
    %5: f32 = atomic<add, @x, primal>(%4, %j)
    yield()
  }
  yield()
}
"""


def test_the_number_of_work_items() -> None:
    facts = PairLoops(task_of("x[i] = y[i]"), noalias=True)
    assert facts.count() == 8
    assert [facts.fills(count) for count in (7, 8, 9)] == [True, True, False]


MIRRORED = {
    "x[n - j - 1] += y[i]": True,
    "x[n - 1 - j] += y[i]": False,
    "x[n - j - 2] += y[i]": False,
    "x[n - j] += y[i]": False,
    "x[j] += y[i]": False,
}


@pytest.mark.parametrize("body", MIRRORED)
def test_counting_down_to_zero(body: str) -> None:
    task = task_of(f"for j in range(n): {body}")
    (loop,) = (op for op in task.body.walk() if isinstance(op, ops.For))
    constants = {op.result: op.value for op in task.body.walk() if isinstance(op, ops.Constant)}
    found = mirrored(loop, constants)
    assert (found is not None) is MIRRORED[body]
    if found is not None:
        (update,) = (op for op in loop.body.walk() if isinstance(op, ops.Atomic))
        assert update.indices == [found]
