"""Copies to and from memory that the host has not mapped, and large ones within its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.ir.core import Companion
from octants.runtime.gpu import batched_staging_buffer, staging
from octants.runtime.memory import threaded_copy
from octants.runtime.memory.host import address_of
from octants.runtime.vulkan.device import VulkanDevice
from octants.runtime.vulkan.physical_devices import Hardware
from tests.vulkan import compiled

COUNT = 10_007


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[VulkanDevice, Any]]:
    """An array in memory that the host does not reach, and its device."""
    compiled.device()  # or skip
    qd.init(arch=qd.vulkan, offline_cache=False)
    device: Any = qd.driver.state.device
    array = qd.ndarray(qd.i32, COUNT)
    buffer, _ = device.transfers.buffer_of(array.address(Companion.PRIMAL), 4 * COUNT)
    qd.sync()
    monkeypatch.setattr(buffer, "host", 0)
    monkeypatch.setattr("octants.runtime.gpu.batched_transfers._FEW", 16)
    device.transfers._staging._chunks.clear()
    yield device, array
    device.transfers._staging._chunks.clear()
    qd.reset()


@qd.kernel
def double(a: qd.types.NDArray[qd.i32, 1]):
    for i in a:
        a[i] = a[i] * 2 + 1


def test_little_takes_little(far: tuple[VulkanDevice, Any]) -> None:
    device, array = far
    array.from_numpy(np.arange(COUNT, dtype=np.int32))
    assert array[COUNT - 1] == COUNT - 1
    assert list(device.transfers._staging._chunks) == [staging.SMALL]
    assert 4 * COUNT < staging.SMALL < device.transfers._staging.large


@pytest.mark.parametrize("chunk", [1 << 22, 40_028, 40_000, 4096, 1004])
def test_whatever_the_size_of_the_parts(
    far: tuple[VulkanDevice, Any], monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(staging, "SMALL", 1)
    device, array = far
    monkeypatch.setattr(device.transfers._staging, "large", chunk)
    values = np.random.default_rng(1).integers(-1000, 1000, COUNT, dtype=np.int32)
    for _ in range(3):
        array.from_numpy(values)
        double(array)
        values = values * 2 + 1
        assert (array.to_numpy() == values).all()
    number = device.context.submitted
    array.from_numpy(values)
    submissions = device.context.submitted - number
    assert submissions == -(-4 * COUNT // chunk)


def test_the_host_does_not_wait_for_what_it_has_sent(
    far: tuple[VulkanDevice, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "SMALL", 1)
    device, array = far
    monkeypatch.setattr(device.transfers._staging, "large", 4096)
    values = np.arange(COUNT, dtype=np.int32)
    array.from_numpy(values)
    sizes = 4 * COUNT // 4096 + 1
    waits, wait = [0], device.context.wait
    monkeypatch.setattr(device.context, "wait", lambda number: (waits.append(number), wait(number)))
    number = device.context.submitted
    array.from_numpy(values)
    last = number + sizes - staging.CHUNKS  # that a part has to be free of
    assert max(waits) == last
    assert (array.to_numpy() == values).all()


@pytest.mark.parametrize("count", [0, 1, 1000, 1001, 3999, 4000, 12_345, 40_000])
def test_large_copies_are_made_by_several_threads(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(threaded_copy, "LEAST", 1000)
    monkeypatch.setattr(threaded_copy, "THREADS", 4)
    monkeypatch.setattr(threaded_copy, "_PAGE", 64)
    source = np.random.default_rng(2).integers(0, 255, count + 16, dtype=np.uint8)
    target = np.zeros(count + 16, np.uint8)
    threaded_copy.move(address_of(target) + 8, address_of(source) + 8, count)
    assert (target[8 : count + 8] == source[8 : count + 8]).all()
    assert not target[:8].any()
    assert not target[count + 8 :].any()


# -- kernels of numpy arrays ----------------------------------------------------------------------

MEMORIES = {"cached": (True, True), "mapped": (True, False), "far": (False, False)}


@pytest.fixture(params=MEMORIES)
def start(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Any]]:
    """Starts on a device whose own memory the host reaches in some way."""
    is_mapped, reads_well = MEMORIES[request.param]
    compiled.device()  # or skip
    found: Any = None

    def start(**options: Any) -> Any:
        nonlocal found
        qd.init(arch=qd.vulkan, offline_cache=False, **options)
        found = qd.driver.state.device
        qd.ndarray(qd.i32, 1)
        for buffer in found.heap._buffers:
            monkeypatch.setattr(buffer, "reads_well", reads_well)
            monkeypatch.setattr(buffer, "host", buffer.host if is_mapped else 0)
        return found

    yield start
    found.transfers._staging._chunks.clear()
    qd.reset()


@qd.kernel
def add(p: qd.types.NDArray[qd.i32, 1], q: qd.types.NDArray[qd.i32, 1]):
    for i in p:
        p[i] += q[i]


def test_a_launch_of_numpy_arrays_is_one_submission(start: Callable[..., Any]) -> None:
    device = start()
    one, other = np.zeros(50, np.int32), np.arange(50, dtype=np.int32)
    add(one, other)
    number = device.context.submitted
    for count in range(2, 6):
        add(one, other)
        assert (one == count * np.arange(50)).all()
        assert device.context.submitted == number + count - 1


REPEATED = batched_staging_buffer.SAME + 3


@pytest.mark.parametrize("is_slow", [False, True])
def test_launches_that_repeat_are_recorded(
    is_slow: bool, start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the driver copies slowly, a kernel copies in what is recorded."""
    monkeypatch.setattr(Hardware, "copies_slowly", is_slow)
    monkeypatch.setattr(compiled.device().transfers, "copy_kernel", None)
    device = start()
    field = qd.field(qd.i32, 50)

    @qd.kernel
    def add_field(
        p: qd.types.NDArray[qd.i32, 1], q: qd.types.NDArray[qd.i32, 1], factor: qd.i32
    ) -> None:
        for i in p:
            field[i] += 1
            p[i] += q[i] * factor + field[i]

    one, other = np.zeros(50, np.int32), np.arange(50, dtype=np.int32)
    expected = one.copy()
    recorded, record = [0], device.queue.record
    device.queue.record = lambda *given: (recorded.append(1), record(*given))[1]
    count = 0
    try:
        for number in range(3 * REPEATED):
            factor = 2 if number < 2 * REPEATED else number  # arguments that do not repeat
            if number % 3 == 0:
                field.fill(number)  # queued before the launch
                count = number
            other += number
            count += 1
            add_field(one, other, factor)
            expected += other * factor + count
            assert (one == expected).all()
    finally:
        del device.queue.record
    assert sum(recorded) == 1
    kernel, (buffer, *_) = device.transfers.copy_kernel, device.heap._buffers
    is_copied = not (buffer.host and buffer.reads_well)
    assert (kernel is not None and kernel._program is not None) == (is_slow and is_copied)
    other_one = np.ones(70, np.int32)  # of another shape, on the same kernel
    add(other_one, other_one.copy())
    assert (other_one == 2).all()


