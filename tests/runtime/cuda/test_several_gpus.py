"""Two GPUs at once, on a fake driver: contexts, modules, peer copies, and their order."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.runtime.cuda.fake_cuda import _CONTEXT, Call
from tests.runtime.cuda.whole import Gpu, gpu, numbers

__all__ = ["gpu"]
N = 4


@qd.kernel
def double(a: qd.types.NDArray[qd.f32, 1]):
    for i in a:
        a[i] *= 2.0


@pytest.fixture(autouse=True)
def kernels(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(call: Call) -> None:
        numbers(call, 4, int(call.slots[3]))[:] *= 2

    gpu.fake.kernels["double"] = run
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    gpu.init()


def array(device: int, value: float = 1.0) -> Any:
    made = qd.ndarray(qd.f32, N, device=device)
    made.fill(value)
    return made


def values(x: Any) -> list[float]:
    found: list[float] = x.to_numpy().tolist()
    return found


def test_each_gpu_has_its_context_and_its_code(gpu: Gpu) -> None:
    x = array(0)
    double(x)
    qd.sync()
    assert gpu.fake.calls["cuDevicePrimaryCtxRetain"] == 1
    links, loads = gpu.fake.calls["cuLinkCreate"], gpu.fake.calls["cuModuleLoadDataEx"]
    y = array(1)
    for _ in range(3):
        double(y)
        double(x)
    assert values(x) == [16] * N
    assert values(y) == [8] * N
    assert gpu.fake.calls["cuDevicePrimaryCtxRetain"] == 2
    assert gpu.fake.calls["cuModuleLoadDataEx"] == loads + 1
    assert gpu.fake.calls["cuLinkCreate"] == links  # GPUs of one kind share the code
    ordinals = [gpu.fake._ordinals[each.window().address] for each in (x, y)]
    assert ordinals == [0, 1]


def test_a_copy_from_gpu_to_gpu(gpu: Gpu) -> None:
    x, y = array(0, 3.0), array(1)
    qd.sync()
    gpu.fake.calls.clear()
    y.copy_from(x)
    assert gpu.fake.calls["cuMemcpyPeerAsync"] == 1
    for name in ("cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cuStreamQuery", "cuMemcpyDtoDAsync"):
        assert gpu.fake.calls[name] == 0
    assert values(y) == [3] * N


def test_gpus_that_can_access_each_other_copy_without_the_host(gpu: Gpu) -> None:
    x, y = array(0, 3.0), array(1)
    for _ in range(3):
        y.copy_from(x)
    assert gpu.fake.accesses == {(_CONTEXT + 1, _CONTEXT)}
    x.copy_from(y)
    assert gpu.fake.accesses == {(_CONTEXT + 1, _CONTEXT), (_CONTEXT, _CONTEXT + 1)}
    assert gpu.fake.calls["cuMemPoolSetAccess"] == gpu.fake.calls["cuCtxEnablePeerAccess"] == 2
    assert values(x) == [3] * N


@pytest.mark.parametrize("refused", ["by the machine", "by the driver", "for the pool"])
def test_gpus_that_cannot_access_each_other(gpu: Gpu, refused: str) -> None:
    gpu.fake.peers = refused != "by the machine"
    if refused == "by the driver":
        gpu.fake.fail("cuCtxEnablePeerAccess", 217)
    if refused == "for the pool":
        gpu.fake.fail("cuMemPoolSetAccess", 217)
    x, y = array(0, 3.0), array(1)
    for _ in range(2):
        y.copy_from(x)
    assert gpu.fake.calls["cuDeviceCanAccessPeer"] == 1
    assert gpu.fake.calls["cuMemPoolSetAccess"] == (refused == "for the pool")
    assert values(y) == [3] * N


def test_a_copy_comes_after_what_was_launched_on_both(gpu: Gpu) -> None:
    x, y = array(0, 3.0), array(1)
    double(x)
    double(y)
    y.copy_from(x)
    double(y)
    assert values(y) == [12] * N  # the host waits for the GPU of y only


def test_what_comes_later_waits_for_a_copy(gpu: Gpu) -> None:
    x, y = array(0, 3.0), array(1)
    y.copy_from(x)
    double(x)
    assert values(x) == [6] * N  # the host waits for the GPU of x only
    assert values(y) == [3] * N


def test_memory_that_is_dropped_after_a_copy(gpu: Gpu) -> None:
    y = array(1)
    for k in range(20):
        x = array(0, float(k))
        y.copy_from(x)
        del x
        array(0, 77.0)
    assert values(y) == [19] * N


def test_copies_in_both_directions(gpu: Gpu) -> None:
    x, y = array(0), array(1)
    for _ in range(5):
        double(x)
        y.copy_from(x)
        double(y)
        x.copy_from(y)
    assert values(x) == values(y) == [4**5] * N


def test_a_refused_copy_is_an_error(gpu: Gpu) -> None:
    x, y = array(0), array(1)
    gpu.fake.fail("cuMemcpyPeerAsync", 1)
    with pytest.raises(qd.OctantsRuntimeError, match="cuMemcpyPeerAsync failed"):
        y.copy_from(x)
    y.copy_from(x)


def test_replays_run_on_their_own_gpu(gpu: Gpu) -> None:
    """A graph would be launched in the default stream of whichever context is current."""
    x = array(0, 0.0)
    for _ in range(100):
        double(x)
    y = array(1, 0.0)
    for _ in range(100):
        double(y)
        double(x)
    gpu.fake.calls.clear()
    for _ in range(3):
        x.fill(1.0)
        y.fill(2.0)
        double(y)
        double(x)
        assert values(x) == [2] * N  # the host waits for one GPU
        assert values(y) == [4] * N
    assert gpu.fake.calls["cuGraphLaunch"] == 6
    assert gpu.fake.calls["cuLaunchKernelEx"] == 0


def test_a_second_gpu_costs_launches_on_the_first_nothing(gpu: Gpu) -> None:
    x = array(0)
    array(1)
    for _ in range(100):
        double(x)
    gpu.fake.calls.clear()
    double(x)
    assert gpu.fake.calls == {"cuGraphLaunch": 1, "cuCtxGetCurrent": 1}


def test_launches_with_new_arguments_in_turns(gpu: Gpu) -> None:
    arrays = [array(k % 2, 1.0) for k in range(8)]
    for _ in range(3):
        for x in arrays:
            double(x)
    assert all(values(x) == [8] * N for x in arrays)
    assert gpu.fake.calls["cuGraphLaunch"] == 0


def test_a_stream_whose_block_has_begun_before_the_second_gpu(gpu: Gpu) -> None:
    """Kernels do not run in the default stream of another GPU meanwhile."""
    x, device = array(0), qd.driver.state.device
    with device.using(device.create_stream()):
        y = qd.ndarray(qd.f32, N, device=1)
        double(x)
        for use in (lambda: double(y), lambda: y.fill(1.0)):
            with pytest.raises(qd.OctantsRuntimeError, match="OCT441: the stream is one of GPU 0"):
                use()
    y.fill(1.0)
    double(y)
    assert values(x) == values(y) == [2] * N
    assert device.streams.is_busy == qd.driver.state.devices.at(1).streams.is_busy == 0


def test_one_gpu_pays_nothing(gpu: Gpu) -> None:
    for device in (0, 1):
        gpu.init(device=device)
        x = array(device)
        double(x)
        gpu.fake.calls.clear()
        double(x)
        assert gpu.fake.calls == {"cuLaunchKernelEx": 1}


def test_clears_that_repeat(gpu: Gpu) -> None:
    """The graph of fills runs in the stream of its own GPU."""
    arrays = [qd.ndarray(qd.f32, N, needs_grad=True, device=k % 2) for k in range(6)]
    for _ in range(40):
        for x in arrays:
            x.grad.fill(1.0)
        qd.ad.clear_all_gradients()
        assert not any(any(values(x.grad)) for x in arrays)
    assert gpu.fake.calls["cuGraphLaunch"] > 0


def test_threads(gpu: Gpu) -> None:
    arrays = [array(0, 0.5), array(1, 0.5)]
    failed: list[BaseException] = []

    def work(x: Any) -> None:
        try:
            for _ in range(30):
                double(x)
                x.copy_from(x)
            values(x)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(x,)) for x in arrays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert values(arrays[0]) == values(arrays[1]) == [2.0**29] * N


def test_the_context_of_torch_is_left_as_it_is(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = array(0), array(1)
    values(x)
    current = gpu.fake.stack[-1]
    monkeypatch.setitem(sys.modules, "torch", sys)  # from now on contexts are restored
    for _ in range(3):
        double(x)
        double(y)
        y.copy_from(x)
        assert gpu.fake.stack == [current]
    assert values(y) == [8] * N


def test_replays_while_torch_works_on_another_gpu(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They run in the default stream of their own GPU, in order with what is launched there."""
    x, y = array(0), array(0)
    for _ in range(100):
        double(x)
        x.fill(1.0)
    monkeypatch.setitem(sys.modules, "torch", sys)
    replays = gpu.fake.calls["cuGraphLaunch"]
    for _ in range(3):
        gpu.fake.stack.append(_CONTEXT + 1)
        double(x)
        gpu.fake.stack.pop()
        y.copy_from(x)
        assert values(y) == [2] * N
        x.fill(1.0)
    assert gpu.fake.calls["cuGraphLaunch"] == replays + 3


