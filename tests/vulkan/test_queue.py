"""When what was launched is submitted."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import octants as qd
from octants.runtime.vulkan import context as contexts
from octants.runtime.vulkan import queue as queues
from octants.runtime.vulkan.device import VulkanDevice
from tests.vulkan import compiled


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[VulkanDevice]:
    compiled.device()  # or skip
    monkeypatch.setattr(queues, "PATIENCE", 1e9)
    qd.init(arch=qd.vulkan, offline_cache=False)
    made = qd.driver.state.device
    assert isinstance(made, VulkanDevice)
    yield made
    qd.reset()


@qd.kernel
def double(a: qd.types.NDArray[qd.f32, 1]):
    for i in a:
        a[i] = a[i] * 2.0 + 1.0


def idle(device: VulkanDevice) -> int:
    """The submissions so far, all of which are done."""
    qd.sync()
    return device.context.submitted


def test_launches_of_a_tape_are_submitted_together(device: VulkanDevice) -> None:
    x, loss = (qd.field(qd.f32, shape=(), needs_grad=True) for _ in range(2))

    @qd.kernel
    def square():
        loss[None] = x[None] * x[None]

    def step() -> None:
        with qd.ad.Tape(loss=loss):
            square()

    x[None] = 3.0
    step()
    before = idle(device)
    step()
    assert device.context.submitted == before
    assert x.grad[None] == 6.0
    assert device.context.submitted == before + 1


def test_a_device_that_is_idle_begins_early(device: VulkanDevice) -> None:
    a = qd.ndarray(qd.f32, 8)
    double(a)
    before = idle(device)
    for _ in range(queues.FIRST_COMMANDS):
        double(a)
    assert device.context.submitted == before
    double(a)
    assert device.context.submitted == before + 1
    for _ in range(queues.MOST_COMMANDS - 1):
        double(a)
    assert device.context.submitted == before + 1
    double(a)
    assert device.context.submitted == before + 2


def test_what_waits_for_long_is_submitted_by_the_next_command(
    device: VulkanDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = qd.ndarray(qd.f32, 8)
    double(a)
    before = idle(device)
    double(a)
    monkeypatch.setattr(queues, "PATIENCE", 0.0)
    double(a)
    assert device.context.submitted == before + 1


def test_many_launches_use_batches_and_their_memory_again(device: VulkanDevice) -> None:
    a = qd.ndarray(qd.f32, 3)
    for _ in range(20 * queues.MOST_COMMANDS):
        double(a)
        a.fill(0.0)
    for _ in range(5):
        double(a)
    assert a.to_numpy().tolist() == [31.0] * 3


def test_parameters_that_fill_the_memory_of_a_batch(
    device: VulkanDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "_ARENA", 256)
    a = qd.ndarray(qd.f32, 3)
    before = idle(device)
    for _ in range(7):
        double(a)
    assert np.all(a.to_numpy() == 127.0)
    assert device.context.submitted > before + 1


def test_a_gpu_is_looked_at_before_the_host_sleeps(
    device: VulkanDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = qd.ndarray(qd.f32, 3)
    slept: list[int] = []
    monkeypatch.setattr(device.context, "_sleep", slept.append)
    monkeypatch.setattr(type(device.hardware), "is_cpu", False)
    monkeypatch.setattr(contexts, "_PATIENCE", 10.0)
    double(a)
    assert np.all(a.to_numpy() == 1.0)
    assert not slept
