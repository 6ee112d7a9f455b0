"""Which seeds and combinations of a test always run; the others are behind the marker `slow`."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest


def seeds(often: int, count: int, first: int = 0) -> list[Any]:
    """The values of a parameter that counts ``count`` seeds, of which the first ones often run."""
    return [
        first + k if k < often else pytest.param(first + k, marks=pytest.mark.slow)
        for k in range(count)
    ]


def counts(often: int, count: int) -> list[Any]:
    """The values of a parameter that says how many seeds a test takes: few, or slowly all."""
    return [often, pytest.param(count, marks=pytest.mark.slow)]


def pairwise(*axes: Sequence[Any]) -> list[Any]:
    """All combinations of the values of axes. In those that always run, any two values meet."""
    return _covering(axes, 2)


def each_once(*axes: Sequence[Any]) -> list[Any]:
    """All combinations of the values of axes. In those that always run, each value occurs."""
    return _covering(axes, 1)


def _covering(axes: Sequence[Sequence[Any]], together: int) -> list[Any]:
    combinations = list(itertools.product(*(range(len(axis)) for axis in axes)))
    groups = {one: set(itertools.combinations(enumerate(one), together)) for one in combinations}
    missing, often = set().union(*groups.values()), set[tuple[int, ...]]()
    uses: Counter[tuple[int, int]] = Counter()
    while missing:
        best = max(
            combinations,
            key=lambda one: (
                len(missing & groups[one]),
                -sum(uses[each] for each in enumerate(one)),
            ),
        )
        missing -= groups[best]
        often.add(best)
        uses.update(enumerate(best))
    return [
        pytest.param(
            *(axis[k] for axis, k in zip(axes, one, strict=True)),
            marks=() if one in often else pytest.mark.slow,
        )
        for one in combinations
    ]
