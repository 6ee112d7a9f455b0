"""Arrays that Octants on a GPU and other libraries share; on a fake GPU."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.runtime.cuda.streams import Using
from octants.runtime.interop import dlpack
from tests.runtime.cuda.fake_cuda import Call
from tests.runtime.cuda.test_foreign import Lender
from tests.runtime.cuda.whole import Gpu, gpu, numbers

__all__ = ["gpu"]


@qd.kernel
def double(a: qd.types.NDArray[qd.f64, 1]):
    for i in a:
        a[i] *= 2.0


def run_double(call: Call) -> None:
    numbers(call, 4, int(call.slots[3]), np.float64)[:] *= 2


@pytest.fixture(autouse=True)
def start(gpu: Gpu) -> None:
    gpu.fake.kernels["double"] = run_double
    gpu.init()


def exported(gpu: Gpu, count: int, **more: Any) -> Any:
    """Memory of another library, and its array."""
    memory = gpu.device.allocate(8 * count)
    qd.sync()
    given = {"device": (2, 0), "is_read_only": False, "owner": memory, **more}
    part = dlpack.DlpackView(memory.address, (count,), (8,), np.dtype(np.float64), **given)
    return memory, Lender(part)


def test_a_capsule_says_where_memory_is(gpu: Gpu) -> None:
    x = qd.ndarray(qd.f64, (2, 3))
    assert x.__dlpack_device__() == (2, 0)
    for versioned in (False, True):
        managed = x.to_dlpack(versioned)
        assert "versioned" in repr(managed) or not versioned
    part = dlpack.import_view(x, stream=1)
    assert (part.address, part.shape, part.strides) == (x._opened.address, (2, 3), (24, 8))
    assert (part.device, part.dtype) == ((2, 0), np.float64)


def test_the_taker_waits_for_launches(gpu: Gpu) -> None:
    x = qd.ndarray(qd.f64, 3)
    x.fill(1.0)
    handle = gpu.fake.add_foreign_stream()
    double(x)
    double(x, qd_stream=qd.Stream(gpu.fake.add_foreign_stream()))
    part = dlpack.import_view(x, stream=handle)
    with gpu.device.context.active():
        gpu.device.context.wait_for_stream(handle)
    assert gpu.fake.view(part.address, 3, np.float64).tolist() == [4, 4, 4]
    double(x)
    dlpack.import_view(x, stream=-1)  # no stream has to wait
    with gpu.device.context.active():
        gpu.device.context.wait_for_stream(handle)
    assert gpu.fake.view(part.address, 3, np.float64).tolist() == [4, 4, 4]


def test_copies_and_other_devices(gpu: Gpu) -> None:
    x = qd.ndarray(qd.f64, 3)
    x.fill(3.0)
    copied = dlpack.import_view(x, copy=True, stream=1)
    assert copied.device == (2, 0) and copied.address != x._opened.address
    host = dlpack.import_view(x, dl_device=(1, 0))
    assert host.device == (1, 0)
    assert np.ctypeslib.as_array((np.ctypeslib.ctypes.c_double * 3).from_address(host.address))[  # type: ignore[attr-defined]
        :
    ].tolist() == [3, 3, 3]
    with pytest.raises(ValueError, match=r"not on device \(2, 1\)"):
        x.__dlpack__(dl_device=(2, 1))


def test_lent_memory_outlives_the_array(gpu: Gpu) -> None:
    x = qd.ndarray(qd.f64, 3)
    x.fill(5.0)
    part = dlpack.import_view(x, stream=1)
    del x
    gc.collect()
    qd.ndarray(qd.f64, 3)
    qd.sync()
    assert gpu.fake.view(part.address, 3, np.float64).tolist() == [5, 5, 5]


@pytest.mark.parametrize("way", ["dlpack", "interface", "torch"])
def test_lent_memory_is_freed_after_the_work_of_others(gpu: Gpu, way: str) -> None:
    """Which they have queued in streams that are not known here."""
    x = qd.ndarray(qd.f64, 3)
    handle = gpu.fake.add_foreign_stream()
    if way == "dlpack":
        given: Any = dlpack.import_view(x, stream=handle)
    elif way == "interface":
        given = x.__cuda_array_interface__
    else:
        given = gpu.device.export_memory(x.window().storage)
    with gpu.device.context.active():
        gpu.device.context.call("cuMemsetD8Async", x._opened.address, 1, 24, handle)
    del x, given
    gc.collect()
    qd.ndarray(qd.f64, 3)  # frees what was dropped
    qd.sync()
    with gpu.device.context.active():
        gpu.device.context.wait_for_stream(handle)


def test_memory_of_others_is_borrowed(gpu: Gpu) -> None:
    memory, lender = exported(gpu, 3)
    gpu.fake.view(memory.address, 3, np.float64)[:] = 1
    x = qd.from_dlpack(lender)
    assert x.window().address == memory.address
    double(x)
    assert x.to_numpy().tolist() == [2, 2, 2]
    x.fill(7.0)
    double(x)
    qd.sync()
    assert gpu.fake.view(memory.address, 3, np.float64).tolist() == [14, 14, 14]
    before = dlpack.export_count()
    double(x)
    del x
    gc.collect()
    assert dlpack.export_count() == before  # the launch may still run
    qd.sync()
    assert dlpack.export_count() == before - 1


class Computed:
    """An array like those of JAX: it names no stream, and may still be computed."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self.memory = gpu.device.allocate(24)
        self.handle = gpu.fake.add_foreign_stream()
        self.is_ready = False

    def compute(self) -> None:
        device = self._gpu.device
        device.make_stream_wait(self.handle)
        with device.context.active():
            device.context.call("cuMemsetD8Async", self.memory.address, 0x3F, 24, self.handle)

    def block_until_ready(self) -> None:
        with self._gpu.device.context.active():
            self._gpu.device.context.wait_for_stream(self.handle)

    @property
    def __cuda_array_interface__(self) -> Any:
        data = self.memory.address, False
        return {"version": 2, "shape": (3,), "typestr": "<f8", "data": data}


