"""Devices that are lost, memory that is refused, features that are missing."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.backends import vulkan
from octants.diagnostics.exceptions import OctantsError, OctantsMemoryError, OctantsWarning
from octants.runtime.vulkan import physical_devices
from octants.runtime.vulkan.device import VulkanDevice
from octants.runtime.vulkan.library import DEVICE_LOST, checked
from tests.vulkan import compiled

OWN = "estimates"  # no kernel here has a sine
"""What gives these tests a device that they may lose."""


@pytest.fixture
def device() -> Iterator[VulkanDevice]:
    compiled.device()  # or skip
    qd.init(arch=qd.vulkan, offline_cache=False, vulkan_without=OWN)
    made = qd.driver.state.device
    assert isinstance(made, VulkanDevice)
    yield made
    qd.reset()


@qd.kernel
def increment(a: qd.types.NDArray[qd.f32, 1]):
    for i in a:
        a[i] += 1.0


# -- a device that is lost ------------------------------------------------------------------------


def lose(device: VulkanDevice, monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    """Have a function of the driver tell that the device is gone, which takes long."""
    context: Any = device.context
    monkeypatch.setattr(context, "_ends_soon", lambda _: False)
    call = checked(function, lambda *_: DEVICE_LOST, context._lose)
    functions, quick = context.functions, context.functions.quick
    monkeypatch.setattr(quick if hasattr(quick, function) else functions, function, call)


@pytest.mark.parametrize("function", ["vkQueueSubmit", "vkWaitSemaphores"])
def test_a_lost_device_is_an_error_until_the_next_init(
    device: VulkanDevice, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    a = qd.ndarray(qd.f32, 4)
    increment(a)
    qd.sync()
    monkeypatch.setattr(device.context, "_ends_soon", lambda _: False)
    lose(device, monkeypatch, function)
    with pytest.raises(OctantsError, match="OCT456.*\n.*last synchronisation: `increment`"):
        increment(a), qd.sync()
    monkeypatch.undo()  # the driver may say what it likes now
    attempts: list[Callable[[], Any]] = [
        qd.sync,
        lambda: qd.ndarray(qd.f32, 4),
        a.to_numpy,
        lambda: increment(a) or qd.sync(),
    ]
    for attempt in attempts:
        with pytest.raises(OctantsError, match="OCT456"):
            attempt()
    with pytest.warns(UserWarning, match="OCT456"):
        qd.init(arch=qd.vulkan, offline_cache=False, vulkan_without=OWN)
    b = qd.ndarray(qd.f32, 4)
    increment(b)
    assert b.to_numpy().tolist() == [1.0] * 4


FORKS = """
import multiprocessing, sys
import octants as qd

def child(results):
    found = []
    for attempt in (qd.sync, a.to_numpy, lambda: qd.init(arch=qd.vulkan)):
        try:
            attempt()
            found.append("nothing")
        except qd.OctantsRuntimeError as error:
            found.append(str(error)[:6])
    results.put(found)

qd.init(arch=qd.vulkan, offline_cache=False)
a = qd.ndarray(qd.f32, 4)
a.fill(1.0)
context = multiprocessing.get_context("fork")
results = context.Queue()
process = context.Process(target=child, args=(results,))
process.start()
print(*results.get(timeout=60))
process.join(60)
print(a.to_numpy().sum(), process.exitcode)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_forked_process(tmp_path: Path) -> None:
    compiled.device()  # or skip
    script = tmp_path / "program.py"
    script.write_text(FORKS)
    run = [sys.executable, "-W", "ignore", str(script)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["OCT447", "OCT447", "OCT447", "4.0", "0"], done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_waits_for_who_gives_commands(device: VulkanDevice) -> None:
    queue, taken = device.queue, threading.Event()

    def give() -> None:
        with queue.lock:
            taken.set()
            time.sleep(0.05)

    thread = threading.Thread(target=give)
    thread.start()
    taken.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if queue.lock.acquire(blocking=False) else 1)
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
    assert queue.lock.acquire(blocking=False)
    queue.lock.release()


