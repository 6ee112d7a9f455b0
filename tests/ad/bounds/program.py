"""What a program with a loop is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import octants as qd

ITEMS = 5


@dataclass
class Program:
    """A kernel that makes y[i] of x[i]; `prepare` gives its arguments, and the trips of each item.

    `slots` says from the size how many numbers are recorded at the same time, at most, if that is
    not the largest number of trips.
    """

    kernel: Any
    x: Any
    y: Any
    prepare: Callable[[int], tuple[tuple[Any, ...], list[int]]]
    slots: Callable[[int], int] | None = None


PROGRAMS: list[Callable[[], Program]] = []


def program(make: Callable[[], Program]) -> Callable[[], Program]:
    """Let a program be tried."""
    PROGRAMS.append(make)
    return make


@qd.func
def turn(v: qd.f64) -> qd.f64:
    return 0.9 * qd.sin(v) + 0.1


def recurrence(start: np.ndarray[Any, Any], trips: list[int]) -> tuple[Any, Any]:
    """Values and slopes after so many turns, element by element."""
    values, slopes = start.copy(), np.ones_like(start)
    for k, count in enumerate(trips):
        for _ in range(count):
            slopes[k] *= 0.9 * np.cos(values[k])
            values[k] = 0.9 * np.sin(values[k]) + 0.1
    return values, slopes


def pair() -> tuple[Any, Any]:
    """The fields x and y."""
    x, y = (qd.field(qd.f64, shape=ITEMS, needs_grad=True) for _ in range(2))
    return x, y


def integers(values: Any) -> Any:
    """An ndarray."""
    array = qd.ndarray(qd.i32, np.shape(values))
    array.from_numpy(np.asarray(values, np.int32))
    return array
