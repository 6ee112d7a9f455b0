"""Lanes that load neighbours, but where an index is clamped or taken modulo the length of a row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.codegen.llvm.lanes.vector_capabilities import lanes_of_target
from tests.codegen.compiled import TARGET
from tests.seeds import each_once

pytestmark = pytest.mark.skipif(
    not lanes_of_target(TARGET), reason="the vectors of this CPU are none to rely on"
)
NUMPY = {qd.f64: np.float64, qd.f32: np.float32, qd.i64: np.int64, qd.u8: np.uint8}


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    qd.reset()


@qd.kernel
def look(x: qd.types.ndarray(ndim=2), y: qd.types.ndarray(ndim=2)):
    n, m = x.shape[0], x.shape[1]
    for i, j in x:
        a = x[qd.max(i - 1, 0), j] + 2 * x[i, qd.min(j + 1, m - 1)]
        a += 3 * x[i, (j + 1) % m] + 4 * x[(i - 2 + n) % n, (j - 2) % m]
        a += 5 * x[i, qd.max(0, qd.min(m - 1, j + 3))] + 6 * x[i, qd.max(j - 1, 0) % m]
        a += x[i, m - 1 - qd.max(j - 1, 0)] + x[i, qd.min(2 * j, m - 1)]
        if a % 3 != 0:
            a -= x[i, qd.max(j - 1, 0)]
        y[i, j] = a


@qd.kernel
def look_in_64(x: qd.types.ndarray(ndim=2), y: qd.types.ndarray(ndim=2)):
    for i, j in x:
        k, m = qd.i64(j), qd.i64(x.shape[1])
        y[i, j] = x[i, qd.max(k - 1, 0)] + 2 * x[i, (k + 1) % m] + 3 * x[i, (k - 1) & 7]


def run(simd: str, kernel: Any, dtype: Any, shape: tuple[int, int]) -> np.ndarray[Any, Any]:
    qd.init(arch=qd.cpu, simd=simd, cpu_max_num_threads=1, log_level="error")
    x = np.random.default_rng(0).integers(0, 9, shape).astype(NUMPY[dtype])
    y = np.zeros(shape, NUMPY[dtype])
    kernel(x, y)
    return y


@pytest.mark.parametrize(
    ("dtype", "shape"),
    each_once(list(NUMPY), [(3, 33), (2, 8), (5, 16), (1, 100), (4, 257)]),
    ids=str,
)
def test_values_are_those_of_one_work_item_at_a_time(dtype: Any, shape: tuple[int, int]) -> None:
    for kernel in (look, look_in_64):
        if kernel is look_in_64 and shape[1] < 8:
            continue
        expected = run("never", kernel, dtype, shape)
        for simd in ("auto", "always"):
            np.testing.assert_array_equal(run(simd, kernel, dtype, shape), expected)


@pytest.mark.parametrize("simd", ["auto", "always"])
def test_segments_may_begin_and_end_anywhere(simd: str) -> None:
    qd.init(arch=qd.cpu, simd=simd, cpu_max_num_threads=1, log_level="error")
    begin, n = -3, 152

    @qd.kernel
    def shift(
        x: qd.types.ndarray(ndim=1), y: qd.types.ndarray(ndim=1), end: qd.i32, m: qd.i32, to: qd.i32
    ):
        for i in range(begin, end):
            k = qd.i64(i)
            y[i + 3] += 10 * x[(i + 4) % m] + x[qd.min(qd.max(k + 1, qd.i64(to)), qd.i64(n - 1))]
            y[qd.max(i, to)] += 100 * x[i + 3]
            y[(i + 5) % m] += 1000 * x[i + 3]

    x = np.random.default_rng(0).integers(0, 9, n).astype(np.int64)
    for end in (-3, -2, 4, 13, 14, 15, 125, 147):
        for m, to in ((0, 0), (3, 2), (64, 40), (150, 151), (2**31 - 1, 0)):
            y, expected = np.zeros_like(x), np.zeros_like(x)
            shift(x, y, end, m, to)
            i = np.arange(begin, end)
            first, second = (i + d if m == 0 else (i + d) % m for d in (4, 5))
            np.add.at(expected, i + 3, 10 * x[first] + x[np.minimum(np.maximum(i + 1, to), n - 1)])
            np.add.at(expected, np.maximum(i, to), 100 * x[i + 3])
            np.add.at(expected, second, 1000 * x[i + 3])
            np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("width", [64, 50])
def test_neighbours_are_loaded_at_once(width: int) -> None:
    qd.init(arch=qd.cpu, simd="always", log_level="error")
    x, y = qd.field(qd.f64, (64, width)), qd.field(qd.f64, (64, width))

    @qd.kernel
    def clamped():
        for i, j in x:
            y[i, j] = x[qd.max(i - 1, 0), j] + x[i, qd.min(j + 1, width - 1)]

    @qd.kernel
    def periodic():
        for i, j in x:
            y[i, j] = x[i, (j - 1) % width] + x[i, (j + 1) % width]

    values = np.random.default_rng(0).uniform(size=(64, width))
    x.from_numpy(values)
    clamped()
    below, right = np.vstack([values[:1], values[:-1]]), np.hstack([values[:, 1:], values[:, -1:]])
    np.testing.assert_array_equal(y.to_numpy(), below + right)
    periodic()
    np.testing.assert_array_equal(y.to_numpy(), np.roll(values, 1, 1) + np.roll(values, -1, 1))
    for kernel in (clamped, periodic):
        text = kernel.inspect().llvm_ir
        assert not re.search("gather|contiguous", text)
        assert len(re.findall("masked.load.*%|= load <", text)) > 1


def test_neighbours_that_a_loop_finds_are_loaded_at_once() -> None:
    qd.init(arch=qd.cpu, simd="always", log_level="error")
    x, y = qd.field(qd.f64, (64, 50)), qd.field(qd.f64, (64, 50))

    @qd.kernel
    def average(reach: qd.i32):
        for i, j in x:
            y[i, j] = 0.0
            for k in range(reach):
                y[i, j] += x[i, (j + k) % 50]

    values = np.random.default_rng(0).integers(0, 9, (64, 50)).astype(np.float64)
    x.from_numpy(values)
    average(3)
    expected = values + np.roll(values, -1, 1) + np.roll(values, -2, 1)
    np.testing.assert_array_equal(y.to_numpy(), expected)
    assert "contiguous" in average.inspect(3).llvm_ir


@pytest.mark.parametrize("width", [64, 50])
def test_neighbours_are_added_to_at_once(width: int) -> None:
    qd.init(arch=qd.cpu, simd="always", log_level="error")
    x, y = qd.field(qd.i32, (64, width)), qd.field(qd.i32, (64, width))

    @qd.kernel
    def scatter():
        for i, j in x:
            y[i, (j + 1) % width] += x[i, j]
            y[i, qd.max(j - 2, 0)] += 10 * x[i, j]
            if x[i, j] % 3 != 0:
                y[i, qd.min(j + 1, width - 1)] += 100 * x[i, j]

    values = np.random.default_rng(0).integers(0, 9, (64, width)).astype(np.int32)
    x.from_numpy(values)
    scatter()
    expected = np.roll(values, 1, 1)
    columns = np.arange(width)
    for k in range(64):
        np.add.at(expected[k], np.maximum(columns - 2, 0), 10 * values[k])
        some = np.where(values[k] % 3 != 0, 100 * values[k], 0)
        np.add.at(expected[k], np.minimum(columns + 1, width - 1), some)
    np.testing.assert_array_equal(y.to_numpy(), expected)
    text = scatter.inspect().llvm_ir
    assert not re.search("scatter|contiguous", text.replace("scatter_", ""))
    assert len(re.findall("masked.store.*%|store <", text)) > 2
