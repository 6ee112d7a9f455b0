"""Two real GPUs, one at a time, and tensors on both; skipped where there are less.

`tests/api/test_several_devices.py` uses both at once.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.diagnostics.exceptions import OctantsError
from octants.runtime.cuda.launch_context import driver_library
from octants.types.companions import Companion
from tests.runtime.cuda.additions import add, slowly_add

COUNT = 1 << 12


def _count() -> int:
    count = ctypes.c_int()
    try:
        library = driver_library()
    except OctantsError:
        return 0
    return 0 if library.started() or library.cuDeviceGetCount(ctypes.byref(count)) else count.value


pytestmark = pytest.mark.skipif(_count() < 2, reason="there are no two NVIDIA GPUs")


def start(number: int) -> None:
    qd.init(arch=qd.cuda, device=number, log_level="error", offline_cache=False)


@pytest.fixture(autouse=True)
def end() -> Iterator[None]:
    yield
    qd.reset()


@pytest.fixture
def torch() -> Any:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch has no GPU")
    yield torch
    torch.cuda.set_device(0)


@qd.kernel
def sines(a: qd.types.NDArray[qd.f32, 1], loss: qd.types.NDArray[qd.f32, 0], turns: int):
    for i in a:
        v = a[i]
        for _ in range(turns):
            v = qd.sin(v)
        loss[None] += v


def device() -> Any:
    return qd.driver.state.device


def gradient(turns: int = 100) -> Any:
    """Of a loop that records, on the GPU that there is."""
    a = qd.ndarray(qd.f32, COUNT, needs_grad=True)
    loss = qd.ndarray(qd.f32, (), needs_grad=True)
    a.from_numpy(np.linspace(0.1, 1, COUNT, dtype=np.float32))
    with qd.ad.Tape(loss=loss):
        sines(a, loss, turns)
    return a.grad.to_numpy()


def test_the_second_one_computes() -> None:
    start(1)
    a = qd.ndarray(qd.f32, COUNT)
    add(a, 2.0)
    assert (a.to_numpy() == 2).all()
    assert device().context.ordinal == 1
    assert device().context.ordinal_of(a.address(Companion.PRIMAL)) == 1
    with pytest.raises(qd.OctantsValueError, match=f"OCT433: there is no GPU {_count()}"):
        start(_count())


def test_the_same_bits_on_both() -> None:
    found = []
    for number in (0, 1, 0, 1):
        start(number)
        found.append(gradient())
        with qd.graph.capture() as captured:
            again = gradient_in_graph()
        captured.replay()
        assert np.array_equal(again.to_numpy(), found[-1])
    for other in found[1:]:
        assert np.array_equal(other, found[0])


def gradient_in_graph() -> Any:
    a = qd.ndarray(qd.f32, COUNT, needs_grad=True)
    loss = qd.ndarray(qd.f32, (), needs_grad=True)
    a.from_numpy(np.linspace(0.1, 1, COUNT, dtype=np.float32))
    with qd.ad.Tape(loss=loss):
        sines(a, loss, 100)
    return a.grad


def test_what_was_made_on_the_other_one() -> None:
    start(0)
    a, field = qd.ndarray(qd.f32, COUNT), qd.field(qd.f32, COUNT)
    stream, event = qd.create_stream(), qd.create_event()
    field.fill(1.0)
    start(1)
    b = qd.ndarray(qd.f32, COUNT)
    uses: list[Callable[[], Any]] = [lambda: add(a, 1.0), a.to_numpy, lambda: a.__dlpack__()]
    for use in (*uses, field.to_numpy, lambda: b.copy_from(a)):
        with pytest.raises(qd.OctantsRuntimeError, match="OCT520"):
            use()
    for use in (lambda: add(b, 1.0, qd_stream=stream), event.record, lambda: event.wait()):
        with pytest.raises(qd.OctantsRuntimeError, match="OCT418"):
            use()
    add(b, 1.0)
    assert (b.to_numpy() == 1).all()


# -- torch and others -----------------------------------------------------------------------------


def test_tensors_of_both(torch: Any) -> None:
    start(1)
    here, elsewhere = (torch.ones(COUNT, device=f"cuda:{number}") for number in (1, 0))
    add(here, 1.0)
    shared = qd.from_dlpack(elsewhere)
    assert shared.device == 0
    for _ in range(100):
        add(elsewhere, 1.0)
        add(here, 1.0)
        add(shared, 1.0)
    assert (here == 102).all().item()
    assert (elsewhere == 201).all().item()
    with pytest.raises(qd.OctantsRuntimeError, match="OCT489"):
        sines(here, torch.zeros((), device="cuda:0"), 3)
    assert torch.cuda.current_device() == 0
    loss = torch.zeros((), device="cuda:1")
    x = torch.linspace(0.1, 1, COUNT, device="cuda:1")
    sines(x, loss, 3)
    wanted = torch.sin(torch.sin(torch.sin(x))).sum().item()
    assert abs(loss.item() - wanted) < 1e-3 * wanted


@pytest.mark.parametrize("current", [0, 1])
def test_order_with_torch(torch: Any, current: int) -> None:
    """Whichever of them is current for torch, in its default stream and in others."""
    start(1)
    torch.cuda.set_device(current)
    for n in range(6):
        side = torch.cuda.Stream(1) if n % 2 else torch.cuda.default_stream(1)
        with torch.cuda.stream(side):
            big = torch.randn(1000, 1000, device="cuda:1")
            for _ in range(5):
                big = big @ big
            t = torch.full((COUNT,), float(n), device="cuda:1")
            slowly_add(t, 1.0)
            t *= 2
            assert (t == 2 * (n + 1)).all().item()
        assert torch.cuda.current_device() == current


def test_streams_of_both(torch: Any) -> None:
    start(1)
    with pytest.raises(qd.OctantsRuntimeError, match="OCT441: the stream is one of GPU 0, and ker"):
        qd.Stream(torch.cuda.Stream(0).cuda_stream)
    side = torch.cuda.Stream(1)
    stream, event = qd.Stream(side.cuda_stream), qd.create_event()
    t = torch.zeros(COUNT, device="cuda:1")
    torch.cuda.synchronize(1)
    slowly_add(t, 1.0, qd_stream=stream)
    event.record(stream)
    with torch.cuda.stream(torch.cuda.ExternalStream(qd.create_stream().handle, device="cuda:1")):
        torch.ones(8, device="cuda:1").sum().item()
    event.synchronize()
    assert (t == 1).all().item()
    assert torch.cuda.ExternalStream(stream.handle, device="cuda:1").query()


def test_what_is_lent_is_on_its_gpu(torch: Any) -> None:
    for number in (1, 0):
        start(number)
        a = qd.ndarray(qd.f32, COUNT)
        a.fill(1.0)
        assert a.__dlpack_device__() == (2, number)
        for t in (torch.from_dlpack(a), torch.as_tensor(a, device=f"cuda:{number}")):
            assert t.device == torch.device("cuda", number)
            t += 1
        assert (a.to_numpy() == 3).all()
        assert a.to_torch(copy=False).device.index == number
        b = qd.from_dlpack(torch.full((COUNT,), 5.0, device=f"cuda:{number}"))
        add(b, 1.0)
        assert b[COUNT - 1] == 6


def test_what_is_lent_outlives_the_change(torch: Any) -> None:
    start(0)
    a = qd.ndarray(qd.f32, COUNT)
    a.fill(3.0)
    t = torch.from_dlpack(a)
    del a
    start(1)
    b = qd.ndarray(qd.f32, COUNT)
    add(b, 1.0)
    t += 1
    assert (t == 4).all().item()
    assert (b.to_numpy() == 1).all()


def test_arrays_of_cupy() -> None:
    cupy = pytest.importorskip("cupy")
    start(1)
    with cupy.cuda.Device(0):
        elsewhere = cupy.ones(COUNT, cupy.float32)
    with cupy.cuda.Device(1):
        here = cupy.ones(COUNT, cupy.float32)
        add(here, 1.0)
        assert float(here.sum()) == 2 * COUNT
    add(elsewhere, 1.0)
    assert float(elsewhere.sum()) == 2 * COUNT
    a = qd.ndarray(qd.f32, COUNT)
    a.fill(2.0)
    assert cupy.from_dlpack(a).device.id == 1


# -- threads --------------------------------------------------------------------------------------


def test_threads_that_have_used_the_other_one(torch: Any) -> None:
    start(1)
    a = qd.ndarray(qd.f32, COUNT)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            torch.cuda.set_device(0)
            torch.ones(8, device="cuda:0").sum().item()
            for _ in range(50):
                add(a, 1.0)
            assert torch.cuda.current_device() == 0
            torch.ones(8, device="cuda").sum().item()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert (a.to_numpy() == 150).all()
