"""The runtime on a real GPU, with kernels in PTX; skipped where there is none."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from octants.artifact import Artifact, Dispatch, RecordBufferSizeInputs
from octants.diagnostics.exceptions import (
    InternalError,
    OctantsAssertionError,
    OctantsError,
    OctantsMemoryError,
)
from octants.runtime.capture import Capture
from octants.runtime.cuda.device import CudaDevice
from octants.runtime.cuda.graphs.captured_commands import CudaGraph
from octants.runtime.cuda.kernel import CudaKernel
from octants.runtime.cuda.transfers import LARGE as CHUNK
from tests.runtime.cuda import ptx
from tests.runtime.cuda.kernels import ASSERT, PRINT, Block, launch, read, write


def _has_gpu() -> bool:
    try:
        CudaDevice()
    except OctantsError:
        return False
    return True


pytestmark = pytest.mark.skipif(not _has_gpu(), reason="there is no NVIDIA GPU")

ADD = ptx.kernel([(Dispatch("add", 0, "(slots[4], slots[5])"), ptx.ADD)], 3)


def record(
    bounds: str = "(slots[4], slots[5])",
    block: int = 0,
    needs: RecordBufferSizeInputs | None = None,
) -> Artifact:
    dispatch = Dispatch("record", 0, bounds, block, records=True, needs=needs)
    return ptx.kernel([(dispatch, ptx.RECORDS)], 3)


BY_ITEM = RecordBufferSizeInputs(slots=(), by_item=True)


@pytest.fixture
def device() -> Iterator[CudaDevice]:
    device = CudaDevice()
    yield device
    device.close()


def test_what_there_is(device: CudaDevice) -> None:
    context = device.context
    assert context.capability >= (7, 5)
    assert context.multiprocessors > 0
    assert 0 < context.free_memory() <= context.total_memory
    assert context.name


def test_memory_is_zero(device: CudaDevice) -> None:
    for _ in range(3):
        memory = device.allocate(1 << 20)
        assert memory.address % 64 == 0
        assert not any(read(device, memory.address, 1 << 17))
        write(device, memory.address, np.full(1 << 17, 7))
        del memory


@pytest.mark.parametrize("count", [1, 4096, CHUNK, 5 * CHUNK + 13])
def test_copies(device: CudaDevice, count: int) -> None:
    one, two = device.allocate(count), device.allocate(count)
    values = np.random.default_rng(1).integers(0, 256, count, np.uint8)
    device.write(one.address, values)
    device.copy(two.address, one.address, count)
    device.clear(one.address, count)
    back = np.zeros(count, np.uint8)
    device.read(two.address, back)
    assert np.array_equal(back, values)
    device.read(one.address, back)
    assert not back.any()


@pytest.mark.parametrize("bounds", [(0, 1), (3, 100), (0, 10**6), (5, 5), (7, 2)])
def test_launch(device: CudaDevice, bounds: tuple[int, int]) -> None:
    memory = device.allocate(8 * 10**6)
    kernel = device.load(ADD)
    for _ in range(3):
        launch(kernel, memory.address, *bounds)
    expected = np.zeros(10**6, np.int64)
    expected[slice(*bounds)] = 3
    assert read(device, memory.address, 10**6) == expected.tolist()


def test_bounds_of_the_device(device: CudaDevice) -> None:
    memory = device.allocate(8000)
    both = [(Dispatch("tell", 0), ptx.TELL), (Dispatch("use", 0, "device"), ptx.USE)]
    kernel = device.load(ptx.kernel(both, 3))
    launch(kernel, memory.address, 10, 900)
    launch(kernel, memory.address, 20, 20)
    expected = [int(10 <= k < 900) for k in range(1000)]
    assert read(device, memory.address, 1000) == expected


def test_parameters_by_their_address(device: CudaDevice) -> None:
    memory = device.allocate(800)
    metadata = (("parameters", "pointer"),)
    dispatch = Dispatch("follow", 0, "(0, slots[5])")
    kernel = device.load(ptx.kernel([(dispatch, ptx.FOLLOW)], 3, metadata=metadata))
    for value in (1, 2, 3):
        launch(kernel, memory.address, value, 100)
    assert read(device, memory.address, 100) == [3] * 100


def test_messages(device: CudaDevice, capsys: Any) -> None:
    speak = ptx.kernel([(Dispatch("speak", 0), ptx.SPEAK)], 2, (PRINT, ASSERT))
    kernel = device.load(speak)
    for value in range(200):
        launch(kernel, value % 2, value)
    device.synchronize()
    assert capsys.readouterr().out == "".join(f"x = {k}\n" for k in range(1, 200, 2))
    launch(kernel, 2, 5)
    launch(kernel, 3, 6)
    with pytest.raises(OctantsAssertionError, match="it is 5"):
        device.synchronize()
    assert capsys.readouterr().out == "x = 6\n"
    launch(kernel, 0, 0)
    device.synchronize()


@pytest.mark.parametrize("items", [1, 100, 10_000, 300_001])
@pytest.mark.parametrize("budget", [0, 1 << 20])
def test_tapes(items: int, budget: int) -> None:
    device = CudaDevice(record_budget=budget)
    memory = device.allocate(8 * items)
    kernel = device.load(record())
    for _ in range(2):
        launch(kernel, memory.address, 0, items)
    n = np.arange(items) % 1000
    expected = 2 * (n * (n - 1) // 2)
    assert np.array_equal(np.array(read(device, memory.address, items)), expected)
    device.close()


def test_tapes_that_are_refused_memory() -> None:
    device = CudaDevice(record_buffer_limit=1 << 20)
    memory = device.allocate(8 * 5000)
    launch(device.load(record(block=128)), memory.address, 0, 5000)
    n = np.arange(5000) % 1000
    assert np.array_equal(np.array(read(device, memory.address, 5000)), n * (n - 1) // 2)
    device.close()
    device = CudaDevice(record_buffer_limit=1 << 16)
    with pytest.raises(OctantsMemoryError, match="3996 bytes"):
        launch(device.load(record()), memory.address, 0, 5000)
    device.close()


def test_streams(device: CudaDevice) -> None:
    memory = device.allocate(8 * 1000)
    add, recording = device.load(ADD), device.load(record())
    spin = device.load(ptx.kernel([(Dispatch("spin", 0), ptx.SPIN)], 1))
    streams = [device.create_stream() for _ in range(4)]
    others = [device.allocate(8 * 1000) for _ in streams]
    for stream, other in zip(streams, others, strict=True):
        with device.using(stream):
            launch(spin, 10**7)
            launch(add, other.address, 0, 1000)
            launch(recording, other.address, 0, 1000)
    # The default stream waits for all of them.
    for other in others:
        device.copy(memory.address, other.address, 8000)
        values = np.array(read(device, memory.address, 1000))
        n = np.arange(1000)
        assert np.array_equal(values, n * (n - 1) // 2 + 1)
    for stream in streams:
        stream.destroy()


def test_memory_dropped_under_a_stream_at_work(device: CudaDevice) -> None:
    add = device.load(ADD)
    spin = device.load(ptx.kernel([(Dispatch("spin", 0), ptx.SPIN)], 1))
    kept = device.allocate(8 * 1000)
    stream = device.create_stream()
    for _ in range(20):
        dropped = device.allocate(8 * 1000)
        with device.using(stream):
            launch(spin, 10**6)
            launch(add, dropped.address, 0, 1000)
        del dropped
        fresh = device.allocate(8 * 1000)
        device.copy(kept.address, fresh.address, 8 * 1000)
        assert not any(read(device, kept.address, 1000))


def test_order_with_a_stream_of_others(device: CudaDevice) -> None:
    """Streams that do not wait for the default stream by themselves."""
    handle = ctypes.c_void_p()
    with device.context.active():
        device.context.call("cuStreamCreate", ctypes.byref(handle), 1)
    foreign = device.streams.foreign(handle.value or 0)
    spin = device.load(ptx.kernel([(Dispatch("spin", 0), ptx.SPIN)], 1))
    add = device.load(ADD)
    for _ in range(10):
        memory = device.allocate(8 * 1000)
        with device.using(foreign):
            launch(spin, 2 * 10**6)
            launch(add, memory.address, 0, 1000)
            assert read(device, memory.address, 1000) == [1] * 1000
            launch(spin, 2 * 10**6)
            launch(add, memory.address, 0, 1000)
        device.wait_for_foreign(foreign.handle)
        launch(add, memory.address, 0, 1000)
        device.make_stream_wait(foreign.handle)
        with device.using(foreign):
            launch(add, memory.address, 0, 1000)
        assert read(device, memory.address, 1000) == [4] * 1000


def test_events(device: CudaDevice) -> None:
    spin = device.load(ptx.kernel([(Dispatch("spin", 0), ptx.SPIN)], 1))
    with device.create_stream() as stream, device.create_event() as event:
        with device.using(stream):
            start = time.perf_counter()
            launch(spin, 5 * 10**7)
            event.record()
        event.synchronize()
        assert time.perf_counter() - start >= 0.04


def test_threads(device: CudaDevice) -> None:
    memory = device.allocate(8 * 4)
    kernel = device.load(ADD)

    def work(k: int) -> None:
        for _ in range(500):
            launch(kernel, memory.address, k, k + 1)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read(device, memory.address, 4) == [500] * 4


def test_memory_that_there_is_not(device: CudaDevice) -> None:
    keep = device.allocate(1 << 20, "field `x`")
    with pytest.raises(OctantsMemoryError, match=r"1\.0 MiB: field `x`"):
        device.allocate(1 << 44)
    assert read(device, keep.address, 10) == [0] * 10
    half = device.context.free_memory() * 6 // 10
    for _ in range(3):
        device.allocate(half)


def held(device: CudaDevice) -> int:
    """What the pool of the process has of the system; other processes have their own."""
    return device.memory.pooled_bytes() + device.live_bytes()


def test_memory_goes_back_to_the_system(device: CudaDevice) -> None:
    if not device.context.has_pools:
        pytest.skip("what is freed is the system's at once")
    small = device.allocate(8)
    before = held(device)
    memory = device.allocate(1 << 30)
    assert held(device) >= 1 << 30
    del memory
    assert device.pools()["free in the pool"] >= 1 << 30
    device.close()
    assert held(device) <= before
    assert read(device, small.address, 1) == [0]


def test_code_that_is_none(device: CudaDevice) -> None:
    bad = ptx.kernel([(Dispatch("bad", 0), "  nonsense;\n}\n")], 0)
    with pytest.raises(InternalError, match="nonsense|line"):
        device.load(bad)


def test_ctrl_c_ends_a_wait(device: CudaDevice) -> None:
    spin = device.load(ptx.kernel([(Dispatch("spin", 0), ptx.SPIN)], 1))
    launch(spin, 10**9)
    timer = threading.Timer(0.1, lambda: signal.raise_signal(signal.SIGINT))
    start = time.perf_counter()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        device.synchronize()
    assert time.perf_counter() - start < 0.9
    device.synchronize()


class Captured:
    """What is captured of a device from now on, without what stands above it."""

    def __init__(self, device: CudaDevice) -> None:
        self.device, self.capture = device, Capture()
        self.capture.begin()

    def launch(self, kernel: CudaKernel, *values: int) -> None:
        block = Block(*values)
        kernel.launch(block.address)
        place = block.address, ctypes.sizeof(block.slots), 0
        self.capture.launched(kernel.launch, kernel, self, place, block, ())

    def graph(self) -> CudaGraph:
        self.capture.end()
        return self.device.make_graph(self.capture.commands)


def test_graphs(device: CudaDevice) -> None:
    one, two, rows = (device.allocate(8 * 1000) for _ in range(3))
    add, recording = device.load(ADD), device.load(record(needs=BY_ITEM))
    captured = Captured(device)
    device.clear(one.address, 8 * 1000)
    write(device, one.address, [5, 6, 7])
    captured.launch(add, one.address, 0, 1000)
    device.copy(two.address, one.address, 8 * 500)
    captured.launch(recording, two.address, 0, 1000)
    device.copy_rows(rows.address, 16, two.address, 8, 8, 500)
    graph = captured.graph()
    device.clear(two.address, 8 * 1000)
    assert graph.is_one_launch
    n = np.arange(1000)
    pushed = n * (n - 1) // 2
    first = np.ones(1000, np.int64)
    first[:3] = 6, 7, 8
    for times in (1, 2, 3):
        write(device, one.address, np.full(1000, 9))
        graph(0)
        assert read(device, one.address, 1000) == first.tolist()
        expected = np.where(n < 500, first + pushed, times * pushed)
        assert read(device, two.address, 1000) == expected.tolist()
        assert read(device, rows.address, 1000)[::2] == expected[:500].tolist()


def test_messages_of_graphs(device: CudaDevice, capsys: Any) -> None:
    speak = ptx.kernel([(Dispatch("speak", 0), ptx.SPEAK)], 2, (PRINT, ASSERT))
    kernel = device.load(speak)
    captured = Captured(device)
    for value in range(6):
        captured.launch(kernel, value % 2, value)
    graph = captured.graph()
    device.synchronize()
    capsys.readouterr()
    graph(0)
    graph(0)
    device.synchronize()
    assert capsys.readouterr().out == "x = 1\nx = 3\nx = 5\n" * 2


def test_graphs_in_streams(device: CudaDevice) -> None:
    memory, recording = device.allocate(8 * 1000), device.load(record(needs=BY_ITEM))
    spin = device.load(ptx.kernel([(Dispatch("spin", 0), ptx.SPIN)], 1))
    captured = Captured(device)
    captured.launch(spin, 10**6)
    captured.launch(recording, memory.address, 0, 1000)
    graphs = [captured.graph(), captured.graph()]
    device.clear(memory.address, 8 * 1000)
    streams = [device.create_stream() for _ in range(3)]
    for stream in streams:
        for graph in graphs:  # they share the memory of their record buffers
            with device.using(stream):
                graph(0)
    n = np.arange(1000)
    assert read(device, memory.address, 1000) == (6 * (n * (n - 1) // 2)).tolist()
    for stream in streams:
        stream.destroy()


LOST = """
from octants.artifact import Dispatch
from octants.diagnostics.exceptions import OctantsRuntimeError
from octants.runtime.capture import Capture
from octants.runtime.cuda.device import CudaDevice
from octants.runtime.cuda.graphs.captured_commands import CudaGraph
from octants.runtime.cuda.kernel import CudaKernel
from tests.runtime.cuda import ptx
from tests.runtime.cuda.kernels import launch
device = CudaDevice()
memory = device.allocate(80)
add = device.load(ptx.kernel([(Dispatch("add", 0, "(0, 10)"), ptx.ADD)], 1))
bad = device.load(ptx.kernel([(Dispatch("bad", 0), ptx.TRAP)], 0))
launch(add, memory.address)
device.synchronize()
launch(bad)
for use in (device.synchronize, lambda: device.allocate(8), lambda: launch(add, memory.address)):
    try:
        use()
    except OctantsRuntimeError as error:
        print(error)
