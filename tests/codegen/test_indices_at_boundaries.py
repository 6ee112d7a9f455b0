"""Lanes that load neighbours, but where an index is clamped or taken modulo the length of a row."""

from __future__ import annotations

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
    assert clamped.inspect().llvm_ir.count("contiguous") > 0
    assert periodic.inspect().llvm_ir.count("contiguous") > 1


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
    assert scatter.inspect().llvm_ir.count("contiguous") > 2 or width % 16
