"""Commands that programs submit again and again, which are recorded once."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

import octants as qd
from octants.runtime.gpu import batches
from octants.runtime.repetitions import Repetitions
from octants.runtime.vulkan import queue
from octants.runtime.vulkan.device import VulkanDevice
from tests.vulkan.submissions import double, idle


@pytest.fixture
def recorded(device: VulkanDevice, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The batches that are recorded, each after its second submission."""
    commands: Any = device.queue
    monkeypatch.setattr(commands, "_repeated", Repetitions[Any](2, most=4, counted=16))
    return commands._repeated.made


def commands_of(
    device: VulkanDevice, run: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> int:
    """How many batches of commands a function begins until the device is idle."""
    begun: list[Any] = []
    commands: Any = device.queue
    with monkeypatch.context() as patch:
        begin = commands._begin_batch
        patch.setattr(commands, "_begin_batch", lambda batch: (begin(batch), begun.append(batch)))
        run()
        qd.sync()
    return len(begun)


def test_a_launch_that_repeats_is_recorded(
    device: VulkanDevice, recorded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = qd.ndarray(qd.f32, 3)
    idle(device)
    counts = [commands_of(device, lambda: double(a), monkeypatch) for _ in range(5)]
    assert counts == [1, 1, 0, 0, 0]  # the second one is recorded
    assert len(recorded) == 1
    assert a.to_numpy().tolist() == [31.0] * 3


def test_launches_with_other_arguments_do_not_repeat(device: VulkanDevice, recorded: Any) -> None:
    a, b = (qd.ndarray(qd.f32, 3) for _ in range(2))

    @qd.kernel
    def shift(x: qd.types.NDArray[qd.f32, 1], by: qd.f32):
        for i in x:
            x[i] = x[i] * 2.0 + by

    expected = 0.0
    for number in range(12):
        for array in (a, b):
            shift(array, number)
            qd.sync()
        expected = 2.0 * expected + number
    assert not recorded
    assert a.to_numpy().tolist() == b.to_numpy().tolist() == [expected] * 3


def test_recorded_commands_stay_in_order_with_others(device: VulkanDevice, recorded: Any) -> None:
    a, b = (qd.ndarray(qd.f32, 3) for _ in range(2))
    expected = 0.0
    for number in range(20):
        double(a)
        if number % 3 == 0:
            a.fill(number)  # queued behind the launch
            expected = float(number)
        else:
            expected = 2.0 * expected + 1.0
        if number % 4:
            double(b)
        if number % 2:
            qd.sync()
        if number % 5 == 0:
            assert a.to_numpy().tolist() == [expected] * 3
    assert a.to_numpy().tolist() == [expected] * 3
    assert recorded


def test_the_memory_of_pending_commands_may_be_freed(device: VulkanDevice, recorded: Any) -> None:
    device.context.done = device.context.submitted - 1  # as if it were busy
    heap = device.heap
    kept = heap.allocate(64, "kept")
    for _ in range(4):
        large = heap.allocate(1 << 25, "large")
        device.clear_each(((large.address, 64), (kept.address, 64)))
        del large
        heap.allocate(64, "other")  # frees the buffer of what was dropped
        device.synchronize()


def test_pending_commands_of_a_kernel_that_is_gone(device: VulkanDevice, recorded: Any) -> None:
    a = qd.ndarray(qd.f32, 3)
    for count in range(1, 6):

        @qd.kernel
        def increment(x: qd.types.NDArray[qd.f32, 1]):
            for i in x:
                x[i] += 1.0

        increment(a)
        del increment
        gc.collect()
        assert a.to_numpy().tolist() == [count] * 3


def test_a_tape_that_repeats_is_one_submission_of_recorded_commands(
    device: VulkanDevice, recorded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, loss = qd.field(qd.f32, 3, needs_grad=True), qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def squares():
        for i in x:
            loss[None] += x[i] * x[i]

    def step() -> None:
        with qd.ad.Tape(loss=loss):
            squares()

    for number in range(12):
        x.fill(number)
        before = idle(device)
        begun = commands_of(device, step, monkeypatch)
        assert device.context.submitted == before + 1
        assert loss[None] == 3.0 * number**2
        assert x.grad.to_numpy().tolist() == [2.0 * number] * 3
    assert not begun


def test_many_pending_commands(device: VulkanDevice, recorded: Any) -> None:
    device.context.done = -1  # as if it were busy
    a, b = (qd.ndarray(qd.f32, 3) for _ in range(2))
    for _ in range(4):
        for count in range(batches.MOST_PENDING + 3):
            double(a if count % 2 else b)
        qd.sync()
        a.fill(0.0)
        b.fill(0.0)
        device.context.done = -1
    device.context.done = 0
    double(a)
    assert a.to_numpy().tolist() == [1.0] * 3


def test_the_host_is_not_far_ahead_of_the_device(
    device: VulkanDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "_MOST_AHEAD", 2)
    a = qd.ndarray(qd.f32, 3)
    with qd.graph.capture() as graph:
        double(a)
    for _ in range(20):
        graph()
        assert device.context.submitted - device.context.done <= 5
