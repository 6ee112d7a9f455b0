"""Arrays of other libraries on a fake GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octants.diagnostics.exceptions import OctantsRuntimeError
from octants.runtime.cuda import foreign_arrays
from octants.runtime.cuda.device import CudaDevice
from octants.runtime.interop import dlpack
from tests.runtime.cuda.fake_cuda import FakeCuda
from tests.runtime.cuda.kernels import read


class Array:
    """What offers ``__cuda_array_interface__``."""

    def __init__(self, address: int, shape: tuple[int, ...], **more: Any) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, more.pop("read_only", False)),
            "shape": shape,
            "typestr": "<f4",
            "version": 3,
            **more,
        }


def test_what_is_on_no_gpu(device: CudaDevice) -> None:
    for value in (np.zeros(3), 5, [1], object()):
        assert device.foreign(value, "x") is None


def test_array_interface(fake: FakeCuda, device: CudaDevice) -> None:
    memory = device.allocate(48)
    found = device.foreign(Array(memory.address, (3, 4)), "x")
    assert found is not None
    assert (found.address, found.shape, found.dtype) == (memory.address, (3, 4), np.float32)
    assert found.strides == (16, 4)
    found = device.foreign(Array(memory.address, (3, 4), strides=(4, 12), read_only=True), "x")
    assert found is not None
    assert found.strides == (4, 12)
    assert found.is_read_only


def test_the_stream_of_an_array_is_waited_for(fake: FakeCuda, device: CudaDevice) -> None:
    memory, other = device.allocate(8), device.allocate(8)
    handle = fake.add_foreign_stream()
    device.make_stream_wait(handle)
    with device.context.active():
        device.context.call("cuMemsetD8Async", memory.address, 1, 8, handle)
    device.foreign(Array(memory.address, (2,), stream=handle), "x")
    device.copy(other.address, memory.address, 8)
    with device.context.active():
        device.context.wait_for_stream(0)
    assert read(device, other.address, 8, np.uint8) == [1] * 8
    for stream in (None, 1):
        device.foreign(Array(memory.address, (2,), stream=stream), "x")


def test_memory_of_another_gpu(
    fake: FakeCuda, device: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device.context, "ordinal_of", lambda address: 1)
    with pytest.raises(OctantsRuntimeError, match=r"argument `x` is in the memory of GPU 1"):
        device.foreign(Array(device.allocate(8).address, (2,)), "argument `x`")


def test_memory_that_the_driver_does_not_know(device: CudaDevice) -> None:
    assert device.context.ordinal_of(16) is None
    assert device.context.ordinal_of(device.allocate(8).address) == 0


class Lender:
    """What offers DLPack: capsules over memory that is said to be on a GPU."""

    def __init__(self, part: dlpack.DlpackView, *, knows_versions: bool = True) -> None:
        self.part = part
        self.knows_versions = knows_versions
        self.streams: list[int] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.part.device

    def __dlpack__(self, *, stream: int, **more: Any) -> Any:
        if more and not self.knows_versions:
            raise TypeError("no such argument")
        self.streams.append(stream)
        return dlpack.export_capsule(self.part, versioned="max_version" in more)


def part(address: int, shape: tuple[int, ...], strides: tuple[int, ...], **more: Any) -> Any:
    given = {"device": (2, 0), "is_read_only": False, "owner": None, **more}
    return dlpack.DlpackView(address, shape, strides, np.dtype(np.float64), **given)


@pytest.mark.parametrize("knows_versions", [False, True])
@pytest.mark.parametrize("strides", [(32, 8), (8, 24)])
def test_dlpack(device: CudaDevice, strides: tuple[int, ...], knows_versions: bool) -> None:
    memory = device.allocate(200)
    exported = part(memory.address, (3, 4), strides, is_read_only=knows_versions)
    lender = Lender(exported, knows_versions=knows_versions)
    found = device.foreign(lender, "x")
    assert found is not None
    assert (found.address, found.shape, found.dtype) == (memory.address, (3, 4), np.float64)
    assert (found.strides, found.is_read_only) == (strides, knows_versions)
    stream = device.create_stream()
    with device.using(stream):
        device.foreign(lender, "x")
    assert lender.streams == [1, stream.handle]


def test_dlpack_of_another_gpu(device: CudaDevice) -> None:
    lender = Lender(part(4096, (3,), (8,), device=(2, 1)))
    with pytest.raises(OctantsRuntimeError, match="memory of GPU 1, and kernels run on GPU 0"):
        device.foreign(lender, "x")


def test_what_is_offered_to_others() -> None:
    offered = foreign_arrays.array_interface(4096, (3, 4), (16, 4), "<f4", 0)
    assert offered["data"] == (4096, False)
    assert offered["stream"] == 1
    assert foreign_arrays.array_interface(4096, (0, 4), (16, 4), "<f4", 7)["data"] == (0, False)


def test_torch_without_a_gpu(device: CudaDevice) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        assert foreign_arrays.torch_stream(0) == 0
        assert device.foreign(torch.zeros(3), "x") is None
