"""Several GPUs, mostly one at a time; on fake ones."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.runtime.arguments import parameters
from octants.runtime.cuda.context import names_of_devices
from octants.runtime.interop import dlpack
from tests.api import fake_torch
from tests.runtime.cuda.fake_cuda import _CONTEXT, Call
from tests.runtime.cuda.whole import Gpu, gpu, numbers

__all__ = ["gpu"]


@qd.kernel
def double(a: qd.types.NDArray[qd.f32, 1]):
    for i in a:
        a[i] *= 2.0


@qd.kernel
def add(a: qd.types.NDArray[qd.f32, 1], b: qd.types.NDArray[qd.f32, 1]):
    for i in a:
        a[i] += b[i]


@pytest.fixture(autouse=True)
def kernels(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(call: Call) -> None:
        numbers(call, 4, int(call.slots[3]))[:] *= 2

    gpu.fake.kernels["double"] = run
    monkeypatch.delitem(sys.modules, "torch", raising=False)


def use() -> None:
    a = qd.ndarray(qd.f32, 2)
    a.fill(1.0)
    double(a)
    double(a)
    assert a.to_numpy().tolist() == [4, 4]


def test_only_the_gpu_that_is_asked_for_is_touched(gpu: Gpu) -> None:
    gpu.init(device=1)
    use()
    assert gpu.fake.calls["cuDevicePrimaryCtxRetain"] == 1
    assert repr(gpu.device) == "GPU 1 (Fake GPU)"
    assert set(gpu.fake._ordinals.values()) == {1}


def test_one_gpu_after_the_other(gpu: Gpu) -> None:
    for number in (0, 1, 1, 0):
        gpu.init(device=number)
        use()
        assert gpu.fake.stack == [_CONTEXT + number]
        a = qd.ndarray(qd.f32, 2)
        double(a)
        gpu.fake.calls.clear()
        double(a)
        assert gpu.fake.calls == {"cuLaunchKernelEx": 1}


def test_arrays_of_the_gpu_before(gpu: Gpu) -> None:
    gpu.init(device=0)
    a, stream = qd.ndarray(qd.f32, 2), qd.create_stream()
    gpu.init(device=1)
    for wrong in (lambda: double(a), a.to_numpy, lambda: a.__dlpack__()):
        with pytest.raises(qd.OctantsRuntimeError, match="OCT520"):
            wrong()
    with pytest.raises(qd.OctantsRuntimeError, match="OCT418"):
        double(qd.ndarray(qd.f32, 2), qd_stream=stream)


def test_streams_of_another_gpu(gpu: Gpu) -> None:
    gpu.init(device=1)
    here, elsewhere = gpu.fake.add_foreign_stream(1), gpu.fake.add_foreign_stream(0)
    with pytest.raises(qd.OctantsRuntimeError, match="OCT441: the stream is one of GPU 0, and ker"):
        qd.Stream(elsewhere)
    assert gpu.fake.stack == [_CONTEXT + 1]
    a = qd.ndarray(qd.f32, 2)
    a.fill(1.0)
    double(a, qd_stream=qd.Stream(here))
    double(a, qd_stream=qd.Stream(1))
    assert a.to_numpy().tolist() == [4, 4]


def test_what_is_lent_names_its_gpu(gpu: Gpu) -> None:
    for number in (1, 0):
        gpu.init(device=number)
        a = qd.ndarray(qd.f32, 2)
        assert a.__dlpack_device__() == (2, number)
        assert dlpack.import_view(a, stream=0).device == (2, number)
        other = (2, 1 - number)
        with pytest.raises(qd.OctantsError, match="is not on device"):
            a.__dlpack__(dl_device=other)


def test_a_number_that_there_is_not(gpu: Gpu) -> None:
    with pytest.raises(qd.OctantsValueError, match="OCT433: there is no GPU 2"):
        gpu.init(device=2)
    gpu.init(device=1)
    use()


class Tensor(fake_torch.Tensor):
    """A tensor of torch on a GPU, as far as launches touch it."""

    is_cuda = True

    def __init__(self, address: int, ordinal: int) -> None:
        super().__init__(np.zeros(4, np.float32))
        self.address, self.ordinal = address, ordinal
        self.device = fake_torch.Device("cuda", ordinal)

    def get_device(self) -> int:
        return self.ordinal

    def data_ptr(self) -> int:
        return self.address


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """As much of torch as tells its current stream, the attribute `stream`."""
    current = types.SimpleNamespace(cuda_stream=0)
    fake = types.SimpleNamespace(
        Tensor=fake_torch.Tensor,
        cuda=types.SimpleNamespace(
            is_initialized=lambda: True, current_stream=lambda ordinal: current
        ),
        _C=types.SimpleNamespace(),
        current=current,
    )
    monkeypatch.setitem(sys.modules, "torch", fake)
    monkeypatch.setattr(parameters, "_ARRAY_KEYS", dict(parameters._ARRAY_KEYS))
    return fake


def test_a_tensor_of_another_gpu(gpu: Gpu, torch: Any) -> None:
    """A kernel runs on the GPU of its tensors, which starts when it is needed."""
    gpu.init(device=1)
    here = Tensor(gpu.device.allocate(16).address, 1)
    double(here)
    qd.sync()
    assert gpu.fake.calls["cuDevicePrimaryCtxRetain"] == 1
    other = qd.driver.device_at(0)
    elsewhere = Tensor(other.allocate(16).address, 0)
    for _ in range(2):  # also where the kernel knows tensors of this type
        double(elsewhere)
        double(here)
    qd.sync()
    assert gpu.fake.calls["cuDevicePrimaryCtxRetain"] == 2
    assert len(gpu.fake.launches) == 5
    with pytest.raises(qd.OctantsRuntimeError, match="OCT489: .*`a` is on device 0, and `b` on"):
        add(elsewhere, here)


def test_launches_stand_in_the_current_stream_of_torch(gpu: Gpu, torch: Any) -> None:
    gpu.init()
    memory = gpu.device.allocate(16)
    handle = torch.current.cuda_stream = gpu.fake.add_foreign_stream()
    gpu.device.make_stream_wait(handle)  # for the zeros
    context = gpu.device.context
    with context.active():
        one = np.float32(1).view(np.uint32).item()
        for k in range(4):  # what torch does before
            for place, byte in enumerate(one.to_bytes(4, "little")):
                context.call("cuMemsetD8Async", memory.address + 4 * k + place, byte, 1, handle)
    double(Tensor(memory.address, 0))
    double(Tensor(memory.address, 0))
    copied = gpu.device.allocate(16)
    with context.active():  # what torch does afterwards
        context.call("cuMemcpyDtoDAsync", copied.address, memory.address, 16, handle)
        context.wait_for_stream(handle)
    assert gpu.fake.view(copied.address, 4, np.float32).tolist() == [4] * 4


def test_the_context_of_torch_is_left_as_it_is(gpu: Gpu, torch: Any) -> None:
    gpu.init(device=0)
    use()
    gpu.init(device=1)
    use()
    assert gpu.fake.stack == [_CONTEXT + 0]


def test_a_gpu_that_is_too_old_is_passed_over(gpu: Gpu) -> None:
    gpu.fake.capability = (7, 0)
    qd.init(arch=[qd.cuda, qd.python], log_level="error")
    assert qd.cfg.arch is qd.python
    with pytest.raises(qd.OctantsRuntimeError, match="compute capability 7.0, and 7.5 is needed"):
        gpu.init()
    assert gpu.fake.calls["cuDevicePrimaryCtxRetain"] == 0


# -- what goes wrong ------------------------------------------------------------------------------


def test_refused_memory_is_told_with_what_there_is(gpu: Gpu) -> None:
    gpu.init()
    x = qd.field(qd.f32, 1 << 20, name="heights")
    x.fill(1.0)
    kept = [qd.ndarray(qd.f32, (1 << 10, 1 << 10)) for _ in range(3)]
    with pytest.raises(qd.OctantsMemoryError) as caught:
        qd.ndarray(qd.f64, (1 << 12, 1 << 12))
    text = str(caught.value)
    assert "ndarray of f64 of shape (4096, 4096) needs 128.0 MiB" in text
    assert "3 times 4.0 MiB: ndarray of f32 of shape (1024, 1024)" in text
    assert "4.0 MiB: the tree of 1 fields, with field `heights`" in text
    del kept[1:]
    assert qd.ndarray(qd.f32, (1 << 10, 1 << 10)).shape == (1024, 1024)


def test_an_illegal_address_names_the_kernel(gpu: Gpu) -> None:
    gpu.init()
    gpu.fake.kernels["double"] = lambda call: call.words(16, 1) and None
    a = qd.ndarray(qd.f32, 2)
    qd.sync()
    double(a)
    for use in (qd.sync, a.to_numpy, lambda: double(a), lambda: qd.ndarray(qd.f32, 2)):
        with pytest.raises(qd.OctantsRuntimeError, match=r"OCT436[^$]*`double`"):
            use()
    gpu.fake.problems.clear()
    with pytest.warns(qd.OctantsWarning, match="OCT436"):
        qd.reset()
    qd.init(arch=qd.python, log_level="error")
    assert qd.ndarray(qd.f32, 2)[1] == 0


def test_names_are_told_without_a_context_of_the_driver(gpu: Gpu) -> None:
    before = gpu.fake.calls["cuDevicePrimaryCtxRetain"]
    gpu.fake.devices = 3
    assert names_of_devices(gpu.fake.library()) == ("Fake GPU",) * 3
    assert gpu.fake.calls["cuDevicePrimaryCtxRetain"] == before
