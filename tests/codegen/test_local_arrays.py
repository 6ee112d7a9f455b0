"""Where arrays of a work item start."""

from __future__ import annotations

import random

import pytest

from octants.codegen.llvm.local_arrays import choose_starts
from octants.ir.cooperative_tasks import ON_STACK

LINE, PAGE = 64, 4096


def distances(starts: list[int]) -> list[int]:
    """How far starts are apart modulo a page."""
    pairs = ((a, b) for k, a in enumerate(starts) for b in starts[:k])
    return [min((a - b) % PAGE, (b - a) % PAGE) for a, b in pairs]


@pytest.mark.parametrize("count", [1, 2, 3, 8, 32])
def test_elements_of_one_index_look_different(count: int) -> None:
    for elements in (65, 129):
        sizes = [elements * LINE] * count
        starts, total = choose_starts(sizes)
        if total > sum(sizes) or count == 1:
            assert min(distances(starts), default=PAGE) >= PAGE // (2 * count) // LINE * LINE
        else:
            assert sum(sizes) > ON_STACK - count * PAGE


@pytest.mark.parametrize("seed", range(20))
def test_arrays_do_not_overlap(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [LINE * rng.randint(1, 200) for _ in range(rng.randint(1, 100))]
    starts, total = choose_starts(sizes)
    ends = [start + size for start, size in zip(starts, sizes, strict=True)]
    assert all(start % LINE == 0 for start in starts)
    assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))
    assert ends[-1] == total


def test_small_arrays_are_packed() -> None:
    assert choose_starts([64, 128, 64]) == ([0, 64, 192], 256)


def test_arrays_that_fit_the_stack_stay_there() -> None:
    assert choose_starts([ON_STACK // 2, ON_STACK // 2]) == ([0, ON_STACK // 2], ON_STACK)
