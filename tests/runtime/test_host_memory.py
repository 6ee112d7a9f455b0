"""Memory of the host, and the devices that give it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.artifact import Artifact, ParameterLayout
from octants.diagnostics.exceptions import OctantsMemoryError
from octants.runtime.cpu import CpuDevice, device, system_limits
from octants.runtime.device import Device
from octants.runtime.devices.null import NullDevice
from octants.runtime.memory import host
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


@pytest.fixture
def pool() -> Iterator[dict[int, Any]]:
    host.free_pooled_memory()
    yield host._pool
    host.free_pooled_memory()


LARGE = 1 << 20


def test_large_blocks_are_used_again(pool: dict[int, Any]) -> None:
    """They are zero again, and a view keeps a block from being used again."""
    first = host.allocate(LARGE)
    address = first.address
    first.bytes[:] = 7
    view = first.bytes[5:9].view(np.uint32)
    del first
    assert not pool
    second = host.allocate(LARGE)
    assert second.address != address
    assert view.tolist() == [0x07070707]
    del view
    assert sum(map(len, pool.values())) == 1
    third = host.allocate(LARGE)
    assert third.address == address
    assert not third.bytes.any()
    del third
    again = host.allocate(LARGE, clears=False)
    assert again.address == address


def test_the_pool_is_bounded(pool: dict[int, Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(host, "_MOST_POOLED", 3 * LARGE)
    blocks = [host.allocate(LARGE) for _ in range(5)]
    del blocks
    assert sum(map(len, pool.values())) == 2
    other = host.allocate(2 * LARGE)
    del other
    assert [each[0].nbytes for each in pool.values()] == [2 * LARGE + host.ALIGNMENT]
    for nbytes in (1 << 10, host._POOLED.stop):
        block = host.allocate(nbytes)
        del block
    assert len(pool) == 1


def test_the_pool_is_freed_at_reset_and_when_memory_runs_out(pool: dict[int, Any]) -> None:
    qd.init(arch=qd.cpu, log_level="error")
    block = host.allocate(LARGE)
    del block
    assert pool
    with pytest.raises(OctantsMemoryError):
        host.allocate(1 << 62)
    assert not pool
    block = host.allocate(LARGE)
    del block
    assert pool
    qd.reset()
    assert not pool
