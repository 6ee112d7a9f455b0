"""What Vulkan's validation layer says of our calls, where it is installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import octants as qd
from octants.diagnostics.exceptions import OctantsError, OctantsWarning
from octants.runtime.vulkan import VulkanDevice
from octants.runtime.vulkan.queue import fill_of
from octants.runtime.vulkan.validation import Validation, has_layer
from tests.vulkan import compiled


@pytest.fixture
def device() -> Iterator[VulkanDevice]:
    compiled.device()  # or skip
    if not has_layer():
        pytest.skip("the layer is not installed")
    qd.init(arch=qd.vulkan, debug=True, offline_cache=False)
    made = qd.driver.state.device
    assert isinstance(made, VulkanDevice)
    yield made
    qd.reset()


def test_programs_are_valid(device: VulkanDevice) -> None:
    x, loss = qd.field(qd.f32, shape=40, needs_grad=True), qd.field(qd.f32, (), needs_grad=True)
    a = qd.ndarray(qd.f64, 7)

    @qd.kernel
    def run(n: qd.i32):
        for i in x:
            v = x[i]
            for _ in range(n):
                v = qd.sin(v) + 0.1
            loss[None] += v

    for n in (3, 400):
        with qd.ad.Tape(loss=loss):
            run(n)
    a.fill(2.0)
    assert a.to_numpy().sum() == 14.0
    assert x.grad[0] != 0.0
    qd.sync()


def test_commands_that_cannot_be_recorded_are_valid(device: VulkanDevice) -> None:
    for _ in range(2):
        assert device.queue.record(device.queue.flush, 64) is None
    made = device.queue.record(lambda: None, 64)
    assert made is not None
    for _ in range(2):
        made.submit()
    qd.sync()
    device.queue.recycle(made)


@pytest.mark.usefixtures("device")
def test_a_kernel_that_does_nothing_is_valid() -> None:
    @qd.kernel
    def nothing(n: qd.i32):
        _ = n + 1

    nothing(3)
    qd.sync()


def test_what_is_wrong_is_an_error(device: VulkanDevice) -> None:
    with device.queue.lock:
        device.queue.fill([fill_of(device.queue.open().arena.buffer, 2, 4)])
    with pytest.raises(OctantsError, match="(?s)OCT448.*vkCmdFillBuffer") as caught:
        qd.sync()
    assert "multiple of 4" in str(caught.value)
    qd.sync()  # it is reported once


def test_what_is_doubtful_is_a_warning() -> None:
    validation: Any = Validation()
    validation._messages.append((0x100, "this is slow"))
    with pytest.warns(OctantsWarning, match="Vulkan: this is slow"):
        validation.report()


def test_without_debug_there_is_no_layer() -> None:
    assert compiled.device().hardware.validation is None
