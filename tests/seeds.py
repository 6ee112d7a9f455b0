"""How many seeds of a random test always run; the others are behind the marker `slow`."""

from __future__ import annotations

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
