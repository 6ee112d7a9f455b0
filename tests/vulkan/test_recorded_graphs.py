"""Graphs on Vulkan: commands that are recorded once, and submitted again and again."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import driver
from octants.runtime.capture import CommandList
from octants.runtime.vulkan.recorded_graph import RecordedGraph
from tests.vulkan import compiled

SIZE = 300


@pytest.fixture(autouse=True)
def on_vulkan() -> Iterator[None]:
    compiled.device()  # or skip
    qd.init(arch=qd.vulkan, offline_cache=False, log_level="error")
    yield
    qd.sync()


@qd.kernel
def add(x: qd.Tensor, y: qd.Tensor, factor: qd.i32):
    for i in x:
        x[i] += y[i] * factor


@qd.kernel
def add_where(x: qd.Tensor, n: qd.Tensor):
    for i in range(n[0]):
        x[i] += 1


@qd.kernel
def checked(x: qd.Tensor):
    for i in x:
        assert x[i] < 3, "too large"
        x[i] += 1


@qd.kernel
def noisy(x: qd.Tensor):
    for i in x:
        x[i] = qd.cast(qd.random() * 1e6, qd.i32)


def field() -> Any:
    return qd.field(qd.i32, SIZE)


def submissions() -> int:
    return int(driver.device().context.submitted)


def replay_of(graph: qd.graph.Graph) -> Any:
    return graph._replay


def test_a_replay_is_one_submission() -> None:
    x, y = field(), field()
    with qd.graph.capture() as graph:
        for number in range(200):  # more than a batch has otherwise
            add(x, y, number)
            add(y, x, 0)
    assert graph.is_one_launch
    x.fill(0)
    y.fill(2)
    qd.sync()
    before = submissions()
    for _ in range(3):
        graph()
    assert submissions() == before + 3
    assert x.to_numpy().tolist() == [3 * 2 * sum(range(200))] * SIZE


def test_replays_are_in_order_with_everything_else() -> None:
    x, y = field(), field()
    y.fill(1)
    with qd.graph.capture() as graph:
        x.fill(5)
        add(x, y, 2)
        y.copy_from(x)
        x[0] = 100
    for number in range(20):
        y.fill(number)
        add(y, y, 1)
        graph()
        add(x, y, 1)
        values = x.to_numpy()
        assert values[1:].tolist() == [2 * (5 + 4 * number)] * (SIZE - 1)
        assert values[0] == 100 + 5 + 4 * number


def test_writes_of_any_size_and_at_any_byte() -> None:
    small, large = qd.field(qd.i8, 7), qd.field(qd.f32, 1 << 17)
    values = np.arange(1 << 17, dtype=np.float32)
    with qd.graph.capture() as graph:
        small.fill(3)
        small[2] = 5
        large.fill(0.5)
    assert graph.is_one_launch
    with qd.graph.capture() as of_many_bytes:
        large.from_numpy(values)
    assert not of_many_bytes.is_one_launch
    small.fill(0)
    of_many_bytes()
    assert (large.to_numpy() == values).all()
    graph()
    assert small.to_numpy().tolist() == [3, 3, 5, 3, 3, 3, 3]
    assert (large.to_numpy() == 0.5).all()


def test_bounds_that_the_device_computes() -> None:
    x, n = field(), qd.field(qd.i32, 1)
    with qd.graph.capture() as graph:
        add_where(x, n)
    assert graph.is_one_launch
    for count in (3, 0, 200):
        n.fill(count)
        x.fill(0)
        graph()
        assert x.to_numpy().sum() == count


def test_what_is_queued_command_by_command() -> None:
    qd.init(arch=qd.vulkan, offline_cache=False, log_level="error", debug=True)
    x = field()
    for kernel in (checked, noisy):
        with qd.graph.capture() as graph:
            kernel(x)
        assert not graph.is_one_launch
        assert isinstance(replay_of(graph), CommandList)
    first = x.to_numpy()
    graph()
    assert (x.to_numpy() != first).any()
    x.fill(2)
    with qd.graph.capture() as graph:
        checked(x)
    with pytest.raises(qd.OctantsAssertionError, match="too large"):
        graph()
        qd.sync()


def test_dropped_graphs_leave_their_memory_to_others_when_they_are_done() -> None:
    x, y = field(), field()
    y.fill(1)
    queue = driver.device().queue
    known = len(queue._spare) + len(queue._recycled)
    for number in range(12):
        with qd.graph.capture() as graph:
            add(x, y, number)
        assert type(replay_of(graph)) is RecordedGraph
        graph()
        graph = None
        gc.collect()
    assert x.to_numpy().tolist() == [2 * sum(range(12))] * SIZE
    qd.sync()
    assert len(queue._spare) + len(queue._recycled) <= known + 12


def test_the_memory_of_a_graph_that_is_garbage_belongs_to_the_next_one() -> None:
    x, y = field(), field()
    y.fill(1)
    graphs = []
    for number in range(6):
        cycle: list[Any] = []
        for _ in range(3):  # in a cycle, with everything that they refer to
            with qd.graph.capture() as graph:
                add(x, y, 1)
            graph()
            cycle.append(graph)
        cycle.append(cycle)
        del cycle, graph
        gc.collect()
        with qd.graph.capture() as kept:
            add(x, y, 10 * number)
        graphs.append(kept)
    arenas = [replay_of(each)._recorded.batch.arena.address for each in graphs]
    assert len(set(arenas)) == len(arenas)
    x.fill(0)
    for graph in graphs:
        graph()
    assert x.to_numpy().tolist() == [10 * sum(range(6))] * SIZE


def test_an_open_batch_stays_open_while_commands_are_recorded() -> None:
    x, y = field(), field()
    y.fill(1)
    qd.sync()
    queue = driver.device().queue
    with qd.graph.capture() as graph:
        add(x, y, 1)
    add(x, y, 10)
    add(x, y, 10)
    made = queue.record(lambda: None, 64)
    made.submit()
    graph()
    assert x.to_numpy().tolist() == [22] * SIZE


def test_a_replay_is_submitted_with_what_is_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = field(), field()
    context = driver.device().context
    is_idle = context.is_idle  # then what is launched is submitted at once
    monkeypatch.setattr(context, "is_idle", lambda: is_idle() and False)
    with qd.graph.capture() as graph:
        add(x, y, 3)
        add(y, x, 1)
    x.fill(1)
    y.fill(2)
    values = np.ones(SIZE, np.int32), np.full(SIZE, 2, np.int32)
    before = submissions()
    for _ in range(30):
        add(x, y, 1)
        add(y, x, 2)
        graph()
    assert submissions() == before + 30
    one, other = values
    with np.errstate(over="ignore"):
        for _ in range(30):
            one = one + other
            other = other + 2 * one
            one = one + 3 * other
            other = other + one
    assert (x.to_numpy() == one).all()
    assert (y.to_numpy() == other).all()


def test_a_command_that_cannot_be_recorded() -> None:
    x = field()
    queue = driver.device().queue
    assert queue.record(lambda: x.to_numpy(), 64) is None
    assert queue.record(queue.flush, 64) is None
    spare = len(queue._spare)
    with pytest.raises(ZeroDivisionError):
        queue.record(lambda: 1 / 0, 64)
    assert queue.record(queue.flush, 64) is None
    assert len(queue._spare) == spare  # the same batch takes commands again
    x.fill(4)
    assert x.to_numpy().tolist() == [4] * SIZE
