"""Launches that are replayed as graphs, on a real GPU; skipped where there is none."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.runtime.cuda.fast_launcher import SAME
from tests.runtime.cuda.test_interop_on_gpu import COUNT, add, slowly_add
from tests.runtime.cuda.test_on_gpu import _has_gpu

pytestmark = pytest.mark.skipif(not _has_gpu(), reason="there is no NVIDIA GPU")
MANY = SAME + 20


@pytest.fixture(autouse=True)
def start() -> Iterator[None]:
    qd.init(arch=qd.cuda, log_level="error")
    yield
    qd.reset()


@qd.kernel
def append(a: qd.types.NDArray[qd.f32, 1], b: qd.types.NDArray[qd.f32, 1]):
    for i in a:
        b[i] = 2.0 * b[i] + a[i]


def arrays(count: int) -> list[Any]:
    return [qd.ndarray(qd.f32, COUNT) for _ in range(count)]


def replayed_graphs() -> int:
    return int(qd.driver.state.device.replayed_graphs)


def test_values() -> None:
    (x,) = arrays(1)
    for _ in range(3 * MANY):
        add(x, 1.0)
    assert replayed_graphs() == 1
    assert (x.to_numpy() == 3 * MANY).all()
    add(x, 0.5)
    add(x, 1.0)
    assert (x.to_numpy() == 3 * MANY + 1.5).all()


def test_arrays_in_turns() -> None:
    x, y = arrays(2)
    x.fill(1.0)
    expected = np.zeros(2)
    expected[0] = 1
    for turn in range(2 * MANY):
        append(x, y) if turn % 2 == 0 else append(y, x)
        expected[(turn + 1) % 2] = 2 * expected[(turn + 1) % 2] + expected[turn % 2]
        if turn % 10 == 9:  # or they would be infinite
            x.fill(1.0)
            y.fill(0.0)
            expected[:] = 1, 0
    assert replayed_graphs() == 2
    assert (x.to_numpy() == expected[0]).all()
    assert (y.to_numpy() == expected[1]).all()


def test_replays_and_streams_wait_for_each_other() -> None:
    x, y = arrays(2)
    for _ in range(MANY):
        append(x, y)
    assert replayed_graphs() == 1
    stream, expected = qd.create_stream(), 0.0
    for turn in range(10):
        slowly_add(x, 1.0, qd_stream=stream)
        append(x, y)  # in no stream: after the one, and before the next one
        expected = 2 * expected + turn + 1
    assert (y.to_numpy() == expected).all()
    for turn in range(10):
        append(x, y)
        expected = 2 * expected + turn + 10
        slowly_add(y, 1.0, qd_stream=stream)
        slowly_add(x, 1.0, qd_stream=stream)
        expected += 1
    assert (y.to_numpy() == expected).all()


def test_replays_follow_each_other() -> None:
    (x,) = arrays(1)
    for _ in range(MANY):
        slowly_add(x, 1.0)
        add(x, 1.0)
    for _ in range(50):
        slowly_add(x, 1.0)
        add(x, 1.0)
    assert (x.to_numpy() == 2 * MANY + 100).all()


def test_a_thread_of_its_own() -> None:
    (x,) = arrays(1)
    for _ in range(MANY):
        add(x, 1.0)
    thread = threading.Thread(target=lambda: [add(x, 1.0) for _ in range(MANY)])
    thread.start()
    thread.join()
    assert (x.to_numpy() == 2 * MANY).all()


def test_torch() -> None:
    torch = pytest.importorskip("torch")
    x = torch.zeros(COUNT, device="cuda")
    for _ in range(MANY):
        add(x, 1.0)
        x.mul_(1.0)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        x.add_(1.0)
        add(x, 1.0)
        x.mul_(2.0)
    torch.cuda.current_stream().wait_stream(side)
    add(x, 1.0)
    assert float(x.min()) == float(x.max()) == 2 * (MANY + 2) + 1


def test_a_loss_is_the_same_each_time() -> None:
    x, loss = qd.field(qd.f32, 8, needs_grad=True), qd.field(qd.f32, (), needs_grad=True)
    x.fill(0.5)

    @qd.kernel
    def squares():
        for i in x:
            loss[None] += x[i] * x[i]

    for turn in range(MANY):
        x[0] = turn
        with qd.ad.Tape(loss=loss):
            squares()
        assert x.grad[0] == 2 * turn
        assert loss[None] == turn * turn + 7 * 0.25
