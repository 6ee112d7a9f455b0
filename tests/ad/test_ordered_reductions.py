"""`init(deterministic=True)` where it takes many threads to keep a machine busy: partial sums.

A CPU is taken for such a machine here, so that the tasks can be seen to do the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.backends.cpu import CpuBackend
from octants.passes.sums import ordered_reductions
from tests.machines import pretend


@pytest.fixture(autouse=True)
def many(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    pretend(monkeypatch, CpuBackend, fills=1000)
    monkeypatch.setattr(ordered_reductions, "MOST", 1 << 13)  # loops have several iterations
    start()
    yield
    qd.reset()


def start(threads: int = 2) -> None:
    qd.init(
        arch=qd.cpu,
        deterministic=True,
        cpu_max_num_threads=threads,
        log_level="error",
        offline_cache=False,
    )


def tasks_of(kernel: Any, *arguments: Any, mode: str = "forward") -> list[str]:
    """How each task of a kernel runs, its name, and whether it keeps a fixed order."""
    text = kernel.inspect(*arguments, mode=mode).stages["finish"]
    heads = [line for line in text.splitlines() if line.startswith(("parallel", "serial"))]
    is_fixed = "'fixed_order': True"
    return [" ".join(head.split()[:2]) + " fixed_order" * (is_fixed in head) for head in heads]


@pytest.mark.parametrize("count", [0, 1, 100, 8192, 8193, 50_001])
def test_sums_of_all_kinds(count: int) -> None:
    rng = np.random.default_rng(count)
    values = rng.integers(-50, 50, count).astype(np.float64)
    places = rng.integers(0, 12, count).astype(np.int32)
    bins = qd.Vector.field(2, qd.f64, (4, 3))
    small = qd.field(qd.f32, 3)
    loss = qd.field(qd.f64, ())

    x, at = qd.field(qd.f64, max(1, count)), qd.field(qd.i32, max(1, count))

    @qd.kernel
    def scatter(n: qd.i32, k: qd.i32):
        for i in range(n):
            bins[at[i] // 3, at[i] % 3][0] += x[i]
            if x[i] > 0:
                bins[at[i] // 3, at[i] % 3][i % 2] -= 2.0
                small[k] += qd.cast(x[i], qd.f32)
            loss[None] += 2 * x[i]
            small[2] -= 1.0

    x.from_numpy(np.resize(values, max(1, count)))
    at.from_numpy(np.resize(places, max(1, count)))
    scatter(count, 1)
    wanted = np.zeros((12, 2))
    np.add.at(wanted, (places, 0), values)
    positive = values > 0
    np.add.at(wanted, (places[positive], np.arange(count)[positive] % 2), -2.0)
    assert np.array_equal(bins.to_numpy().reshape(12, 2), wanted)
    assert small.to_numpy().tolist() == [0, values[positive].sum(), -count]
    assert loss[None] == 2 * values.sum()
    names = tasks_of(scatter, count, 1)
    assert not any("fixed_order" in name for name in names)
    assert {"parallel @scatter_1_bins_primal", "serial @scatter_1_combine"} < set(names)


def test_the_bits_do_not_depend_on_threads() -> None:
    found = set()
    for threads in (1, 2, 5):
        start(threads)
        x = qd.field(qd.f32, 30_000, needs_grad=True)
        w = qd.field(qd.f32, 40, needs_grad=True)
        loss = qd.field(qd.f32, (), needs_grad=True)

        @qd.kernel
        def energy():
            for i in x:
                loss[None] += w[i * 7 % 40] * x[i] * w[3]  # noqa: B023

        rng = np.random.default_rng(0)
        x.from_numpy(rng.uniform(0, 1, 30_000).astype(np.float32))
        w.from_numpy(rng.uniform(0, 1, 40).astype(np.float32))
        with qd.ad.Tape(loss=loss):
            energy()
        found.add((loss[None], w.grad.to_numpy().tobytes(), x.grad.to_numpy().tobytes()))
        if threads == 1:
            values, weights = x.to_numpy().astype(float), w.to_numpy().astype(float)
            number = np.arange(30_000) * 7 % 40
            slope = np.zeros(40)
            np.add.at(slope, number, values * weights[3])
            slope[3] += (values * weights[number]).sum()
            np.testing.assert_allclose(w.grad.to_numpy(), slope, rtol=1e-5)
    assert len(found) == 1


def test_what_is_left_as_it_was() -> None:
    """Arrays of unknown extents, loops that record, products."""
    loss = qd.field(qd.f32, (), needs_grad=True)
    x = qd.field(qd.f32, 100, needs_grad=True)
    w = qd.field(qd.f32, 7, needs_grad=True)

    @qd.kernel
    def scatter(y: qd.types.ndarray(qd.f32, 1)):
        for i in x:
            y[i % 3] += x[i]

    @qd.kernel
    def walk(turns: qd.i32):
        for i in x:
            v = x[i]
            for _ in range(turns):
                v = qd.sin(v * w[i % 7])
            loss[None] += v

    @qd.kernel
    def multiply():
        for i in x:
            qd.atomic_mul(loss[None], x[i])

    y = np.zeros(3, np.float32)
    assert tasks_of(scatter, y) == ["parallel @scatter_1 fixed_order"]
    assert tasks_of(multiply) == ["serial @multiply_1"]
    assert any("fixed_order" in name for name in tasks_of(walk, 5, mode="reverse"))


def test_too_many_elements_for_partial_sums() -> None:
    x = qd.field(qd.f32, 1 << 21)

    @qd.kernel
    def scatter():
        for i in range(1000):
            x[i * 7 % 10] += 1.0

    assert tasks_of(scatter) == ["parallel @scatter_1 fixed_order"]


def test_failures_name_the_work_item() -> None:
    qd.init(arch=qd.cpu, deterministic=True, debug=True, log_level="error", offline_cache=False)
    total = qd.field(qd.f32, ())

    @qd.kernel
    def add(n: qd.i32):
        for i in range(n):
            assert i != 20_000, f"item {i}"
            total[None] += 1.0

    add(20_000)
    assert total[None] == 20_000
    with pytest.raises(qd.OctantsAssertionError, match="item 20000"):
        add(30_000)
        qd.sync()