device.close()
print("closed")
"""


def test_an_illegal_address() -> None:
    command = [sys.executable, "-c", LOST]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.count("OCT436") == 3
    assert "`bad`" in done.stdout and "`add`" not in done.stdout
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in done.stdout
    assert done.stdout.endswith("closed\n")


# -- torch ----------------------------------------------------------------------------------------


@pytest.fixture
def torch() -> Any:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch has no GPU")
    return torch


def test_torch_shares_the_context(device: CudaDevice, torch: Any) -> None:
    x = torch.arange(1000, dtype=torch.int64, device="cuda")
    found = device.foreign(x, "x")
    assert found is not None
    assert (found.shape, found.strides, found.dtype) == ((1000,), (8,), np.int64)
    assert device.context.ordinal_of(found.address) == 0
    launch(device.load(ADD), found.address, 0, 1000)
    assert torch.equal(x.cpu(), torch.arange(1, 1001))


def test_torch_in_a_stream_of_its_own(device: CudaDevice, torch: Any) -> None:
    add = device.load(ADD)
    spin = device.load(ptx.kernel([(Dispatch("spin", 0), ptx.SPIN)], 1))
    for _ in range(5):
        with torch.cuda.stream(torch.cuda.Stream()):
            big = torch.randn(4000, 4000, device="cuda")
            for _ in range(3):
                big = big @ big
            x = torch.zeros(1000, dtype=torch.int64, device="cuda") + 5
            handle = torch.cuda.current_stream().cuda_stream
            device.wait_for_foreign(handle)
            launch(spin, 10**6)
            launch(add, x.data_ptr(), 0, 1000)
            device.make_stream_wait(handle)
            x *= 2
            assert x.cpu().tolist() == [12] * 1000


@pytest.mark.parametrize("own", [False, True])
def test_dlpack_and_the_array_interface_of_torch(device: CudaDevice, torch: Any, own: bool) -> None:
    x = torch.arange(24, dtype=torch.int64, device="cuda").reshape(4, 6).t()

    class Interface:
        __cuda_array_interface__ = x.__cuda_array_interface__

    class Capsule:
        __dlpack__, __dlpack_device__ = x.__dlpack__, x.__dlpack_device__

    with device.using(device.create_stream() if own else device.streams.default):
        for value in (Interface(), Capsule()):
            found = device.foreign(value, "x")
            assert found is not None
            assert (found.shape, found.strides, found.dtype) == ((6, 4), (8, 48), np.int64)
            assert found.address == x.data_ptr()


def test_torch_takes_our_memory(device: CudaDevice, torch: Any) -> None:
    from octants.runtime.cuda.foreign_arrays import array_interface

    memory = device.allocate(800)

    class Ours:
        __cuda_array_interface__ = array_interface(memory.address, (100,), (8,), "<i8", 0)

    launch(device.load(ADD), memory.address, 0, 100)
    tensor = torch.as_tensor(Ours(), device="cuda")
    assert tensor.cpu().tolist() == [1] * 100
    tensor += 1
    launch(device.load(ADD), memory.address, 0, 100)
    assert read(device, memory.address, 100) == [3] * 100
