"""Ranges of floats: of what operations give for any operands, and of positions on a grid."""

from __future__ import annotations

import itertools
import linecache
import math
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.analysis.floats.float_ranges import FloatRanges
from octants.ir import ops
from octants.ir.core import Task
from octants.launch.kernel import Kernel
from tests.analysis.tasks import task_of

ANYWHERE = {
    "x[i] = 6.25 * qd.random()": (0.0, 6.25),
    "x[i] = qd.cos(y[i]) - 2.0 * qd.random(float)": (-3.001, 1.001),
    "x[i] = -abs(qd.sin(y[i]) * 100.0)": (-100.1, 0.0),
    "x[i] = y[i] * qd.random()": (-math.inf, math.inf),
    "x[i] = min(y[i], 1.0)": (-math.inf, 1.0),
    "x[i] = max(min(y[i], 1.0), -3.0)": (-3.0, 1.0),
    "x[i] = min(qd.sin(y[i]), 50.0)": (-1.001, 50.0),  # of NaN it is 50
    "x[i] = max(-50.0, qd.sin(y[i]))": (-50.0, 1.001),
    "x[i] = min(qd.sin(y[i]), 9.0 * qd.cos(y[i]))": (-9.009, 9.009),
    "x[i] = y[i] - qd.floor(y[i])": (0.0, 1.0),
    "x[i] = qd.floor(y[i]) - y[i]": (-math.inf, math.inf),
    "x[i] = y[i] % 3.0": (-math.inf, math.inf),  # the multiple of 3 is rounded
    "x[i] = qd.raw_mod(y[i], 3.0)": (-3.0, 3.0),
    "x[i] = (1000.0 * qd.sin(y[i])) % 3.0": (-3.0, 3.0),
    "x[i] = (2.0**36 * qd.random()) % 3.0": (-68723, 68723),
    "x[i] = 2.0 * qd.tanh(y[i])": (-2.002, 2.002),
    "x[i] = qd.atan2(y[i], x[i])": (-3.145, 3.145),
    "x[i] = qd.sin(y[i]) / (2.0 + qd.random())": (-0.501, 0.501),
    "x[i] = qd.sin(y[i]) / qd.random()": (-math.inf, math.inf),
    "x[i] = qd.random() if y[i] > 1.0 else 3.0": (0.0, 3.0),
    "x[i] = qd.f32(p[i] % 8)": (0.0, 7.0),
    "x[i] = 4500.0 * qd.random() + 2.0**36 - 2.0**36": (-68720, 73220),  # it may be 8192
    "x[i] = qd.exp(y[i])": (-math.inf, math.inf),
    "v = 0.5; for j in range(p[i]):;     v = qd.sin(v * y[j]); x[i] = v": (-1.001, 1.001),
    "v = 0.5; for j in range(p[i]):;     v = v + 1.0; x[i] = v": (-math.inf, math.inf),
}


def stored_range(task: Task) -> tuple[float, float]:
    """The range of what the last store of a task stores."""
    *_, store = (op for op in task.body.walk() if isinstance(op, ops.Store))
    return FloatRanges(task, ops.constants_in(task.body), [store.value])[store.value]


@pytest.mark.parametrize("body", ANYWHERE)
def test_ranges_of_operations(body: str) -> None:
    assert stored_range(task_of(body)) == pytest.approx(ANYWHERE[body], rel=2e-3)


GRID = {
    "i / n": (0.0, 1.0),
    "(i + 0.5) / n": (0.0, 1.0),
    "(i + 1) / n": (0.0, 1.0),
    "2.0 * (j + 0.5) / m - 1.0": (-1.0, 1.0),
    "(2.0 * j + 1.0 - m) / m": (-1.0, 1.0),
    "(2 * j + 1.0 - m) / m": None,  # 2 * j may wrap
    "(m - 1 - j) / m": (0.0, 1.0),
    "i / (n - 1)": (0.0, 1.0),  # or NaN
    "(i + 1) / (n - 1)": (0.0, 2.0),
    "(i + 0.25) * (1.0 / n)": (0.0, 1.0),
    "(i - 7.0) / n": (-7.0, 1.0),
    "5.0 / n": (0.0, 5.0),
    "i * (7.0 / n) + j * (2.0 / m)": (0.0, 9.0),
    "qd.sin(y[i]) / n": (-1.001, 1.001),
    "k / c": (0.0, 1.0),
    "(k + 3.0) / c": (0.0, 3.0),
    "k / (c + 1.0)": (0.0, 1.0),
    "(c + 5.0) / c": (-4.0, 6.0),
    "(l + 2) / m": (0.0, 1.0),
    "l / (m - 2)": (0.0, 1.0),
    "c / k": None,
    "i / m": None,
    "j / n": None,
    "k / n": None,
    "y[i] / n": None,
    "(i + j) / n": None,
    "i / (n - 1000000)": None,
    "(i + 1e9 - 1e9) / n": None,  # rounded by much
    "20.0 * i / n": None,
    "(qd.f32(max(c, 0)) - qd.f32(c)) / (qd.f32(c) + 1000.0)": None,  # -1001 of -1001
    "1.0 / (0.3 * n - 0.9)": None,  # rounded, it may be close to zero
}
"""Floats made of indices i and j of a grid of n times m, k below c, and l below m - 2."""