def test_launches_that_draw_random_numbers_are_not_recorded(start: Callable[..., Any]) -> None:
    start()

    @qd.kernel
    def noise(p: qd.types.NDArray[qd.f32, 1]):
        for i in p:
            p[i] = qd.random()

    found, values = set(), np.zeros(5, np.float32)
    for _ in range(2 * REPEATED):
        noise(values)
        found.add(values.tobytes())
    assert len(found) == 2 * REPEATED


def test_a_failed_launch_leaves_the_arrays_usable(start: Callable[..., Any]) -> None:
    start(debug=True)

    @qd.kernel
    def store(p: qd.types.NDArray[qd.i32, 1], at: qd.i32):
        for i in range(1):
            p[at + i] = 7

    values = np.zeros(5, np.int32)
    for _ in range(2):
        with pytest.raises(qd.OctantsAssertionError):
            store(values, 5)
        store(values, 3)
        assert values.tolist() == [0, 0, 0, 7, 0]


def test_memory_of_an_interrupted_wait_is_not_used_again(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    device = start()
    one, other = np.zeros(50, np.int32), np.ones(50, np.int32)
    add(one, other)
    with monkeypatch.context() as patch:
        patch.setattr(device.queue, "finish", interrupt)
        with pytest.raises(KeyboardInterrupt):
            add(one, other)
    used = {piece.address for piece in batched_staging_buffer._abandoned}
    monkeypatch.setattr(batched_staging_buffer, "_abandoned", [])
    assert used
    add(one, other)
    add(one, other)
    assert one[0] >= 3


def test_few_bytes_of_mapped_memory_take_no_command(start: Callable[..., Any]) -> None:
    device = start()
    values = np.arange(64, dtype=np.int32)
    array = qd.ndarray(qd.i32, 64)
    array.from_numpy(values)
    qd.sync()
    number, is_mapped = device.context.submitted, bool(device.heap._buffers[0].host)
    assert (array.to_numpy() == values).all()
    assert (device.context.submitted == number) == is_mapped
