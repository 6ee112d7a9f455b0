"""What all items of a loop add to one place, or take the least or the most of; on all archs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd

COUNTS = (0, 1, 31, 33, 513, 1000, 70_001)
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "add": np.sum,
    "min": np.min,
    "max": np.max,
    "and": np.bitwise_and.reduce,
    "or": np.bitwise_or.reduce,
    "xor": np.bitwise_xor.reduce,
}


@pytest.fixture(autouse=True)
def start() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level="error")
    yield
    qd.reset()


def numbers(count: int, dtype: Any) -> Any:
    """Whose sums are exact."""
    drawn = np.random.default_rng(count).integers(-20, 100, count)
    return drawn.astype(dtype.numpy)


@pytest.mark.parametrize("dtype", [qd.f32, qd.f64, qd.i32, qd.i64, qd.u32, qd.f16, qd.i8], ids=str)
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_each_function(dtype: Any, fn: str) -> None:
    if dtype in (qd.f16, qd.f32, qd.f64) and fn in ("and", "or", "xor"):
        pytest.skip("of bits")
    update = getattr(qd, f"atomic_{fn}")

    @qd.kernel
    def collect(x: qd.types.ndarray(dtype, 1), k: qd.i32, places: qd.types.ndarray(dtype, 1)):
        for i in x:
            update(places[k], x[i])

    for count in COUNTS if dtype is not qd.f16 else COUNTS[:4]:
        x, places = numbers(count, dtype), np.full(3, 7, dtype.numpy)
        collect(x, 1, places)
        old, new = np.full(1, 7, dtype.numpy), FUNCTIONS[fn]
        wanted = new(np.append(old, x)) if fn != "add" else old[0] + x.sum(dtype=x.dtype)
        assert places.tolist() == [7, wanted, 7], count


def test_several_places_and_functions() -> None:
    @qd.kernel
    def collect(x: qd.types.ndarray(qd.f64, 1), bounds: qd.types.ndarray(qd.f64, 1), last: qd.i32):
        for i in x:
            bounds[0] += x[i]
            bounds[1] += x[i] * x[i]
            qd.atomic_min(bounds[2], x[i])
            qd.atomic_max(bounds[3], x[i])
            bounds[0] += 1.0

    for count in COUNTS[1:]:
        x = numbers(count, qd.f64)
        bounds = np.array([0.0, 0, math.inf, -math.inf, 5])
        collect(x, bounds, 4)
        wanted = [x.sum() + count, (x * x).sum(), x.min(), x.max(), 5]
        assert bounds.tolist() == wanted, count


def test_items_that_leave_early_and_conditions_within_others() -> None:
    total, hits = qd.field(qd.f64, ()), qd.field(qd.i32, 2)

    @qd.kernel
    def collect(x: qd.types.ndarray(qd.f64, 1)):
        for i in x:
            if x[i] < 0:
                continue
            for k in range(3):
                if k == 1 and x[i] > 50:
                    break
                total[None] += x[i]
            if x[i] > 10:
                hits[1] += 1
                if x[i] > 90:
                    hits[0] += 1

    for count in COUNTS:
        x = numbers(count, qd.f64)
        total[None], hits[0], hits[1] = 0.0, 0, 0
        collect(x)
        kept = x[x >= 0]
        assert total[None] == (kept * np.where(kept > 50, 1, 3)).sum()
        assert hits.to_numpy().tolist() == [(x > 90).sum(), (x > 10).sum()]


def test_nan_is_no_extreme() -> None:
    low, high = qd.field(qd.f32, ()), qd.field(qd.f32, ())

    @qd.kernel
    def collect(x: qd.types.ndarray(qd.f32, 1)):
        for i in x:
            qd.atomic_min(low[None], x[i])
            qd.atomic_max(high[None], x[i])

    x = np.full(1000, math.nan, np.float32)
    low[None] = high[None] = math.nan
    collect(x)
    assert math.isnan(low[None]) and math.isnan(high[None])
    x[700], x[3] = 3.0, -2.0
    collect(x)
    assert (low[None], high[None]) == (-2.0, 3.0)
    x[5] = math.inf
    collect(x)
    assert (low[None], high[None]) == (-2.0, math.inf)


def test_nothing_is_touched_where_nobody_adds() -> None:
    @qd.kernel
    def collect(x: qd.types.ndarray(qd.f32, 1), places: qd.types.ndarray(qd.f32, 1), k: qd.i32):
        for i in x:
            if x[i] > 1:
                places[k] += x[i]

    places = np.full(2, -0.0, np.float32)
    collect(np.zeros(1000, np.float32), places, 1 << 28)  # there is no such place
    collect(np.zeros(1000, np.float32), places, 1)
    assert np.signbit(places).all()


def test_blocks_of_odd_sizes() -> None:
    total = qd.field(qd.i64, ())

    def make(size: int) -> Any:
        @qd.kernel
        def collect(n: qd.i32):
            qd.loop_config(block_dim=size)
            for i in range(n):
                total[None] += i

        return collect

    for size in (1, 17, 32, 96, 1000):
        total[None] = 0
        make(size)(5000)
        assert total[None] == 5000 * 4999 // 2


# -- gradients ------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", COUNTS[1:])
def test_gradients_of_what_all_items_read(count: int) -> None:
    x = qd.field(qd.f64, count, needs_grad=True)
    w = qd.field(qd.f64, 4, needs_grad=True)
    y = qd.field(qd.f64, count, needs_grad=True)

    @qd.kernel
    def cubic(scale: qd.f64):
        for i in x:
            y[i] = ((w[0] * x[i] + w[1]) * x[i] + w[2]) * x[i] + scale * w[3]

    values = np.random.default_rng(0).integers(-3, 4, count).astype(np.float64)
    x.from_numpy(values)
    w.from_numpy(np.array([1.0, -2.0, 3.0, 0.5]))
    y.grad.fill(2.0)
    cubic.grad(3.0)
    wanted = [2 * (values**k).sum() for k in (3, 2, 1)] + [6.0 * count]
    assert w.grad.to_numpy().tolist() == wanted
    slope = 2 * (3 * values**2 - 4 * values + 3)
    assert np.array_equal(x.grad.to_numpy(), slope)


def test_the_gradient_of_a_place_that_an_argument_names() -> None:
    x = qd.ndarray(qd.f64, 3000, needs_grad=True)
    w = qd.ndarray(qd.f64, 5, needs_grad=True)
    loss = qd.ndarray(qd.f64, (), needs_grad=True)

    @qd.kernel
    def energy(
        x: qd.types.NDArray[qd.f64, 1],
        w: qd.types.NDArray[qd.f64, 1],
        k: qd.i32,
        loss: qd.types.NDArray[qd.f64, 0],
    ):
        for i in x:
            if x[i] > 0:
                loss[None] += w[k] * w[k] * x[i]

    values = np.arange(3000.0) - 1000
    x.from_numpy(values)
    w.fill(3.0)
    with qd.ad.Tape(loss=loss):
        energy(x, w, 2, loss)
    positive = values[values > 0]
    assert loss[None] == 9 * positive.sum()
    assert w.grad.to_numpy().tolist() == [0, 0, 6 * positive.sum(), 0, 0]
    assert np.array_equal(x.grad.to_numpy(), np.where(values > 0, 9.0, 0.0))


def test_gradients_of_loops_that_record() -> None:
    x = qd.field(qd.f64, 1000, needs_grad=True)
    w = qd.field(qd.f64, (), needs_grad=True)
    loss = qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel
    def walk(turns: qd.i32):
        for i in x:
            v = x[i]
            for _ in range(turns + i % 3):
                v = v * w[None] + v * v * 0.01
            loss[None] += v

    def value(at: float) -> float:
        loss[None], w[None] = 0.0, at
        walk(5)
        return float(loss[None])

    x.from_numpy(np.linspace(0.1, 1, 1000))
    step = 1e-6
    wanted = (value(0.9 + step) - value(0.9 - step)) / (2 * step)
    w[None], loss[None] = 0.9, 0.0
    with qd.ad.Tape(loss=loss):
        walk(5)
    assert abs(w.grad[None] - wanted) < 1e-6 * abs(wanted)


def test_places_that_memory_tells() -> None:
    """Also where the loop changes what tells them, and where no work item adds."""
    k, total = qd.field(qd.i32, 3), qd.field(qd.f64, 8)

    @qd.kernel
    def collect(x: qd.types.ndarray(qd.f64, 1)):
        for i in x:
            total[k[1] + 2] += x[i]
            if x[i] > 1000:
                total[k[2]] += x[i]

    @qd.kernel
    def move(n: qd.i32):
        for i in range(n):
            k[0] = i // n
            total[k[0]] += 1.0

    x = numbers(70_001, qd.f64)
    k[1], k[2] = 3, 1 << 28
    collect(x)
    move(1000)
    assert total.to_numpy().tolist() == [1000, 0, 0, 0, 0, x.sum(), 0, 0]
