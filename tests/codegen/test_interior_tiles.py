"""Lanes that add to neighbours at several distances, and tiles without a lane at a boundary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.analysis.control_flow.uniformity import Uniformity
from octants.analysis.sums.sliding_windows import find_windows
from octants.codegen.llvm.lanes.vector_capabilities import lanes_of_target
from octants.fuzz.backends import without_avx512
from octants.ir import ops
from tests.codegen.compiled import TARGET
from tests.ir.parser import parse
from tests.seeds import each_once

pytestmark = pytest.mark.skipif(
    not lanes_of_target(TARGET), reason="the vectors of this CPU are none to rely on"
)
SHAPES = [(3, 33), (2, 8), (5, 16), (1, 100), (6, 64), (9, 40)]
SHAPES += [(4, 1), (3, 2), (2, 7), (2, 17), (3, 127), (2, 129)]
NUMPY = {qd.f64: np.float64, qd.f32: np.float32, qd.i64: np.int64, qd.u32: np.uint32}


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    qd.reset()


def start(simd: str = "always", **chosen: Any) -> None:
    qd.init(arch=qd.cpu, simd=simd, log_level="error", **chosen)


@qd.kernel
def scatter(x: qd.types.ndarray(ndim=2), w: qd.types.ndarray(ndim=2)):
    n, m = w.shape[0], w.shape[1]
    for i, j in w:
        a = w[i, j]
        x[i, j] += a
        x[i, (j + 1) % m] += 2 * a
        x[i, (j - 2) % m] -= 3 * a
        x[i, qd.min(j + 3, m - 1)] += 4 * a
        x[(i + 1) % n, j] += 5 * a
        if j > 0:
            x[i, j - 1] += 6 * a
        if a % 3 == 0:
            x[i, qd.max(j - 1, 0)] += 7 * a


def scattered(x: np.ndarray[Any, Any], w: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    x, (n, m) = x.copy(), w.shape
    for i, j in np.ndindex(n, m):
        a = w[i, j]
        x[i, j] += a
        x[i, (j + 1) % m] += 2 * a
        x[i, (j - 2) % m] -= 3 * a
        x[i, min(j + 3, m - 1)] += 4 * a
        x[(i + 1) % n, j] += 5 * a
        if j > 0:
            x[i, j - 1] += 6 * a
        if a % 3 == 0:
            x[i, max(j - 1, 0)] += 7 * a
    return x


@pytest.mark.parametrize(
    ("dtype", "shape", "threads"),
    each_once(list(NUMPY), SHAPES, [1, 2]),
    ids=str,
)
def test_sums_are_those_of_one_work_item_at_a_time(
    dtype: Any, shape: tuple[int, int], threads: int
) -> None:
    start(cpu_max_num_threads=threads)
    rng = np.random.default_rng(0)
    x, w = (rng.integers(0, 9, shape).astype(NUMPY[dtype]) for _ in range(2))
    with np.errstate(over="ignore"):
        expected = scattered(x, w)
    scatter(x, w)
    np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("length", [1, 7, 8, 16, 24, 37, 64])
def test_nothing_outside_of_the_array_is_written(length: int) -> None:
    start(cpu_max_num_threads=1)

    @qd.kernel
    def add(x: qd.types.ndarray(ndim=1), w: qd.types.ndarray(ndim=1)):
        for i in w:
            x[i] += w[i]
            if i > 1:
                x[i - 2] += w[i]
            if i < w.shape[0] - 1:
                x[i + 1] += w[i]

    memory = np.full(length + 128, -0.0)
    x, w = memory[64 : 64 + length], np.arange(1.0, length + 1.0)
    add(x, w)
    expected = w.copy()
    expected[: max(0, length - 2)] += w[2:]
    expected[1:] += w[:-1]
    np.testing.assert_array_equal(x, expected)
    around = np.concatenate([memory[:64], memory[64 + length :]])
    assert np.signbit(around).all()  # zero added to -0.0 is 0.0


@pytest.mark.skipif("+avx2" not in TARGET.features, reason="it has code for AVX2")
def test_tiles_behind_a_partial_one_write_nothing_outside_of_the_array(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("octants.backends.cpu.host_target", lambda: without_avx512(TARGET))
    start(cpu_max_num_threads=1, offline_cache=False)

    @qd.kernel
    def add(x: qd.types.ndarray(ndim=1), w: qd.types.ndarray(ndim=1), begin: qd.i32):
        n = w.shape[0]
        for i in range(begin, begin + n):
            k = i - begin
            x[k] += w[k]
            x[qd.min(k + 1, n - 1)] += 2 * w[k]
            if k >= 2:
                x[k - 2] -= 3 * w[k]

    w = np.arange(1.0, 38.0, dtype=np.float32)
    expected = w.copy()
    expected[1:] += 2 * w[:-1]
    expected[-1] += 2 * w[-1]
    expected[:-2] -= 3 * w[2:]
    for begin in range(8):
        memory = np.full(w.size + 128, -0.0, np.float32)
        x = memory[64 : 64 + w.size]
        add(x, w, begin)
        np.testing.assert_array_equal(x, expected)
        assert np.signbit(np.concatenate([memory[:64], memory[64 + w.size :]])).all()


def test_distances_hold_in_all_lanes_where_vectors_are_not_known_to_be_lines() -> None:
    start(cpu_max_num_threads=1)

    @qd.kernel
    def add(x: qd.types.ndarray(ndim=1), w: qd.types.ndarray(ndim=1)):
        n = w.shape[0]
        for i in w:
            x[i] += w[i]
            x[qd.min((i << 1) - i + 2, n - 3)] += 3 * w[i]

    w = np.arange(1.0, 68.0)
    x, expected = np.zeros_like(w), w.copy()
    np.add.at(expected, np.minimum(np.arange(67) + 2, 64), 3 * w)
    add(x, w)
    np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("simd", ["auto", "always"])
def test_gradients_of_stencils_are_those_of_single_work_items(simd: str) -> None:
    n = 37
    found = []
    for each in ("never", simd):
        start(each, default_fp=qd.f64, cpu_max_num_threads=1)
        x, y = (qd.field(qd.f64, (n, n), needs_grad=True) for _ in range(2))
        loss = qd.field(qd.f64, (), needs_grad=True)

        @qd.kernel
        def step(x: qd.template(), y: qd.template()):
            for i, j in qd.ndrange(n, n):
                e, w = x[i, (j + 1) % n], x[i, (j + n - 1) % n]
                north = x[qd.max(i - 1, 0), j] * e
                y[i, j] = 0.9 * x[i, j] * w + 0.1 * north - 0.2 * e * w

        @qd.kernel
        def total(y: qd.template()):
            for i, j in y:
                loss[None] += qd.sin(y[i, j])

        x.from_numpy(np.random.default_rng(1).uniform(-1.0, 1.0, (n, n)))
        with qd.ad.Tape(loss):
            step(x, y)
            total(y)
        found.append(x.grad.to_numpy())
        qd.reset()
    np.testing.assert_allclose(found[1], found[0], rtol=1e-12, atol=1e-14)


def test_sums_under_a_guard_slide_within_the_array() -> None:
    start(cpu_max_num_threads=1, default_fp=qd.f64)
    n = 70

    @qd.kernel
    def add(x: qd.types.ndarray(ndim=1), w: qd.types.ndarray(ndim=1)):
        for i in range(-9, n + 9):
            if i >= 1 and i < n - 1:
                x[i - 1] += w[i]
                x[i] += 2 * w[i]
                x[i + 1] += 3 * w[i]

    memory, w = np.full(n + 128, -0.0), np.arange(1.0, n + 1.0)
    x, inner, expected = memory[64 : 64 + n], w[1:-1], np.zeros(n)
    for k in range(3):
        expected[k : k + n - 2] += (k + 1) * inner
    add(x, w)
    np.testing.assert_array_equal(x, expected)
    assert np.signbit(np.concatenate([memory[:64], memory[64 + n :]])).all()
    assert "beside" in add.inspect(x, w).llvm_ir


def test_sums_slide_beside_the_element_of_the_work_item() -> None:
    start(cpu_max_num_threads=1)

    @qd.kernel
    def add(x: qd.types.ndarray(ndim=1), w: qd.types.ndarray(ndim=1)):
        for i in w:
            x[i] += w[i]
            x[(i + 1) % w.shape[0]] += 2 * w[i]

    w = np.arange(1.0, 68.0)
    x = np.zeros_like(w)
    add(x, w)
    np.testing.assert_array_equal(x, w + 2 * np.roll(w, 1))
    assert "beside" in add.inspect(x, w).llvm_ir


def test_overlapping_vectors_are_added_once() -> None:
    start(default_fp=qd.f32)
    x, y = (qd.field(qd.f32, 1000, needs_grad=True) for _ in range(2))

    @qd.kernel
    def diffuse():
        for i in range(1, 999):
            y[i] = 0.5 * x[i] + 0.25 * (x[i - 1] + x[i + 1])

    @qd.kernel
    def scale():
        for i in range(1, 999):
            y[i] = 0.5 * x[i]

    assert "beside" in diffuse.inspect(mode="reverse").llvm_ir
    assert "beside" not in scale.inspect(mode="reverse").llvm_ir


STENCIL = """\
kernel @k
array @n: i32, 0, argument, () [primal]
array @x: f32, 2, ndarray, () [primal, adjoint]
array @y: f32, 1, ndarray, () [primal]
parallel @k_0 {
  %0: i32 = constant<0>()
  %1: i32 = shape<@y, 0>()
  yield(%0, %1)
} { (%2: i32):
  %3: i32 = constant<1>()
  %4: i32 = load<@n, primal>()
  %5: i32 = binary<add>(%2, %3)
  %6: i32 = binary<add>(%2, %4)
  %7: i32 = binary<sub>(%6, %3)
  %8: i32 = binary<mod>(%7, %4)
  %9: i32 = constant<40>()
  %10: i32 = binary<add>(%2, %9)
  %11: f32 = load<@y, primal>(%2)
  %12: f32 = atomic<add, @x, adjoint>(%11, %4, %5)
  %13: f32 = atomic<add, @x, adjoint>(%11, %4, %8)
  %14: f32 = atomic<sub, @x, adjoint>(%11, %4, %2)
  %15: f32 = atomic<add, @x, adjoint>(%11, %3, %5)
  %16: f32 = atomic<add, @x, adjoint>(%11, %4, %10)
  yield()
}
"""


def test_windows_have_updates_of_one_row_at_small_distances() -> None:
    (task,) = parse(STENCIL).tasks
    updates = [op for op in task.body.ops if isinstance(op, ops.Atomic)]
    windows = find_windows(task, updates, Uniformity(task.body), task.body.args, 8)
    (window,) = windows
    at = window.distances[window.anchor]
    assert [window.distances.get(op) for op in updates] == [at, at - 2, at - 1, None, None]
    assert window.bounded == {updates[1]}