def test_arrays_without_a_stream_are_complete_when_kernels_use_them(gpu: Gpu) -> None:
    given = Computed(gpu)
    given.compute()
    double(given)
    qd.sync()
    found = gpu.fake.view(given.memory.address, 3, np.uint64)
    once = np.full(24, 0x3F, np.uint8).view(np.float64)
    assert found.view(np.float64).tolist() == (2 * once).tolist()


class Exported(Computed):
    """One whose export orders a stream behind its computation, as that of JAX does."""

    streams: tuple[Any, ...] = ()

    def __dlpack__(self, *, stream: int) -> None:
        streams = self._gpu.device.streams
        streams.order(streams.foreign(self.handle), streams.foreign(stream))
        self.streams = (*self.streams, stream)

    def block_until_ready(self) -> None:
        raise AssertionError("the host waits")


def test_the_host_does_not_wait_for_arrays_that_order_a_stream(gpu: Gpu) -> None:
    given = Exported(gpu)
    given.compute()
    double(given)
    assert given.streams
    qd.sync()
    found = gpu.fake.view(given.memory.address, 3, np.uint64)
    once = np.full(24, 0x3F, np.uint8).view(np.float64)
    assert found.view(np.float64).tolist() == (2 * once).tolist()


def test_arrays_without_a_stream_live_until_kernels_have_used_them(gpu: Gpu) -> None:
    """Their library may give their memory to other arrays as soon as they are dropped."""
    for _ in range(3):
        given = Computed(gpu)
        alive = weakref.ref(given)
        double(given)
        del given
        gc.collect()
        assert alive() is not None
    qd.sync()
    gc.collect()
    assert alive() is None
    assert gpu.device.streams.is_busy == 0


def test_memory_of_others_lives_until_a_stream_that_is_theirs_has_used_it(gpu: Gpu) -> None:
    """Another thread may be the one that frees it, before the block of the stream has ended."""
    given = Computed(gpu)
    alive, memory = weakref.ref(given), given.memory
    qd.sync()
    gpu.fake.view(memory.address, 3, np.float64)[:] = 1
    streams = gpu.device.streams
    stream = streams.create(gpu.fake.add_foreign_stream())
    with Using(streams, stream), ThreadPoolExecutor(1) as pool:
        double(given)
        del given
        for _ in range(100):
            if alive() is not None:
                pool.submit(streams.free_unused).result()
        assert alive() is None
        assert gpu.fake.view(memory.address, 3, np.float64).tolist() == [2, 2, 2]
    assert streams.is_busy == 1  # the default stream does not wait yet for the other one
    qd.sync()
    assert streams.is_busy == 0


def test_launches_with_memory_of_others_leave_no_events(gpu: Gpu) -> None:
    """A program that reads its results by JAX never waits for launches."""
    events = gpu.device.streams.dropped_events
    for _ in range(3):
        double(Computed(gpu))
        gpu.device.context.wait_for_stream(0)
    assert not events


def test_memory_that_is_read_only(gpu: Gpu) -> None:
    x = qd.from_dlpack(exported(gpu, 3, is_read_only=True)[1])
    assert x.is_read_only
    with pytest.raises(qd.OctantsRuntimeError, match="read-only"):
        double(x)
    with pytest.raises(ValueError, match="OCT539"):
        x.fill(1.0)


def test_copy_in(gpu: Gpu) -> None:
    memory, lender = exported(gpu, 3)
    gpu.fake.view(memory.address, 3, np.float64)[:] = 4
    x = qd.ndarray(qd.f64, 3)
    copies = gpu.fake.calls["cuMemcpyDtoDAsync"]
    x.from_dlpack(lender)
    assert gpu.fake.calls["cuMemcpyDtoDAsync"] == copies + 1
    y = qd.ndarray(qd.f32, 3)
    y.from_dlpack(lender)  # of another type: by way of the host
    x.from_dlpack(np.full(3, 2.0))
    assert (x[0], y[0]) == (2, 4)


def test_wrong_places(gpu: Gpu) -> None:
    with pytest.raises(ValueError, match=r"memory of the CPU, and kernels run on GPU 0 \(Fake"):
        qd.from_dlpack(np.ones(3))
    other = exported(gpu, 3, device=(2, 1))[1]
    assert qd.from_dlpack(other).device == 1
    with pytest.raises(qd.OctantsRuntimeError, match="GPU 1"):
        qd.ndarray(qd.f64, 3).from_dlpack(other)
