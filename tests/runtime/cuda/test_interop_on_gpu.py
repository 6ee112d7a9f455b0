"""Streams, and arrays shared with other libraries, on a real GPU; skipped where there is none."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.runtime.interop import dlpack
from tests.runtime.cuda.additions import add, slowly_add
from tests.runtime.cuda.test_on_gpu import _has_gpu

pytestmark = pytest.mark.skipif(not _has_gpu(), reason="there is no NVIDIA GPU")

COUNT = 1 << 16


@pytest.fixture(autouse=True)
def start() -> Iterator[None]:
    qd.init(arch=qd.cuda, log_level="error")
    yield
    qd.reset()


@pytest.fixture
def torch() -> Any:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch has no GPU")
    return torch


@qd.kernel
def total(a: qd.types.NDArray[qd.f32, 1]) -> qd.f32:
    s = 0.0
    for i in a:
        s += a[i]
    return s


@qd.kernel
def squares(a: qd.types.NDArray[qd.f32, 1], loss: qd.types.NDArray[qd.f32, 0]):
    for i in a:
        v = a[i]
        for _ in range(3):
            v = v * v
        loss[None] += v


def array(**options: Any) -> Any:
    return qd.ndarray(qd.f32, COUNT, **options)


# -- streams --------------------------------------------------------------------------------------


def test_launches_in_many_streams() -> None:
    arrays = [array() for _ in range(6)]
    streams = [qd.create_stream() for _ in arrays]
    for _ in range(5):
        for a, stream in zip(arrays, streams, strict=True):
            slowly_add(a, 1.0, qd_stream=stream)
    assert [float(a.to_numpy().sum()) for a in arrays] == [5 * COUNT] * 6
    sums = []
    for a, stream in zip(arrays, streams, strict=True):
        slowly_add(a, 1.0, qd_stream=stream)
        sums.append(total(a, qd_stream=stream))
    assert sums == [6 * COUNT] * 6


def test_events() -> None:
    a, one, two = array(), qd.create_stream(), qd.create_stream()
    for n in range(20):
        with qd.create_event() as event:
            slowly_add(a, 1.0, qd_stream=one)
            event.record(one)
            event.wait(two)
            add(a, 1.0, qd_stream=two)
            event.record(two)
            event.wait(one)
        if n % 7 == 0:
            event = qd.create_event()
            event.record(two)
            event.synchronize()
    assert (a.to_numpy() == 40).all()


def test_gradients_in_streams() -> None:
    arrays = [(array(needs_grad=True), qd.ndarray(qd.f32, (), needs_grad=True)) for _ in range(4)]
    streams = [qd.create_stream() for _ in arrays]
    for _ in range(3):
        for (a, loss), stream in zip(arrays, streams, strict=True):
            a.fill(1.0)
            a.grad.fill(0.0)
            loss.fill(0.0)
            squares(a, loss, qd_stream=stream)
            loss.grad.fill(1.0)
            squares.grad(a, loss, qd_stream=stream)
    for a, loss in arrays:
        assert loss[None] == COUNT
        assert (a.grad.to_numpy() == 8).all()


def test_memory_dropped_under_streams(torch: Any) -> None:
    streams = [qd.create_stream(), qd.Stream(torch.cuda.Stream().cuda_stream)]
    for n in range(30):
        a = array()
        slowly_add(a, 1.0, qd_stream=streams[n % 2])
        del a
        fresh = array()
        assert not fresh.to_numpy().any()


def test_launches_in_a_stream_of_torch(torch: Any) -> None:
    side = torch.cuda.Stream()
    stream = qd.Stream(side.cuda_stream)
    a = array()
    for n in range(1, 11):
        with torch.cuda.stream(side):
            big = torch.randn(1000, 1000, device="cuda")
            for _ in range(5):
                big = big @ big
            t = torch.full((COUNT,), float(n), device="cuda")
        slowly_add(t, 1.0, qd_stream=stream)
        slowly_add(a, 1.0, qd_stream=stream)
        with torch.cuda.stream(side):
            t *= 2
            assert (t == 2 * (n + 1)).all().item()
        assert a[COUNT - 1] == n
        a.fill(float(n))


def test_torch_in_a_stream_of_ours(torch: Any) -> None:
    stream = qd.create_stream()
    ours = torch.cuda.ExternalStream(stream.handle)
    with torch.cuda.stream(ours):
        t = torch.zeros(COUNT, device="cuda")
        for _ in range(10):
            slowly_add(t, 1.0, qd_stream=stream)
            t *= 2
        assert (t == 2046).all().item()


def test_tensors_of_a_side_stream(torch: Any) -> None:
    """Without a word: launches stand where torch's current stream is."""
    for n in range(10):
        with torch.cuda.stream(torch.cuda.Stream()):
            big = torch.randn(1000, 1000, device="cuda")
            for _ in range(5):
                big = big @ big
            t = torch.full((COUNT,), float(n), device="cuda")
            slowly_add(t, 1.0)
            t *= 2
            assert (t == 2 * (n + 1)).all().item()