def test_events_order_streams_of_two_gpus(gpu: Gpu) -> None:
    x, y = array(0), array(1)
    one, two = qd.create_stream(), qd.create_stream(device=1)
    contexts = [gpu.fake._streams[each.handle].context for each in (one, two)]
    assert contexts == [_CONTEXT, _CONTEXT + 1]
    done = qd.create_event()
    order: list[int] = []

    def run(call: Call) -> None:
        order.append(call.stream)
        numbers(call, 4, int(call.slots[3]))[:] *= 2

    gpu.fake.kernels["double"] = run
    double(x, qd_stream=one)
    done.record(one)
    done.wait(two)
    double(y, qd_stream=two)
    two.synchronize()
    assert order == [one.handle, two.handle]


def test_a_second_gpu_that_is_refused(gpu: Gpu) -> None:
    with pytest.raises(qd.OctantsValueError, match="OCT433: there is no GPU 2"):
        array(2)
    gpu.fake.fail("cuDevicePrimaryCtxRetain", 2)
    with pytest.raises(qd.OctantsRuntimeError, match="cuDevicePrimaryCtxRetain"):
        array(1)
    x, y = array(0), array(1)
    double(x)
    double(y)
    assert values(x) == values(y) == [2] * N


def test_a_second_gpu_of_another_kind(gpu: Gpu) -> None:
    """Its code is compiled for it."""
    gpu.fake.capabilities[1] = (8, 0)
    x = array(0)
    double(x)
    qd.sync()
    links = gpu.fake.calls["cuLinkCreate"]
    y = array(1)
    for _ in range(2):
        double(y)
    assert values(y) == [4] * N
    assert gpu.fake.calls["cuLinkCreate"] == links + 1


def test_arrays_outlive_reset_only_as_memory(gpu: Gpu) -> None:
    y = array(1)
    qd.reset()
    with pytest.raises(qd.OctantsRuntimeError, match="OCT520"):
        y.to_numpy()
    gpu.init(device=1)
    assert np.array_equal(array(0).to_numpy(), array(1).to_numpy())