# -- memory ---------------------------------------------------------------------------------------


def test_memory_that_is_refused_tells_what_is_allocated(device: VulkanDevice) -> None:
    held = [qd.ndarray(qd.f32, 1 << 20) for _ in range(3)]
    with pytest.raises(OctantsMemoryError) as caught:
        qd.ndarray(qd.f64, (1 << 24, 1 << 20))
    text = str(caught.value)
    assert "OCT506" in text
    assert device.hardware.name in text
    assert "3 times 4.19 MB" in text or "3 times 4 MiB" in text or "3 times 4.0 Mi" in text
    increment(held[0])
    assert held[0].to_numpy()[-1] == 1.0


def test_the_memory_of_the_device(device: VulkanDevice) -> None:
    found = qd.driver.capabilities(qd.options.current()).memory_bytes
    assert found == device.hardware.memory_bytes > 1 << 28


def test_arrays_above_the_range_of_descriptors(device: VulkanDevice) -> None:
    """128 MiB is what a descriptor reaches; addresses reach more."""
    x = qd.field(qd.i8, shape=(1 << 27) + 1000)

    @qd.kernel
    def mark():
        for i in range(10):
            x[(1 << 27) + 100 * i - 5] = 7

    mark()
    found = np.flatnonzero(x.to_numpy())
    assert found.tolist() == [(1 << 27) + 100 * k - 5 for k in range(10)]


# -- features -------------------------------------------------------------------------------------


def test_features_that_there_are_none_of() -> None:
    with pytest.raises(qd.OctantsRuntimeError, match="OCT403.*`vulkan_without`") as caught:
        qd.init(arch=qd.vulkan, vulkan_without="int64,speed", log_level="error")
    assert "int64" in str(caught.value).partition("help:")[2]
    qd.init(arch=qd.vulkan, vulkan_without="int64,", log_level="error")
    qd.reset()


@pytest.mark.parametrize(
    ("dtype", "feature", "meaning"),
    [
        (qd.f64, "float64", "shaderFloat64"),
        (qd.i16, "int16", "shaderInt16"),
        (qd.u8, "storage8", "storageBuffer8BitAccess"),
        (qd.f16, "storage16", "storageBuffer16BitAccess"),
    ],
    ids=str,
)
def test_a_type_that_a_device_lacks_names_kernel_and_line(
    dtype: Any, feature: str, meaning: str
) -> None:
    compiled.device()  # or skip
    qd.init(arch=qd.vulkan, offline_cache=False, vulkan_without=feature)
    a = qd.ndarray(dtype, 3)

    @qd.kernel
    def scaled():
        for i in range(3):
            other[i] = 1.0
            x[i] = x[i] + x[i]

    x, other = qd.field(dtype, shape=3), qd.field(qd.f32, shape=3)
    with pytest.raises(OctantsError) as caught:
        scaled()
    text = str(caught.value)
    assert "OCT450: kernel `scaled` needs" in text
    assert meaning in text
    assert "x[i] = x[i] + x[i]" in text
    assert a.to_numpy().tolist() == [0.0] * 3
    qd.reset()


# -- a device that is known to be wrong -----------------------------------------------------------


def test_a_driver_that_is_known_to_be_wrong_is_warned_of_where_nothing_is_done_about_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled.device()  # or skip
    found = physical_devices.choose(None)
    assert not found.flaw
    monkeypatch.setattr(found.properties, "vendor", 0x10DE)
    monkeypatch.setattr(vulkan.physical_devices, "choose", lambda *_: found.leaving("splits"))
    try:
        with pytest.warns(OctantsWarning, match="gets integers of 64 bits wrong"):
            qd.init(arch=qd.vulkan, offline_cache=False, vulkan_without=OWN)
    finally:
        qd.reset()
    monkeypatch.setattr(found, "features", found.features | {"splits"})
    assert not found.flaw
