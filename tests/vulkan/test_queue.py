"""When what was launched is submitted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.diagnostics.exceptions import InternalError, OctantsError
from octants.runtime.gpu import batches as queues
from octants.runtime.vulkan import context as contexts
from octants.runtime.vulkan import physical_devices
from octants.runtime.vulkan import queue as vulkan_queue
from octants.runtime.vulkan.device import VulkanDevice
from tests.vulkan import compiled
from tests.vulkan.submissions import double, idle


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
    assert device.context.submitted == before + 1  # so that the device begins
    assert x.grad[None] == 6.0
    assert device.context.submitted == before + 1


def test_a_device_that_is_idle_begins_at_once(
    device: VulkanDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = qd.ndarray(qd.f32, 8)
    double(a)
    before = idle(device)
    double(a)
    assert device.context.submitted == before + 1
    monkeypatch.setattr(device.context, "is_idle", lambda: False)
    for _ in range(queues.MOST_COMMANDS):
        double(a)
    assert device.context.submitted == before + 1
    double(a)
    assert device.context.submitted == before + 2


def test_a_device_that_has_become_idle_begins_at_once(
    device: VulkanDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = qd.ndarray(qd.f32, 8)
    double(a)
    before = idle(device)
    double(a)
    device.context._sleep(before + 1)  # until it is done, of which the context knows nothing
    double(a)
    assert device.context.submitted == before + 1  # soon after the other one
    device.queue.flush()
    monkeypatch.setattr(queues, "PATIENCE", 0.0)
    device.context._sleep(before + 2)
    double(a)
    assert device.context.submitted == before + 3


def test_a_device_that_becomes_idle_need_not_wait_for_a_full_batch(
    device: VulkanDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = qd.ndarray(qd.f32, 8)
    double(a)
    before = idle(device)
    double(a)
    monkeypatch.setattr(device.context, "is_idle", lambda: len(polls) == 2 or polls.append(0))
    polls: list[int] = []
    for _ in range(3 * queues.EARLY_COMMANDS):
        double(a)
    assert device.context.submitted == before + 1
    double(a)
    assert device.context.submitted == before + 2


def is_soon(condition: Callable[[], bool]) -> bool:
    """Whether something comes true, at an unknown time."""
    for _ in range(20_000):
        if condition():
            return True
        time.sleep(1e-3)
    return False


def test_what_waits_for_long_is_submitted_by_a_timer(
    device: VulkanDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = qd.ndarray(qd.f32, 8)
    double(a)
    before = idle(device)
    monkeypatch.undo()
    monkeypatch.setattr(device.context, "is_idle", lambda: False)
    for count in (1, 2):
        device.context.done = -1  # as if it were busy
        double(a)
        assert is_soon(lambda: device.context.submitted == before + count)  # noqa: B023
    assert np.all(a.to_numpy() == 7.0)


def test_what_a_timer_cannot_submit_fails_the_next_call(
    device: VulkanDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = device.context.lost
    a = qd.ndarray(qd.f32, 8)
    double(a)
    idle(device)
    monkeypatch.undo()
    monkeypatch.setattr(device.context.functions.quick, "vkQueueSubmit", lambda *_: -1)
    monkeypatch.setattr(device.context, "done", -1)  # as if it were busy
    monkeypatch.setattr(device.context, "is_idle", lambda: False)
    double(a)
    assert is_soon(lambda: device.context.lost is not None)
    with pytest.raises(OctantsError, match="OCT455.*vkQueueSubmit"):
        double(a)
    with pytest.raises(OctantsError, match="OCT455.*vkQueueSubmit"):
        qd.sync()
    device.context.lost = lost


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
    monkeypatch.setattr(queues, "ARENA", 256)
    a = qd.ndarray(qd.f32, 3)
    before = idle(device)
    for _ in range(7):
        double(a)
    assert np.all(a.to_numpy() == 127.0)
    assert device.context.submitted > before + 1


def test_a_gpu_is_polled_before_the_host_sleeps(
    device: VulkanDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = qd.ndarray(qd.f32, 3)
    slept: list[int] = []
    monkeypatch.setattr(device.context, "_sleep", slept.append)
    monkeypatch.setattr(device.context, "_is_cpu", False)
    monkeypatch.setattr(contexts, "_PATIENCE", 10.0)
    double(a)
    assert np.all(a.to_numpy() == 1.0)
    assert not slept


def test_a_check_of_tapes_takes_locks_in_the_order_of_a_launch(device: VulkanDevice) -> None:
    """Else a launch that records and a check by another thread could wait for each other."""
    device.record_buffers.clean_report(1)
    device.record_buffers.trust("k")
    check = threading.Thread(target=device.deliver)
    with device.queue.lock:
        check.start()
        check.join(0.1)
        assert device.record_buffers.lock.acquire(timeout=3)  # as a launch does that has the queue
        device.record_buffers.lock.release()
    check.join()
    assert not device.record_buffers.trusted


def test_memory_that_is_freed_is_forgotten(device: VulkanDevice) -> None:
    """Addresses that were cleared before may be in another buffer now."""
    heap, transfers = device.heap, device.transfers
    large = heap.allocate(1 << 25, "large")
    part = ((large.address, 64), (large.address + 3, 5))
    transfers.clear_each(part)
    known, generation = transfers.buffer_of(large.address, 4), heap.generation
    assert known[0] is large.buffer
    address = large.address
    del large, known
    other = heap.allocate(256, "other")  # frees what was dropped
    assert heap.generation == generation + 1
    device.synchronize()
    heap.allocate(256, "another")
    with pytest.raises(InternalError):
        transfers.buffer_of(address, 4)
    with pytest.raises(InternalError):
        transfers.clear_each(part)
    del other


def test_copies_of_several_pieces(device: VulkanDevice) -> None:
    """They may repeat, and their memory may move."""
    large = device.heap.allocate(1 << 25, "large")
    values = np.arange(1 << 20, dtype=np.uint8)
    for base in (large.address, large.address + 4096):
        device.write(base, values)
        target = base + (1 << 22)
        pieces = ((target, base, 5), (target + 64, base + 3, 1000), (target + 4096, base, 1 << 20))
        for _ in range(3):
            device.clear(target, 1 << 21)
            device.copy_each(pieces)
            for at, source, nbytes in pieces:
                found = np.zeros(nbytes, np.uint8)
                device.read(at, found)
                assert (found == values[source - base :][:nbytes]).all()
    address = large.address
    del large
    other = device.heap.allocate(256, "other")  # frees what was dropped
    device.synchronize()
    device.heap.allocate(256, "another")
    with pytest.raises(InternalError):
        device.copy_each(((address, address + 64, 4),))
    del other


def test_a_dispatch_behind_another_has_a_light_barrier(device: VulkanDevice) -> None:
    """It waits for shaders alone; behind a copy or a fill, and in a new batch, for everything."""
    found: list[Any] = []
    quick = SimpleNamespace(
        vkCmdPipelineBarrier=lambda *given: found.append((given[1], given[5])),
        vkCmdBindPipeline=lambda *_: None,
        vkCmdPushConstants=lambda *_: None,
        vkCmdDispatch=lambda *_: None,
    )
    queue: Any = device.queue
    dispatch = vulkan_queue._dispatcher(quick, "all", "shaders")  # type: ignore[arg-type]
    batch = queue._next()
    queue._begin_batch(batch)
    for is_behind_a_fill in (False, False, True, False):
        if is_behind_a_fill:
            queue._begin(batch)
        dispatch(batch, None, None, 1, (80, None))
    assert found == [(0x1800, "all"), (0x800, "shaders"), (0x1800, "all"), (0x800, "shaders")]
    queue.batch = batch
    qd.sync()


def test_barriers_name_the_accesses(device: VulkanDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """A barrier for all accesses of any kind takes NVIDIA's GPUs microseconds."""
    found: list[Any] = []
    quick = SimpleNamespace(vkCmdPipelineBarrier=lambda *given: found.append(given[5]._obj))
    queue: Any = device.queue
    batch = queue._next()
    queue._begin_batch(batch)
    monkeypatch.setattr(device.context.functions, "quick", quick)
    queue._begin(batch)
    queue._end(batch)
    shader, copies, host = (0x20, 0x40), (0x800, 0x1000), 0x2000  # reads and writes
    assert [each.source for each in found] == [shader[1] | copies[1]] * 2
    assert [each.target for each in found] == [sum(shader + copies), host]


@pytest.mark.parametrize(
    ("vendor", "flags", "expected"),
    [
        (0x10DE, [0b1111, 0b1100, 0b1110], 2),
        (0x10DE, [0b1100, 0b1111], 1),
        (0x1002, [0b1111, 0b1100, 0b1110], 0),
    ],
)
def test_the_family_of_the_queue(
    vendor: int, flags: list[int], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On NVIDIA one without graphics, as far as there is one."""
    compiled.device()
    hardware = physical_devices.choose(0)

    def ask(_: Any, count: Any, families: Any) -> None:
        count._obj.value = len(flags)
        for number, each in enumerate(flags if families is not None else ()):
            families[number].flags = each

    monkeypatch.setattr(hardware.functions, "vkGetPhysicalDeviceQueueFamilyProperties", ask)
    monkeypatch.setattr(hardware.properties, "vendor", vendor)
    assert hardware.family() == expected
