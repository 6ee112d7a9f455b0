"""Memory of the host, and the devices that give it."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from octants.artifact import Artifact, ParameterLayout
from octants.diagnostics.exceptions import OctantsMemoryError
from octants.runtime.cpu import CpuDevice, device, system_limits
from octants.runtime.device import Device
from octants.runtime.devices.null import NullDevice
from octants.runtime.memory.host import allocate


@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 1000, 1 << 20])
def test_memory_is_zeroed_and_aligned(nbytes: int) -> None:
    for give in (allocate, device().allocate, NullDevice().allocate):
        memory = give(nbytes)
        assert memory.address % 64 == 0
        assert memory.nbytes == len(memory.bytes) == nbytes
        assert not memory.bytes.any()
        memory.bytes[:] = 1


def test_a_view_keeps_the_memory_and_the_memory_goes_with_it() -> None:
    memory = allocate(4000)
    watch = weakref.ref(memory.bytes.base)
    view = memory.bytes.view(np.float32)
    del memory
    gc.collect()
    assert watch() is not None
    assert not view.any()
    del view
    gc.collect()
    assert watch() is None


@pytest.mark.parametrize("nbytes", [1 << 60, (1 << 63) - 64, 1 << 70])
def test_memory_that_there_is_not(nbytes: int) -> None:
    with pytest.raises(OctantsMemoryError, match="cannot allocate"):
        device().allocate(nbytes)


def test_limits_are_sensible() -> None:
    assert system_limits.thread_count() >= 1
    assert system_limits.memory_bytes() > 1 << 26


def test_the_null_device_counts() -> None:
    null = NullDevice()
    kernel = null.load(Artifact("k", "", b"", "k", ParameterLayout(())))
    kernel.launch(17)
    null.synchronize()
    assert kernel.launches == [17]
    assert (len(null.kernels), null.synchronizations) == (1, 1)


def test_devices_follow_the_protocol() -> None:
    devices: list[Device] = [NullDevice(), CpuDevice(1), device()]
    for one in devices[:2]:
        one.synchronize()
        one.close()