# -- sharing --------------------------------------------------------------------------------------


def test_torch_takes_our_memory(torch: Any) -> None:
    a = array()
    for take in (torch.from_dlpack, lambda x: torch.as_tensor(x, device="cuda")):
        a.fill(1.0)
        slowly_add(a, 1.0)
        t = take(a)
        assert t.data_ptr() == a.address(qd.types.companions.Companion.PRIMAL)
        t += 1
        assert (t == 3).all().item()
        add(a, 1.0)
        assert (t == 4).all().item()
        assert a[5] == 4
    with torch.cuda.stream(torch.cuda.Stream()):
        slowly_add(a, 1.0)
        t = torch.from_dlpack(a)
        assert (t == 5).all().item()


def test_our_memory_outlives_the_array(torch: Any) -> None:
    before = dlpack.export_count()
    a = array()
    a.fill(3.0)
    t = torch.from_dlpack(a)
    del a
    gc.collect()
    others = [array() for _ in range(5)]
    assert (t == 3).all().item() and others
    qd.init(arch=qd.cuda, log_level="error")
    assert (t == 3).all().item()
    del t
    gc.collect()
    assert dlpack.export_count() == before


def test_our_memory_under_work_of_torch_that_nobody_waits_for(torch: Any) -> None:
    side = torch.cuda.Stream()
    for _ in range(20):
        a = array()
        with torch.cuda.stream(side):
            t = torch.from_dlpack(a)
            big = torch.randn(1000, 1000, device="cuda")
            for _ in range(5):
                big = big @ big
            t += 1
        del a, t
        fresh = array()
        assert not fresh.to_numpy().any()


def test_we_borrow_from_torch(torch: Any) -> None:
    t = torch.arange(COUNT, device="cuda", dtype=torch.float32)
    x = qd.from_dlpack(t, needs_grad=True)
    add(x, 1.0)
    assert torch.equal(t.cpu(), torch.arange(1, COUNT + 1, dtype=torch.float32))
    t.fill_(1.0)
    assert total(x) == COUNT
    loss = qd.ndarray(qd.f32, (), needs_grad=True)
    with qd.ad.Tape(loss=loss):
        squares(x, loss)
    assert (x.grad.to_numpy() == 8).all()
    del t
    gc.collect()
    torch.cuda.empty_cache()
    assert total(x) == COUNT


def test_copies_within_the_gpu(torch: Any) -> None:
    x, t = array(), torch.full((COUNT,), 7.0, device="cuda")
    x.from_dlpack(t)
    assert x[3] == 7
    x.from_dlpack(torch.full((COUNT,), 8.0))
    assert x[3] == 8
    copied = torch.from_dlpack(x).clone()
    x.fill(0.0)
    assert (copied == 8).all().item()
    assert np.from_dlpack(torch.from_dlpack(x).cpu()).sum() == 0


@pytest.mark.parametrize("own_stream", [False, True])
def test_cupy(own_stream: bool) -> None:
    cupy = pytest.importorskip("cupy")
    stream = cupy.cuda.Stream(non_blocking=True) if own_stream else cupy.cuda.Stream.null
    with stream:
        c = cupy.zeros(COUNT, cupy.float32) + 1
        add(c, 1.0)
        x = qd.from_dlpack(c)
        same = qd.Stream(stream.ptr)
        slowly_add(x, 1.0, qd_stream=same)
        c *= 2
        assert float(c[7]) == 6
        back = cupy.from_dlpack(x)
        slowly_add(x, 1.0, qd_stream=same)
        assert float(cupy.asarray(x)[9]) == 7
        assert back.data.ptr == c.data.ptr
    del c, back, stream, same
    gc.collect()
    assert x[0] == 7


def test_jax() -> None:
    jax = pytest.importorskip("jax")
    a = jax.numpy.ones(COUNT, jax.numpy.float32) + 1
    if a.devices().pop().platform != "gpu":
        pytest.skip("jax has no GPU")
    x = qd.from_dlpack(a)
    assert total(x) == 2 * COUNT
    y = array()
    y.fill(3.0)
    slowly_add(y, 1.0)
    assert float(jax.dlpack.from_dlpack(y).sum()) == 4 * COUNT
