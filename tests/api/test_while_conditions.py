"""Loops whose conditions read memory that the loop does not change.

NVIDIA's compiler takes the first load out of such loops, and got the number of iterations wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.devices import ARCH

COUNT = 40
TABLE = np.random.default_rng(3).integers(-7, 8, (COUNT, 4)).astype(np.int32)


def expected(bound: Any) -> list[int]:
    return [max(0, int(bound(row))) for row in TABLE]


@pytest.mark.parametrize("opt_level", (0, 2) if ARCH == "cuda" else (2,))
def test_iterations_are_those_of_the_condition(opt_level: int) -> None:
    qd.init(arch=qd.cpu, opt_level=opt_level, offline_cache=False, log_level="error")
    t = qd.field(qd.i32, TABLE.shape)
    t.from_numpy(TABLE)
    found = qd.field(qd.i32, (4, COUNT))

    @qd.func
    def indirect(i):
        return abs(t[i, qd.min(qd.max(t[0, t[i, 1] % 2] % 3, 0), 1)])

    @qd.kernel
    def absolute():
        for i in range(COUNT):
            w = 0
            while w < abs(t[i, 0]):
                w += 1
            found[0, i] = w

    @qd.kernel
    def through_an_index():
        for i in range(COUNT):
            w = 0
            while w < indirect(i):
                w += 1
            found[1, i] = w

    @qd.kernel
    def in_a_branch():
        for i in range(COUNT):
            w = 0
            while w < (abs(t[i, 0]) if t[i, 1] > 0 else 3):
                w += 1
            found[2, i] = w

    @qd.kernel
    def by_a_break():
        for i in range(COUNT):
            w = 0
            for k in range(50):
                if k >= abs(t[i, 0]):
                    break
                w += 1
            found[3, i] = w

    for kernel in (absolute, through_an_index, in_a_branch, by_a_break):
        kernel()
    column = [int(TABLE[0, 0]) % 3, int(TABLE[0, 1]) % 3]
    values = found.to_numpy()
    assert values[0].tolist() == expected(lambda row: abs(row[0]))
    assert values[1].tolist() == expected(lambda row: abs(row[min(column[row[1] % 2], 1)]))
    assert values[2].tolist() == expected(lambda row: abs(row[0]) if row[1] > 0 else 3)
    assert values[3].tolist() == expected(lambda row: abs(row[0]))
