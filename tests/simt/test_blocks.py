"""Blocks of work items: barriers, arrays that they share, sums and scans, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from octants.lang.directives import loop_config, ndrange, static, template
from octants.lang.library_function_marks import library_function
from octants.lang.simt import block, grid
from octants.target import Blocks
from octants.types.matrix_types import vector
from octants.types.matrix_values import Vector
from octants.types.parameter_annotations import NdarrayAnnotation as Array
from octants.types.scalars import f64, i32, i64
from tests.frontend.frontend_programs import func
from tests.simt.kernels import run

rng = np.random.default_rng(5)
WHOLE, REST = 192, 150  # work items: three blocks of 64, and two with a shorter one


def blocks_of(x: np.ndarray, size: int = 64) -> list[np.ndarray]:
    return [x[k : k + size] for k in range(0, len(x), size)]


def tree_sum(x: Array, y: Array):
    loop_config(block_dim=64)
    for i in x:
        pad = block.SharedArray(64, f64)
        thread, count = block.thread_idx(), block.size()
        pad[thread] = x[i]
        block.sync()
        for k in static(range(6)):
            if thread % (2 << k) == 0 and thread + (1 << k) < count:
                pad[thread] = pad[thread] + pad[thread + (1 << k)]
            block.sync()
        if thread == 0:
            y[i // 64] = pad[0]


@pytest.mark.parametrize("count", [WHOLE, REST, 1])
def test_a_sum_in_shared_memory(count):
    x = rng.random(count)
    y = np.zeros(-(-count // 64))
    run(tree_sum, x, y)
    np.testing.assert_allclose(y, [part.sum() for part in blocks_of(x)])


def halving_sum(x: Array, y: Array):
    loop_config(block_dim=64)
    for i in x:
        pad = block.SharedArray((64,), f64)
        thread = block.thread_idx()
        pad[thread] = x[i]
        block.sync()
        step = 32
        while step > 0:
            if thread < step:
                pad[thread] += pad[thread + step]
            block.sync()
            step //= 2
        y[i] = pad[0]


def test_a_sum_with_barriers_in_a_loop():
    x = rng.random(WHOLE)
    y = np.zeros(WHOLE)
    run(halving_sum, x, y)
    np.testing.assert_allclose(y, np.repeat([part.sum() for part in blocks_of(x)], 64))


def transpose(x: Array, y: Array):
    loop_config(block_dim=64)
    for i in range(x.shape[0] * x.shape[1]):
        tile = block.SharedArray((8, 8), i32)
        thread = block.thread_idx()
        row, column = i // 64 // (x.shape[1] // 8) * 8, i // 64 % (x.shape[1] // 8) * 8
        tile[thread // 8, thread % 8] = x[row + thread // 8, column + thread % 8]
        block.sync()
        y[column + thread // 8, row + thread % 8] = tile[thread % 8, thread // 8]


def test_a_transposition_through_shared_memory():
    x = rng.integers(0, 1000, (24, 16)).astype(np.int32)
    y = np.zeros((16, 24), np.int32)
    run(transpose, x, y)
    np.testing.assert_array_equal(y, x.T)


def prefix_sum(x: Array, y: Array):
    loop_config(block_dim=64)
    for i in x:
        sums = block.SharedArray((2, 64), i64)
        thread = block.thread_idx()
        sums[0, thread] = x[i]
        block.sync()
        now = 0
        for k in range(6):
            before = thread - (1 << k)
            sums[1 - now, thread] = sums[now, thread]
            if before >= 0:
                sums[1 - now, thread] += sums[now, before]
            now = 1 - now
            block.sync()
        y[i] = sums[now, thread]


@pytest.mark.parametrize("count", [WHOLE, REST])
def test_a_prefix_sum_by_two_buffers(count):
    x = rng.integers(-1000, 1000, count)
    y = np.zeros_like(x)
    run(prefix_sum, x, y)
    np.testing.assert_array_equal(y, np.concatenate([np.cumsum(part) for part in blocks_of(x)]))


def histogram(x: Array, y: Array):
    loop_config(block_dim=64)
    for i in x:
        counts = block.SharedArray(10, i32)
        thread = block.thread_idx()
        if thread < 10:
            counts[thread] = 0
        block.sync()
        counts[x[i]] += 1
        block.sync()
        if thread < 10:
            y[thread] += counts[thread]


def test_atomics_on_shared_memory():
    x = rng.integers(0, 10, WHOLE).astype(np.int32)
    y = np.zeros(10, np.int32)
    run(histogram, x, y)
    np.testing.assert_array_equal(y, np.bincount(x, minlength=10))


def through_memory(x: Array, y: Array):
    """Work items hand on values through an array of the kernel, behind a barrier."""
    loop_config(block_dim=32)
    for i in x:
        mine = x[i]
        x[i] = mine + 1
        block.sync()
        y[i] = x[i ^ 1]
        block.sync()
        x[i] = mine
        block.mem_fence()
        grid.mem_fence()


def test_barriers_order_what_is_in_memory():
    x = np.arange(64.0)
    y = np.zeros(64)
    run(through_memory, x, y)
    np.testing.assert_array_equal(y, (np.arange(64) ^ 1) + 1)


def numbers(y: Array, first: i32, last: i32):
    loop_config(block_dim=48)
    for i in range(first, last):
        y[i, 0] = block.thread_idx()
        y[i, 1] = block.global_thread_idx()
        y[i, 2] = block.size()
        y[i, 3] = block.dim()


@pytest.mark.parametrize(("first", "last"), [(0, 96), (3, 120), (7, 7)])
def test_numbers_of_work_items(first, last):
    y = np.full((130, 4), -1, np.int32)
    run(numbers, y, first, last)
    for i in range(first, last):
        number = i - first
        size = min(48, last - first - number // 48 * 48)
        assert list(y[i]) == [number % 48, number, size, 48]
    assert (y[last:] == -1).all()


def wide_loop(y: Array):
    loop_config(block_dim=4)
    for i in range(i64(2**40), i64(2**40) + 10):
        y[i - 2**40] = block.thread_idx() * 100 + block.global_thread_idx()


def test_loops_of_wide_indices():
    y = np.zeros(10, np.int32)
    run(wide_loop, y)
    np.testing.assert_array_equal(y, [k % 4 * 100 + k for k in range(10)])


def of_vectors(x: Array, y: Array):
    loop_config(block_dim=8)
    for i, j in ndrange(4, 4):
        pairs = block.SharedArray(8, vector(2, f64))
        pairs[block.thread_idx()] = Vector([x[i, j], 2 * x[i, j]])
        block.sync()
        other = pairs[block.thread_idx() ^ 1]
        y[i, j] = other[0] + 10 * other.y


def test_shared_arrays_of_vectors_in_a_nest():
    x = rng.random((4, 4))
    y = np.zeros((4, 4))
    run(of_vectors, x, y)
    np.testing.assert_allclose(y.reshape(-1), 21 * x.reshape(-1)[np.arange(16) ^ 1])


def sums_and_scans(x: Array, y: Array):
    loop_config(block_dim=64)
    for i in x:
        y[i, 0] = block.reduce_add(x[i], 64, f64)
        y[i, 1] = block.reduce_all_min(x[i], 64, f64)
        y[i, 2] = block.reduce_max(x[i], 64, f64)
        y[i, 3] = block.inclusive_add(x[i], 64, f64)
        y[i, 4] = block.inclusive_min(x[i], 64, f64)
        y[i, 5] = block.inclusive_max(x[i], 64, f64)
        y[i, 6] = block.exclusive_add(x[i], 64, f64)
        y[i, 7] = block.exclusive_min(x[i], 64, f64)
        y[i, 8] = block.exclusive_max(x[i], 64, f64)
        y[i, 9] = block.sync_count_nonzero(x[i] > 0.5)
        y[i, 10] = block.sync_any_nonzero(x[i] > 0.99)
        y[i, 11] = block.sync_all_nonzero(x[i] > 0.01)


def expected(x: np.ndarray) -> np.ndarray:
    """The columns of `sums_and_scans` for one block."""
    low, high = np.minimum.accumulate(x), np.maximum.accumulate(x)
    columns = [
        np.full(len(x), x.sum()),
        np.full(len(x), x.min()),
        np.full(len(x), x.max()),
        np.cumsum(x),
        low,
        high,
        np.concatenate([[0], np.cumsum(x)[:-1]]),
        np.concatenate([[np.inf], low[:-1]]),
        np.concatenate([[-np.inf], high[:-1]]),
        np.full(len(x), (x > 0.5).sum()),
        np.full(len(x), (x > 0.99).any()),
        np.full(len(x), (x > 0.01).all()),
    ]
    return np.stack(columns, 1)


@pytest.mark.parametrize("count", [128, 101, 65])
@pytest.mark.parametrize("lanes", [8, 32, 64])
def test_sums_and_scans_of_blocks(count, lanes):
    x = rng.random(count)
    y = np.zeros((count, 12))
    run(sums_and_scans, x, y, blocks=Blocks(subgroup_size=lanes))
    np.testing.assert_allclose(y, np.concatenate([expected(part) for part in blocks_of(x)]))


@library_function
def after(a, b):
    """Two maps x -> a[0] * x + a[1], one after the other: associative, not commutative."""
    return Vector([b[0] * a[0], b[0] * a[1] + b[1]])


def composition(x: Array, y: Array):
    loop_config(block_dim=40)
    for i in range(x.shape[0]):
        step = Vector([x[i, 0], x[i, 1]])
        whole = block.reduce(step, 40, after, vector(2, f64))
        so_far = block.inclusive_scan(step, 40, after, vector(2, f64))
        before = block.exclusive_scan(step, 40, after, Vector([1.0, 0.0]), vector(2, f64))
        for k in static(range(2)):
            y[i, k], y[i, 2 + k], y[i, 4 + k] = whole[k], so_far[k], before[k]


def test_a_function_of_ones_own_keeps_the_order():
    x = rng.uniform(0.8, 1.2, (90, 2))
    y = np.zeros((90, 6))
    run(composition, x, y)
    for start in range(0, 90, 40):
        a, b = 1.0, 0.0
        part = range(start, min(start + 40, 90))
        for i in part:
            np.testing.assert_allclose(y[i, 4:], [a, b])
            a, b = x[i, 0] * a, x[i, 0] * b + x[i, 1]
            np.testing.assert_allclose(y[i, 2:4], [a, b])
        np.testing.assert_allclose(y[part, :2], np.tile([a, b], (len(part), 1)))


def undefined_at_first(y: Array):
    loop_config(block_dim=2)
    for i in range(4):
        pad = block.SharedArray(2, f64)
        y[i] = pad[block.thread_idx()]
        block.sync()
        pad[block.thread_idx()] = 1.0


def test_each_block_has_an_array_of_its_own():
    y = np.zeros(4)
    run(undefined_at_first, y)
    assert np.isnan(y).all()


def without_a_size(y: Array):
    for i in range(200):
        y[i] = block.size()


def test_blocks_have_a_size_by_default():
    y = np.zeros(200, np.int32)
    run(without_a_size, y)
    np.testing.assert_array_equal(y, [128] * 128 + [72] * 72)


@func
def neighbour(value):
    pad = block.SharedArray(16, f64)
    pad[block.thread_idx()] = value
    block.sync()
    return pad[(block.thread_idx() + 1) % 16]


def through_functions(x: Array, y: Array):
    loop_config(block_dim=16)
    for i in x:
        y[i] = neighbour(x[i]) + 10 * neighbour(2 * x[i])


def test_functions_make_arrays_of_their_own():
    x = rng.random(32)
    y = np.zeros(32)
    run(through_functions, x, y)
    after_it = np.roll(x.reshape(2, 16), -1, axis=1).reshape(-1)
    np.testing.assert_allclose(y, 21 * after_it)


@func
def first_sums(y: template, x: template):
    loop_config(block_dim=16)
    for i in x:
        total = block.reduce_add(x[i], 16, f64)
        if i % 16 == 0:
            y[i // 16] = total


@func
def passed_on(y: template, x: template):
    first_sums(y, x)


def through_references(x: Array, y: Array):
    passed_on(y, x)


def test_functions_may_pass_arrays_on_by_reference():
    x = rng.random(32)
    y = np.zeros(2)
    run(through_references, x, y)
    np.testing.assert_allclose(y, x.reshape(2, 16).sum(1))


def several_loops(x: Array, y: Array):
    loop_config(block_dim=16)
    for i in x:
        y[i] = block.reduce_add(x[i], 16, f64)
    total = 0.0
    for i in x:
        total += y[i]
    loop_config(block_dim=8)
    for i in x:
        y[i] = block.reduce_add(x[i], 8, f64) + total


def test_loops_with_blocks_and_without_in_one_kernel():
    x = rng.random(32)
    y = np.zeros(32)
    run(several_loops, x, y)
    np.testing.assert_allclose(y, np.repeat(x.reshape(4, 8).sum(1), 8) + 16 * x.sum())
