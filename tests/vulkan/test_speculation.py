"""Loops that run without slow paths at first: bit by bit what loops give that never do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.analysis.floats import slow_paths
from octants.launch.kernel import Kernel
from octants.mathlib.fast_by_estimates import FAR
from octants.types.scalars import DType
from tests.mathlib import bounds
from tests.mathlib.compiled_functions import bits, units
from tests.seeds import each_once
from tests.vulkan import compiled

Results = list[np.ndarray[Any, Any]]


@pytest.fixture(autouse=True)
def vulkan() -> Iterator[None]:
    compiled.device()
    yield
    qd.reset()


def both_ways(run: Callable[[], Results], **options: Any) -> tuple[Results, Results]:
    """What a program gives where loops speculate, and where they are not."""
    found = []
    for without in ("", "masks"):
        qd.init(arch=qd.vulkan, offline_cache=False, vulkan_without=without, **options)
        found.append(run())
    return found[0], found[1]


def assert_same_bits(run: Callable[[], Results], **options: Any) -> Results:
    found, wanted = both_ways(run, **options)
    for one, other in zip(found, wanted, strict=True):
        assert bits(one).tolist() == bits(other).tolist()
    return found


SIZES = [0.0, 1e-30, 1.0, 5999.9, 6000.1, 9.9e4, 1.01e5, 9.9e5, 1.01e6, 1e9, 1e30, np.inf, np.nan]
"""On both sides of all limits."""


@pytest.mark.parametrize(
    ("dtype", "fast_math"), each_once([qd.f32, qd.f64], [False, True]), ids=str
)
def test_angles_that_grow_in_a_loop(dtype: DType, fast_math: bool) -> None:
    """What is carried becomes too large for the short way in some turn of some work items."""

    def run() -> Results:
        x, y = (qd.field(dtype, shape=78, needs_grad=True) for _ in "xy")
        n = qd.field(qd.i32, shape=())

        @qd.kernel
        def grow():
            for i in x:
                v, w = x[i], x[i]
                for k in range(-1, n[None] - 1):
                    w = qd.cos(w) + 0.01 * k
                    v = qd.sin(v) + v * 3.0 + qd.tan(w) * 0.1
                y[i] = qd.sin(v) * w

        start = np.linspace(-1, 1, 78) * np.repeat([1.0, 1e-3, 3e3, 1e4, 1e5, 1e6], 13)
        start[::6] = [*SIZES]
        x.from_numpy(start.astype(dtype.numpy))
        found = []
        for n[None] in (0, 1, 3, 4, 15, 16, 17, 40):
            with qd.ad.Tape():
                grow()
                y.grad.fill(1.0)
            found += [y.to_numpy(), x.grad.to_numpy()]
        return found

    found = assert_same_bits(run, fast_math=fast_math)
    assert all(np.isfinite(each).any() for each in found)


def test_where_they_are_rare_in_a_branch_and_in_loops_in_a_loop() -> None:
    def run() -> Results:
        x, y = (qd.field(qd.f32, shape=100, needs_grad=True) for _ in "xy")
        steps = qd.field(qd.f32, shape=7)

        @qd.kernel
        def nest():
            for i in x:
                v = x[i]
                for j in range(i % 7):
                    for _ in range(j):
                        if v > 0.5:
                            v = qd.sin(v * 1e4 * (i % 2)) + 0.2
                        else:
                            v = v * 1.5 + steps[j] + 0.1
                    v += qd.cos(v)
                y[i] = v

        x.from_numpy(np.linspace(-1, 1, 100, dtype=np.float32))
        steps.from_numpy(np.linspace(-0.1, -0.07, 7, dtype=np.float32))
        nest()
        y.grad.fill(1.0)
        nest.grad()
        return [y.to_numpy(), x.grad.to_numpy()]

    value, gradient = assert_same_bits(run)
    assert np.abs(value).max() > 0.5
    assert np.abs(gradient).max() > 0.1


@pytest.mark.parametrize("dtype", [qd.f16, qd.f32, qd.f64], ids=str)
def test_a_look_before_the_loop_finds_what_is_huge(dtype: DType) -> None:
    """Operands that are bounded from the second turn on, and such as go up or down."""

    def run() -> Results:
        x, y, z = (qd.field(dtype, shape=30, needs_grad=True) for _ in "xyz")
        n = qd.field(qd.i32, shape=())

        @qd.kernel
        def both():
            for i in x:
                v = x[i]
                for _ in range(n[None]):
                    v = qd.sin(v) * 0.95 - 0.01
                y[i] = v
                s = x[i] * 0.0
                for k in range(-2, n[None] - 2):
                    s += qd.sin(x[i] * k) + 0.1 * qd.cos(0.5 - k * x[i])
                z[i] = s

        sizes = np.minimum(np.array([*SIZES, 2.4e3, 4e5]), np.finfo(dtype.numpy).max)
        x.from_numpy(np.concatenate([sizes, -sizes / 7]).astype(dtype.numpy))
        found = []
        for n[None] in (0, 1, 2, 3, 9, 16, 40):
            both()
            y.grad.fill(1.0)
            z.grad.fill(1.0)
            x.grad.fill(0.0)
            both.grad()
            found += [y.to_numpy(), z.to_numpy(), x.grad.to_numpy()]
        return found

    found = assert_same_bits(run)
    assert all(np.isfinite(each).any() for each in found)


@pytest.mark.parametrize("fast_math", [False, True])
@pytest.mark.parametrize("fn", ["sin", "cos"])
def test_they_are_as_exact_as_ever(fn: str, fast_math: bool) -> None:
    qd.init(arch=qd.vulkan, offline_cache=False, fast_math=fast_math)
    x, y = (qd.field(qd.f32, shape=(4, 3000)) for _ in "xy")
    wave = getattr(qd, fn)

    @qd.kernel
    def each():
        for i in range(3000):
            last = 0.0
            for k in range(8):
                last = wave(x[k % 4, i])
                if k >= 4:
                    y[k - 4, i] = last

    @qd.kernel
    def last_of():
        for i in range(3000):
            for j in qd.static(range(4)):
                last, sign = 0.0, 1.0
                for _ in range(9):
                    last = wave(x[j, i] * sign)
                    sign = -sign
                y[j, i] = last

    rng = np.random.default_rng(0)
    angles = rng.uniform(-1, 1, (4, 3000)) * np.array([10.0, 6100.0, 1e6, 1e30])[:, None]
    angles = angles.astype(np.float32)
    x.from_numpy(angles)
    exact = getattr(np, fn)(angles[:3].astype(np.longdouble)).astype(np.float64)
    bound = bounds.PLAIN[fn] if fast_math else bounds.BOUNDS[fn][0]
    is_ours = np.full(exact.shape, True)
    if fast_math and "estimates" in compiled.device().hardware.features:
        is_ours = np.abs(angles[:3]) >= FAR  # others: see test_estimates
    for kernel in (each, last_of):
        y.fill(0)
        kernel()
        assert units(y.to_numpy()[:3][is_ours], exact[is_ours]).max() <= bound
        assert 0.9 < np.abs(y.to_numpy()[3]).max() <= 1.0


def test_gradients_through_huge_angles_are_slopes() -> None:
    qd.init(arch=qd.vulkan, offline_cache=False, default_fp=qd.f64)
    x = qd.field(qd.f64, shape=40, needs_grad=True)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)

    @qd.kernel
    def run():
        for i in x:
            v = x[i]
            for k in range(12):
                v = 1.2 * qd.sin(v + (3e6 if k % 9 == i % 9 else 0.0)) + 0.3 * v
            loss[None] += v * v

    def value(at: np.ndarray) -> float:
        x.from_numpy(at)
        loss[None] = 0.0
        run()
        return float(loss[None])

    start, step = np.linspace(-2, 2, 40), 1e-5
    value(start)
    loss.grad[None] = 1.0
    run.grad()
    found = x.grad.to_numpy()
    assert np.abs(found).max() > 0.01
    for k in range(0, 40, 3):
        aside = np.zeros(40)
        aside[k] = step
        slope = (value(start + aside) - value(start - aside)) / (2 * step)
        assert found[k] == pytest.approx(slope, rel=1e-4, abs=1e-5)


# -- which loops --------------------------------------------------------------------------------


def is_speculated(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether any loop of a kernel is."""
    found: list[bool] = []
    decide = slow_paths.can_speculate

    def see(*asked: Any) -> bool:
        found.append(decide(*asked))
        return found[-1]

    with monkeypatch.context() as patch:
        patch.setattr(slow_paths, "can_speculate", see)
        kernel()
    return any(found)


