"""What work items add to places that they share with some others; on all archs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd

COUNTS = (0, 1, 33, 1000, 50_001)
ORDERS = ("random", "sorted", "runs of three", "one")


@pytest.fixture(autouse=True)
def start() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level="error")
    yield
    qd.reset()


def places(order: str, count: int, bins: int) -> Any:
    rng = np.random.default_rng(count)
    return {
        "random": lambda: rng.integers(0, bins, count),
        "sorted": lambda: np.sort(rng.integers(0, bins, count)),
        "runs of three": lambda: np.arange(count) // 3 % bins,
        "one": lambda: np.full(count, bins - 1),
    }[order]().astype(np.int32)


def numbers(count: int, dtype: Any) -> Any:
    """Whose sums are exact."""
    return np.random.default_rng(1).integers(-3, 20, count).astype(dtype.numpy)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", [qd.f32, qd.f64, qd.i32, qd.i64, qd.u64], ids=str)
def test_histograms(dtype: Any, order: str) -> None:
    small, medium = qd.field(dtype, 7), qd.field(dtype, (40, 5))
    x, at = qd.field(dtype, COUNTS[-1]), qd.field(qd.i32, COUNTS[-1])

    @qd.kernel
    def count_all(n: qd.i32, large: qd.types.ndarray(dtype, 1)):
        for i in range(n):
            if at[i] % 11 == 10:
                continue
            small[at[i] % 7] += x[i]
            medium[at[i] % 40, at[i] % 5] -= x[i]
            large[at[i]] += 2 * x[i]
        for i in range(n):
            large[at[i]] += x[i]

    for count in COUNTS:
        index, values = places(order, count, 3000), numbers(count, dtype)
        x.from_numpy(np.resize(values, COUNTS[-1]) if count else np.zeros(COUNTS[-1], dtype.numpy))
        at.from_numpy(np.resize(index, COUNTS[-1]) if count else np.zeros(COUNTS[-1], np.int32))
        small.fill(0)
        medium.fill(0)
        large = np.zeros(3000, dtype.numpy)
        count_all(count, large)
        kept = index % 11 != 10
        wanted = [np.zeros(7), np.zeros((40, 5)), np.zeros(3000)]
        signed = np.random.default_rng(1).integers(-3, 20, count).astype(float)
        np.add.at(wanted[0], index[kept] % 7, signed[kept])
        np.add.at(wanted[1], (index[kept] % 40, index[kept] % 5), -signed[kept])
        np.add.at(wanted[2], index[kept], 2 * signed[kept])
        np.add.at(wanted[2], index, signed)
        for found, want in zip((small.to_numpy(), medium.to_numpy(), large), wanted, strict=True):
            assert np.array_equal(found, want.astype(np.int64).astype(dtype.numpy)), count


@pytest.mark.parametrize("order", ORDERS)
def test_extremes_and_bits(order: str) -> None:
    index, values = places(order, 20_000, 500), numbers(20_000, qd.i32)

    @qd.kernel
    def collect(
        at: qd.types.ndarray(qd.i32, 1),
        x: qd.types.ndarray(qd.i32, 1),
        low: qd.types.ndarray(qd.f64, 1),
        high: qd.types.ndarray(qd.f32, 1),
        bits: qd.types.ndarray(qd.i32, 2),
    ):
        for i in at:
            qd.atomic_min(low[at[i]], x[i])
            qd.atomic_max(high[at[i]], x[i])
            qd.atomic_or(bits[at[i], 0], x[i])
            qd.atomic_xor(bits[at[i], 1], x[i])

    low, high = np.full(500, math.inf), np.full(500, -math.inf, np.float32)
    bits = np.zeros((500, 2), np.int32)
    collect(index, values, low, high, bits)
    for ufunc, found, start in (
        (np.minimum, low, math.inf),
        (np.maximum, high, -math.inf),
        (np.bitwise_or, bits[:, 0], 0),
        (np.bitwise_xor, bits[:, 1], 0),
    ):
        wanted = np.full(500, start, values.dtype if start == 0 else float)
        ufunc.at(wanted, index, values)
        assert np.array_equal(found, wanted)


def test_vectors_and_what_is_no_number() -> None:
    v = qd.Vector.field(3, qd.f32, 9)

    @qd.kernel
    def add(x: qd.types.ndarray(qd.f32, 1)):
        for i in x:
            v[i % 8] += qd.Vector([x[i], 1.0, -x[i]])

    x = np.ones(5000, np.float32)
    x[17] = math.nan
    add(x)
    found = v.to_numpy()
    assert math.isnan(found[1, 0]) and math.isnan(found[1, 2])
    found[1] = 625.0, 625.0, -625.0
    assert found[:8].tolist() == [[625.0, 625.0, -625.0]] * 8
    assert found[8].tolist() == [0.0] * 3


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("bins", [6, 3000])
def test_gradients_of_tables(order: str, bins: int) -> None:
    count = 20_000
    table = qd.field(qd.f64, bins, needs_grad=True)
    x, at = qd.field(qd.f64, count, needs_grad=True), qd.field(qd.i32, count)
    y = qd.field(qd.f64, count, needs_grad=True)

    @qd.kernel
    def look_up():
        for i in x:
            y[i] = table[at[i]] * x[i] + table[0]

    index, values = places(order, count, bins), numbers(count, qd.f64)
    at.from_numpy(index)
    x.from_numpy(values)
    table.from_numpy(np.arange(bins) * 0.5)
    y.grad.fill(2.0)
    look_up.grad()
    wanted = np.zeros(bins)
    np.add.at(wanted, index, 2 * values)
    wanted[0] += 2.0 * count
    assert np.array_equal(table.grad.to_numpy(), wanted)
    assert np.array_equal(x.grad.to_numpy(), index.astype(float))
    assert not y.grad.to_numpy().any()


SIZES = (1, 300, 2048, 2049, 4096, 4097, 8192, 8193)
"""Of which a block of a GPU has copies, or not: in 8, 16 and 32 KB."""


@pytest.mark.parametrize("order", ["random", "one"])
@pytest.mark.parametrize("dtype", [qd.f32, qd.i64], ids=str)
def test_arrays_of_any_size(dtype: Any, order: str) -> None:
    @qd.kernel
    def spread(
        n: qd.i32,
        at: qd.types.ndarray(qd.i32, 1),
        x: qd.types.ndarray(dtype, 1),
        once: qd.types.ndarray(dtype, 1),
        both: qd.types.ndarray(qd.types.vector(2, dtype), 2),
        often: qd.types.ndarray(dtype, 1),
    ):
        for i in range(n):
            once[at[i]] += x[i]
            both[0, at[i]] -= qd.Vector([x[i], 2 * x[i]])
        for i in range(n):
            for k in range(at[i], min(at[i] + 3, often.shape[0])):
                often[k] += x[i]

    for size in SIZES:
        field = qd.field(dtype, size)

        @qd.kernel
        def spread_to_field(
            n: qd.i32, at: qd.types.ndarray(qd.i32, 1), x: qd.types.ndarray(dtype, 1)
        ):
            for i in range(n):
                field[at[i]] += x[i]

        for count in (1, 1000, 100_003):
            at, x = places(order, count, size), numbers(count, dtype)
            once, both, often = (
                np.ones(shape, dtype.numpy) for shape in ((size,), (1, size, 2), (size,))
            )
            spread(count, at, x, once, both, often)
            spread_to_field(count, at, x)
            want = np.zeros(size)
            np.add.at(want, at, x)
            assert np.array_equal(once, want + 1), (size, count)
            assert np.array_equal(both[0], np.stack([1 - want, 1 - 2 * want], -1)), (size, count)
            window = sum(np.pad(want, (k, 0))[:size] for k in range(3))
            assert np.array_equal(often, window + 1), (size, count)
            assert np.array_equal(field.to_numpy(), want), (size, count)
            field.fill(0)


@pytest.mark.parametrize("size", SIZES)
def test_gradient_of_gathered_elements(size: int) -> None:
    count = 60_000
    table, y = (qd.ndarray(qd.f32, n, needs_grad=True) for n in (size, count))
    at = places("random", count, size)

    @qd.kernel
    def gather(
        table: qd.types.ndarray(qd.f32, 1),
        y: qd.types.ndarray(qd.f32, 1),
        at: qd.types.ndarray(qd.i32, 1),
    ):
        for i in y:
            y[i] = 3 * table[at[i]] * table[at[i]]

    table.fill(1.0)
    adjoint = numbers(count, qd.f32)
    y.grad.from_numpy(adjoint)
    gather.grad(table, y, at)
    want = np.zeros(size)
    np.add.at(want, at, 6 * adjoint)
    assert np.array_equal(table.grad.to_numpy(), want)
