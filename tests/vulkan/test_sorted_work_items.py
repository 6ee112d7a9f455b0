"""Work items that blocks sort by the trip counts of their loops: each runs once, as on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import driver
from octants.analysis.control_flow import trip_count_keys
from octants.codegen import sorted_work_items
from octants.codegen.structured import dispatch_functions
from tests.codegen import test_records as records
from tests.seeds import each_once
from tests.vulkan import compiled
from tests.vulkan.test_shared_sums import AS_A_GPU

ITEMS = 5000
"""Some windows of work items, and a part of one."""
Arrays = tuple[Any, ...]


def nest(x: Any, y: Any, n: Any, total: Any) -> Any:
    @qd.kernel
    def run():
        for i in x:
            v = x[i]
            for j in range(n[i]):
                for k in range(j):
                    v = qd.sin(v + 0.01 * k) * 0.9 + 0.05 * x[i]
            y[i] = v
            total[None] += 1

    return run


def ranges(x: Any, y: Any, n: Any, total: Any) -> Any:
    """The trip count is the difference of two loads, which may be negative."""

    @qd.kernel
    def run():
        for i in range(3, ITEMS):
            v = x[i]
            for j in range(n[i - 3], n[i]):
                for k in range(7):
                    v = qd.sin(v + 0.01 * (k + j)) * 0.9
                qd.atomic_add(total[None], 1)
            y[i] = v

    return run


def updates(x: Any, y: Any, n: Any, total: Any) -> Any:
    """The launch changes the trip counts of others while they are sorted."""

    @qd.kernel
    def run():
        for i in x:
            v, trips = x[i], n[i]
            n[i] = -trips
            for _ in range(trips):
                for k in range(7):
                    v = qd.sin(v + 0.01 * k) * 0.9
                total[None] += trips
            y[i] = v

    return run


def results(make: Callable[..., Any], trips: Any, *, grad: bool = True) -> list[Any]:
    x, y = (qd.field(qd.f32, ITEMS, needs_grad=True) for _ in "xy")
    n, total = qd.field(qd.i32, ITEMS), qd.field(qd.i32, ())
    x.from_numpy(np.linspace(-1, 1, ITEMS, dtype=np.float32))
    n.from_numpy(trips)
    y.grad.fill(1.0)
    run = make(x, y, n, total)
    run()
    found = [y.to_numpy(), total.to_numpy(), n.to_numpy()]
    if grad:
        run.grad()
        found.append(x.grad.to_numpy())
    return found


def lengths(kind: str) -> Any:
    numbers = np.random.default_rng(0).integers(0, 30, ITEMS)
    numbers = {"equal": np.full(ITEMS, 9), "random": numbers, "few": numbers * (numbers > 28)}[kind]
    numbers[::701] = 75 if kind == "few" else -3
    return numbers.astype(np.int32)


@pytest.fixture
def sortings(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The keys that work items are sorted by."""
    found: list[Any] = []
    write = sorted_work_items.write

    def see(f: Any, task: Any, key: Any, *rest: Any) -> None:
        found.append(key)
        write(f, task, key, *rest)

    monkeypatch.setattr(sorted_work_items, "write", see)
    monkeypatch.setattr(driver, "_artifacts", {})  # all kernels are compiled
    return found


@pytest.mark.parametrize(
    ("make", "kind"), each_once([nest, ranges, updates], ["equal", "random", "few"])
)
def test_each_work_item_runs_once(sortings: list[Any], make: Any, kind: str) -> None:
    grad = make is not updates
    qd.init(arch=qd.vulkan, offline_cache=False, log_level="error", vulkan_without=AS_A_GPU)
    found = results(make, lengths(kind), grad=grad)
    assert len(sortings) == 1 + grad
    qd.init(arch=qd.cpu, offline_cache=False)
    for own, right in zip(found, results(make, lengths(kind), grad=grad), strict=True):
        np.testing.assert_allclose(own, right, rtol=1e-4, atol=1e-5)


def test_refused_items_run_again(sortings: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Some need more memory for records than there is, and no other item runs twice."""
    monkeypatch.setattr(dispatch_functions, "_may_sort", lambda *_: True)
    monkeypatch.setattr(trip_count_keys, "_LONG", 0)
    kernel = compiled.OnVulkan(records.reversal(by_while=False))
    n = np.full(3000, 5, np.int32)
    n[[17, 2300]] = 5000
    data = {"n": n, "out": np.zeros(len(n))}
    kernel.run(data)
    assert sortings
    assert data["out"].tolist() == records.wanted(n)


def test_smaller_blocks_run_each_work_item(
    sortings: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA launches them where there is no memory for the records of a whole block."""
    facts = {"THREADS": 32, "SHARED_BYTES": 0, "write": sorted_work_items.write}
    monkeypatch.setattr(dispatch_functions, "sorted_work_items", SimpleNamespace(**facts))
    qd.init(arch=qd.vulkan, offline_cache=False, log_level="error", vulkan_without=AS_A_GPU)
    _, total, _ = results(nest, lengths("random"), grad=False)
    assert sortings and total == ITEMS


def test_a_cpu_does_not_sort(sortings: list[Any]) -> None:
    qd.init(arch=qd.vulkan, offline_cache=False, log_level="error")
    results(nest, lengths("random"))
    assert not sortings or not qd.driver.state.device.hardware.is_cpu