def test_what_is_not_speculated(monkeypatch: pytest.MonkeyPatch) -> None:
    qd.init(arch=qd.vulkan, offline_cache=False, vulkan_without="")
    if not compiled.device().hardware.is_cpu:
        pytest.skip("it is not worth it on a GPU")
    x, y = (qd.field(qd.f32, shape=50) for _ in "xy")

    @qd.kernel
    def plain():
        for i in x:
            v = x[i]
            for k in range(9):
                v = qd.sin(v) + y[k]
            x[i] = v

    @qd.kernel
    def stores():
        for i in x:
            for k in range(9):
                y[k] = qd.sin(x[i])

    @qd.kernel
    def looks_up():
        for i in x:
            v = x[i]
            for _ in range(9):
                v = y[qd.cast(qd.sin(v) * 9.0, qd.i32) + 10]
            x[i] = v

    @qd.kernel
    def looks_up_at_times():
        for i in x:
            v = x[i]
            for k in range(9):
                if qd.sin(v) > 0.5:
                    v += y[k]
            x[i] = v

    @qd.kernel
    def counts():
        for i in x:
            v = x[i]
            for _ in range(9):
                for _ in range(qd.cast(qd.sin(v) * 9.0, qd.i32)):
                    v += 1.0
            x[i] = v

    @qd.kernel
    def roots():
        for i in x:
            v = x[i]
            for _ in range(9):
                v = qd.sqrt(v)
            x[i] = v

    @qd.kernel
    def twice():
        for i in x:
            v = x[i]
            for _ in range(2):
                v = qd.sin(v)
            x[i] = v

    assert is_speculated(plain, monkeypatch)
    for kernel in (stores, looks_up, looks_up_at_times, counts, roots, twice):
        assert not is_speculated(kernel, monkeypatch), kernel
