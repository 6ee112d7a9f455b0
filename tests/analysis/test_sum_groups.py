"""Which updates a subgroup makes together, and by how much their indices differ."""

from __future__ import annotations

import pytest

from octants.analysis.sums.reductions import find_shared
from octants.analysis.sums.sum_groups import find_groups
from octants.ir.verifier import verify
from tests.ir.parser import parse

HEAD = """\
kernel @k
array @x: f32, 1, ndarray, () [primal]
array @y: i32, 1, ndarray, () [primal]
array @w: f32, 2, ndarray, () [primal, adjoint]
parallel @k_0 {
  %0: i32 = constant<0>()
  %1: i32 = shape<@x, 0>()
  yield(%0, %1)
} { (%2: i32):
  %3: i32 = constant<0>()
  %4: i32 = constant<1>()
  %5: i32 = constant<7>()
  %6: i32 = constant<-2147483648>()
  %7: f32 = load<@x, primal>(%2)
  %8: i32 = load<@y, primal>(%3)
  %9: i32 = binary<add>(%8, %5)
  %10: i32 = binary<sub>(%8, %4)
  %11: i32 = binary<mul>(%8, %8)
"""
END = "  yield()\n}\n"


def distances(*lines: str, noalias: bool = True, most: int = 32) -> list[list[tuple[int, ...]]]:
    """The distances of each group of these operations' updates."""
    module = parse(HEAD + "".join(f"  {line}\n" for line in lines) + END)
    verify(module)
    (task,) = module.tasks
    groups = find_groups(task, find_shared(task.body), noalias, most)
    return [list(group.distances) for group in groups]


def add(number: int, *indices: str, fn: str = "add") -> str:
    return f"%{number}: f32 = atomic<{fn}, @w, adjoint>(%7, {', '.join(indices)})"


def test_indices_that_differ_by_constants() -> None:
    updates = add(20, "%8", "%3"), add(21, "%9", "%5"), add(22, "%10", "%3"), add(23, "%8", "%3")
    assert distances(*updates) == [[(0, 0), (7, 7), (-1, 0), (0, 0)]]
    assert distances(*updates, most=2) == [[(0, 0), (7, 7)], [(0, 0), (1, 0)]]
    assert distances(*updates, most=3) == [[(0, 0), (7, 7), (-1, 0)]]


def test_distances_wrap_as_indices_do() -> None:
    assert distances(add(20, "%6", "%3"), add(21, "%5", "%3")) == [[(0, 0), (-(2**31) + 7, 0)]]


def test_families_are_apart() -> None:
    """Threads that agree on one index need not agree on another."""
    assert distances(add(20, "%8", "%3"), add(21, "%11", "%3")) == []
    assert distances(add(20, "%8", "%3"), add(21, "%8", "%3", fn="max")) == []
    mixed = add(20, "%8", "%3"), add(21, "%11", "%3"), add(22, "%9", "%3"), add(23, "%11", "%4")
    assert distances(*mixed) == [[(0, 0), (7, 0)], [(0, 0), (0, 1)]]


def test_work_items_elements_are_their_own() -> None:
    assert distances(add(20, "%2", "%3"), add(21, "%2", "%4")) == []
    used = add(20, "%8", "%3"), add(21, "%8", "%4"), "store<@x, primal>(%20, %2)"
    assert distances(*used) == []


FREE = [
    "%30: f32 = load<@x, primal>(%2)",
    "%30: f32 = load<@w, primal>(%8, %3)",
    "%30: f32 = unary<sin>(%7)",
    "store<@x, primal>(%7, %2)",
    "%30: f32 = atomic<add, @x, primal>(%7, %8)",
]
HELD = [
    "%30: f32 = load<@w, adjoint>(%2, %3)",
    "store<@w, adjoint>(%7, %2, %3)",
    "%30: f32 = atomic<max, @w, adjoint>(%7, %2, %3)",
    "print<('x',), False>()",
]


@pytest.mark.parametrize("line", FREE)
def test_what_updates_may_wait_for(line: str) -> None:
    assert distances(add(20, "%8", "%3"), line, add(21, "%9", "%3")) == [[(0, 0), (7, 0)]]


@pytest.mark.parametrize("line", HELD)
def test_what_updates_must_precede(line: str) -> None:
    assert distances(add(20, "%8", "%3"), line, add(21, "%9", "%3")) == []
    nested = f"if(%40) {{\n    {line}\n    yield()\n  }} {{\n    yield()\n  }}"
    compare = "%40: u1 = compare<lt>(%2, %4)"
    assert distances(add(20, "%8", "%3"), compare, nested, add(21, "%9", "%3")) == []


def test_arrays_that_may_share_memory() -> None:
    lines = add(20, "%8", "%3"), "%30: f32 = load<@x, primal>(%8)", add(21, "%9", "%3")
    assert len(distances(*lines)) == 1
    assert distances(*lines, noalias=False) == []


def test_groups_stay_in_a_block() -> None:
    nested = f"if(%40) {{\n    {add(21, '%9', '%3')}\n    yield()\n  }} {{\n    yield()\n  }}"
    compare = "%40: u1 = compare<lt>(%8, %4)"
    assert distances(add(20, "%8", "%3"), compare, nested) == []
    assert distances(add(20, "%8", "%3"), compare, nested, add(22, "%10", "%3")) == [
        [(0, 0), (-1, 0)]
    ]