SOURCE = """
@qd.kernel
def k(x: qd.types.NDArray[qd.f32, 2], y: qd.types.NDArray[qd.f32, 1], c: qd.i32):
    for i, j in x:
        n, m = x.shape[0], x.shape[1]
        for l in range(m - 2):
            for k in range(c):
                found = {}
                if -1e30 < found and found < 1e30:
                    qd.atomic_min(y[0], found)
                    qd.atomic_max(y[1], found)
"""


def on_grid(expression: str) -> Kernel:
    """A kernel that finds the extreme values of an expression."""
    source = SOURCE.format(expression)
    name = f"<grid {expression}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    scope: dict[str, Any] = {"qd": qd}
    exec(compile(source, name, "exec"), scope)
    kernel: Kernel = scope["k"]
    return kernel


@pytest.mark.parametrize("expression", GRID)
def test_positions_on_a_grid(expression: str) -> None:
    """They have the range that is expected, and all values that a kernel finds are in it."""
    qd.init(arch=qd.cpu, offline_cache=False, log_level="error", cpu_max_num_threads=1)
    kernel = on_grid(expression)
    y = np.zeros(64, np.float32)
    module = kernel.specialise((np.zeros((3, 4), np.float32), y, 5)).module
    task = module.tasks[-1]
    *_, update = (op for op in task.body.walk() if isinstance(op, ops.Atomic))
    low, high = FloatRanges(task, ops.constants_in(task.body), [update.value])[update.value]
    wanted = GRID[expression]
    if wanted is None:
        assert max(-low, high) > 1e6
        return
    assert (low, high) == pytest.approx(wanted, abs=0.04)
    for n, m, c in itertools.product((1, 2, 3, 50), (1, 3, 4, 7), (-5, -1, 0, 1, 2, 3, 9)):
        y[:2] = np.inf, -np.inf
        kernel(np.zeros((n, m), np.float32), y, c)
        assert low <= y[0] and y[1] <= high, (n, m, c)


def test_extents_that_are_negative() -> None:
    """Two negative numbers have a positive product, but positions are no longer those of a grid."""
    qd.init(arch=qd.cpu, offline_cache=False, log_level="error")

    @qd.kernel
    def positions(y: qd.types.NDArray[qd.f32, 1], n: qd.i64, m: qd.i64):
        for p in range(n * m):
            y[p] = qd.f32(p % m) / (qd.f32(m) + 3.0625)

    y = np.zeros(6, np.float32)
    positions(y, -2, -3)
    assert y.min() == -32.0
    low, high = stored_range(positions.specialise((y, -2, -3)).module.tasks[-1])
    assert low <= y.min() and y.max() <= high


def test_each_operation_of_a_nest_is_visited_twice_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["v = 0.5"]
    for depth in range(10):
        lines += [
            "    " * depth + f"for j{depth} in range(p[i]):",
            "    " * depth + "    v = qd.sin(v)",
        ]
    task = task_of("\n".join([*lines, "x[i] = v"]))
    visits = {}
    range_of = FloatRanges._range

    def counting(ranges: FloatRanges, op: Any) -> tuple[float, float]:
        visits[op] = visits.get(op, 0) + 1
        return range_of(ranges, op)

    monkeypatch.setattr(FloatRanges, "_range", counting)
    assert stored_range(task) == pytest.approx((-1.001, 1.001), abs=1e-3)
    assert set(visits.values()) == {2}
