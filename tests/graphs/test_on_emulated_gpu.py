"""The same on a fake GPU, whose driver has graphs."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.runtime.capture import captures
from octants.runtime.gpu import record_buffer_growth
from tests.codegen.on_emulated_gpu import AddressableCuda, emulated_gpu
from tests.graphs import test_graphs, test_growing_records, test_races
from tests.graphs.test_graphs import SIZE, World, differences

_NAMES = [name for name in vars(test_graphs) if name.startswith("test_")]
_ELSEWHERE = (
    "test_numpy_arrays_are_used_where_they_are",
    "test_what_a_gradient_needs_of_numpy_arrays_is_that_of_the_replay",
    "test_tensors_of_torch",  # which are in the memory of a GPU that is none of a fake driver
)


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[AddressableCuda]:
    monkeypatch.setattr(qd, "cpu", qd.cuda)
    monkeypatch.setattr(test_graphs, "DISCRETE", True)
    monkeypatch.setattr(record_buffer_growth, "_FIRST_CAPACITY", 16)
    with emulated_gpu(total=1 << 28) as fake:
        qd.init(arch=qd.cuda)
        yield fake
        assert not fake.problems
        assert not captures


for _name in _NAMES:
    if _name not in _ELSEWHERE:
        globals()[_name] = getattr(test_graphs, _name)
for _name in vars(test_growing_records):
    if _name.startswith("test_"):
        globals()[_name] = getattr(test_growing_records, _name)


def test_a_replay_is_one_launch(fake: AddressableCuda) -> None:
    world = World()
    with qd.graph.capture() as graph:
        world.differentiate()
    graph()
    qd.sync()
    fake.calls.clear()
    for _ in range(3):
        graph()
    calls = {name: count for name, count in fake.calls.items() if not name.startswith("cuCtx")}
    assert calls == {"cuGraphLaunch": 3}
    found = world.results()
    start = np.linspace(0.1, 0.9, SIZE)
    assert np.allclose(found[2], differences(world, start), atol=1e-7)


def test_launches_in_a_graph_start_early_behind_other_launches(fake: AddressableCuda) -> None:
    x, y = (qd.field(qd.f32, SIZE) for _ in "xy")

    @qd.kernel
    def double():
        for i in x:
            y[i] = 2.0 * x[i]

    @qd.kernel
    def back():
        for i in x:
            x[i] = y[i]

    def run() -> None:
        double()
        back()
        y.fill(0)
        double()
        back()

    x.fill(1.0)
    with qd.graph.capture() as graph:
        run()
    graph()
    assert x.to_numpy().tolist() == [16.0] * SIZE  # the capture ran it, too
    assert [re.sub("_task.*", "", name) for name in fake.early_starts] == ["octants_back"] * 2


def test_drivers_without_early_starts() -> None:
    with emulated_gpu(driver=12020) as fake:
        qd.init(arch=qd.cuda)
        world = World()
        with qd.graph.capture() as graph:
            world.differentiate()
        graph()
        world.results()
        assert "cuGraphLaunch" in fake.calls
        assert not fake.early_starts


class Chains:
    """Work items whose loops memory bounds."""

    def __init__(self) -> None:
        self.x = qd.field(qd.f32, SIZE, needs_grad=True)
        self.y = qd.field(qd.f32, SIZE, needs_grad=True)
        self.n = qd.field(qd.i32, SIZE)
        self.n.fill(3)
        self.x.from_numpy(np.linspace(0.2, 0.9, SIZE, dtype=np.float32))

    @qd.kernel
    def chain(self):
        for i in self.x:
            v = self.x[i]
            for _ in range(self.n[i]):
                v = qd.sin(v) * 1.1
            self.y[i] = v

    def differentiate(self) -> None:
        self.x.grad.fill(0)
        self.y.grad.fill(1)
        self.chain()
        self.chain.grad()

    def expected(self) -> np.ndarray[Any, Any]:
        slopes = []
        for v, n in zip(self.x.to_numpy().astype(float), self.n.to_numpy(), strict=True):
            slope = 1.0
            for _ in range(n):
                v, slope = np.sin(v) * 1.1, slope * np.cos(v) * 1.1
            slopes.append(slope)
        return np.array(slopes)


def test_work_items_that_the_device_counts(fake: AddressableCuda) -> None:
    x, y = (qd.field(qd.f32, 100, needs_grad=True) for _ in range(2))
    count = qd.field(qd.i32, ())

    @qd.kernel
    def chain(trips: qd.i32):
        for i in range(count[None]):
            v = x[i]
            for _ in range(trips):
                v = v * v + 0.1
            y[i] = v

    def differentiate() -> None:
        x.grad.fill(0)
        y.grad.fill(1)
        chain(60)
        chain.grad(60)

    x.fill(0.3)
    count[None] = 7
    with qd.graph.capture() as graph:
        differentiate()
    for items in (3, 100, 0, 40):
        count[None] = items
        graph()
        found = x.grad.to_numpy()
        differentiate()
        np.testing.assert_allclose(found, x.grad.to_numpy(), rtol=1e-6)
        assert (found != 0).sum() == items


def test_what_cannot_be_planned_runs_launch_by_launch(fake: AddressableCuda) -> None:
    x, y = (qd.field(qd.f32, 100, needs_grad=True) for _ in range(2))
    count = qd.field(qd.i32, ())

    @qd.kernel
    def chain(k: qd.i32):
        for i in range(count[None]):
            v = x[i]
            for _ in range(i * k):
                v = v * v + 0.1
            y[i] = v

    def differentiate() -> None:
        x.grad.fill(0)
        y.grad.fill(1)
        chain(2)
        chain.grad(2)

    x.fill(0.3)
    with qd.graph.capture() as graph:
        differentiate()
    for items in (3, 100, 0, 40):
        count[None] = items
        graph()
        found = x.grad.to_numpy()
        differentiate()
        np.testing.assert_allclose(found, x.grad.to_numpy(), rtol=1e-6)
        assert not graph.is_one_launch


def test_what_has_run_at_last_becomes_one_launch(fake: AddressableCuda) -> None:
    x, y = (qd.field(qd.f32, 100, needs_grad=True) for _ in range(2))
    count = qd.field(qd.i32, ())

    @qd.kernel
    def chain(k: qd.i32):
        for i in range(count[None]):
            v = x[i]
            for _ in range(k):
                v = v * v + 0.1
            y[i] = v

    def differentiate() -> None:
        x.grad.fill(0)
        y.grad.fill(1)
        chain(70)
        chain.grad(70)

    x.fill(0.3)
    with qd.graph.capture() as graph:
        differentiate()
    assert not graph.is_one_launch
    for items in (5, 100, 0, 40):
        count[None] = items
        graph()
        found = x.grad.to_numpy()
        differentiate()
        np.testing.assert_allclose(found, x.grad.to_numpy(), rtol=1e-6)
        assert graph.is_one_launch


def test_large_parameter_blocks(fake: AddressableCuda) -> None:
    many = qd.types.vector(600, qd.f32)
    x = qd.field(qd.f32, 600)

    @qd.kernel
    def put(v: many, k: qd.i32):
        for i in x:
            x[i] = v[k] + qd.random()

    values = np.arange(600, dtype=np.float32)
    with qd.graph.capture() as graph:
        put(values, 5)
    first = x.to_numpy()
    graph()
    second = x.to_numpy()
    assert (first != second).any()
    for found in (first, second):
        assert ((found >= 5) & (found < 6)).all()


def test_graphs_in_streams(fake: AddressableCuda) -> None:
    x = qd.field(qd.i32, 4)

    @qd.kernel
    def add():
        for i in x:
            x[i] += 1

    with qd.graph.capture() as graph:
        add()
    stream = qd.driver.device().create_stream()
    for _ in range(3):
        with qd.driver.device().using(stream):
            graph()
        graph()
    assert x.to_numpy().tolist() == [7] * 4


def test_graphs_are_given_back(fake: AddressableCuda) -> None:
    world = World()
    qd.sync()
    for _ in range(5):
        with qd.graph.capture() as graph:
            world.differentiate()
            qd.ndarray(qd.f32, 100_000)
        graph()
        assert graph.is_one_launch
        before = fake.used
    del graph
    gc.collect()
    keep = qd.ndarray(qd.f32, 4)  # memory is freed when there is more to be had
    qd.sync()
    assert fake.calls["cuGraphExecDestroy"] == 5
    assert fake.used < before - 390_000
    assert keep.to_numpy().tolist() == [0] * 4


def test_memory_that_is_refused(fake: AddressableCuda) -> None:
    world = World()
    world.differentiate()
    fake.fail("cuGraphInstantiateWithFlags", 2)
    with pytest.raises(qd.OctantsRuntimeError), qd.graph.capture() as graph:
        world.differentiate()
    with pytest.raises(qd.OctantsRuntimeError, match="has failed"):
        graph()
    world.differentiate()
    start = np.linspace(0.1, 0.9, SIZE)
    assert np.allclose(world.results()[2], differences(world, start), atol=1e-7)


def test_writes_of_rows(fake: AddressableCuda) -> None:
    pair = qd.types.struct(a=qd.f32, b=qd.f32)
    both = pair.field(shape=5)
    with qd.graph.capture() as graph:
        both.a.from_numpy(np.arange(5, dtype=np.float32))
        both.b.copy_from(both.a)
        both.a.fill(0)
    both.a.fill(7)
    both.b.fill(8)
    graph()
    assert both.a.to_numpy().tolist() == [0] * 5
    assert both.b.to_numpy().tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("graph", [False, True])
def test_a_kernel_of_many_tasks_is_one_launch(fake: AddressableCuda, graph: bool) -> None:
    """If its arguments change; those that repeat have a graph of their own."""
    x = qd.field(qd.f32, 50)

    @qd.kernel(graph=graph)
    def many(s: qd.f32):
        for i in x:
            x[i] += s
        for i in x:
            x[i] *= 2
        for i in x:
            x[i] -= s
        for i in x:
            x[i] += 1
        for i in x:
            x[i] += s
        for i in x:
            x[i] *= 2
        for i in x:
            x[i] -= s
        for i in x:
            x[i] += 1

    for s in range(20):
        many(s)
    x.fill(0)
    qd.sync()
    fake.calls.clear()
    many(20)
    many(21)
    assert (fake.calls["cuGraphLaunch"], fake.calls["cuLaunchKernelEx"]) == (2, 0)
    expected = 0.0
    for s in (20, 21):
        for _ in range(2):
            expected = (expected + s) * 2 - s + 1
    assert x.to_numpy().tolist() == [expected] * 50


def test_loops_that_memory_bounds_run_launch_by_launch(fake: AddressableCuda) -> None:
    world = Chains()
    with qd.graph.capture() as graph:
        world.differentiate()
    qd.sync()
    for length in (3, 20_000, 5, 20_000, 100_000, 10):
        world.n[2] = length
        graph()
        found = world.x.grad.to_numpy()
        np.testing.assert_allclose(found, world.expected(), rtol=1e-4, atol=1e-6)
        assert not graph.is_one_launch
    assert not fake.calls["cuGraphInstantiateWithFlags"]


@pytest.mark.parametrize("mode", ["gradient", "bare", "tangent"])
def test_captured_launches_are_checked_for_races(mode: str) -> None:
    test_races.replayed(getattr(test_races.Program(list(range(test_races.N))), mode))
    racing = test_races.Program([0] * test_races.N)
    with pytest.raises(qd.QuadrantsAssertionError, match="OCT304"):
        test_races.replayed(getattr(racing, mode))
