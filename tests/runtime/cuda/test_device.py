"""Memory, copies, streams and launches, on a fake GPU."""

from __future__ import annotations

import dataclasses
import gc
import threading

import numpy as np
import pytest

from octants import abi
from octants.artifact import Dispatch
from octants.diagnostics.exceptions import InternalError, OctantsMemoryError, OctantsRuntimeError
from octants.runtime.cuda import library as cuda
from octants.runtime.cuda.device import CudaDevice
from octants.runtime.cuda.transfers import LARGE as CHUNK
from tests.runtime.cuda.fake_cuda import LAUNCH_FAILED, Call, FakeCuda, Trap
from tests.runtime.cuda.kernels import Block, artifact, launch, read, write


def add_one(call: Call) -> None:
    """Adds 1 to the items of an array in the first slot, thread by thread."""
    address = int(call.slots[3])
    lower, upper = call.launch[abi.LAUNCH_LOWER // 8], call.launch[abi.LAUNCH_UPPER // 8]
    for thread in range(call.threads):
        for item in range(lower + thread, upper, call.threads):
            call.words(address + 8 * item, 1)[0] += 1


# -- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("pools", [True, False])
def test_memory_is_zero_and_is_freed(pools: bool) -> None:
    fake = FakeCuda(pools=pools)
    device = CudaDevice(library=fake.library())
    one = device.allocate(80)
    assert read(device, one.address, 10) == [0] * 10
    write(device, one.address, range(10))
    assert read(device, one.address + 16, 3) == [2, 3, 4]
    before = fake.used
    del one
    device.close()
    assert fake.used == before - 80
    assert not fake.problems


def test_memory_that_a_launch_uses_is_freed_after_it(fake: FakeCuda, device: CudaDevice) -> None:
    fake.kernels["add"] = add_one
    kernel = device.load(artifact("add", [Dispatch("add", 0, "(0, 4)")], 1))
    x = device.allocate(32)
    for stream in (device.streams.default, device.create_stream()):
        with device.using(stream):
            launch(kernel, x.address)
    del x
    device.allocate(8)  # frees what was dropped
    device.synchronize()
    assert len(fake.launches) == 2


def test_copy_and_clear(device: CudaDevice) -> None:
    one, two = device.allocate(40), device.allocate(40)
    write(device, one.address, [1, 2, 3, 4, 5])
    device.copy(two.address + 8, one.address, 24)
    assert read(device, two.address, 5) == [0, 1, 2, 3, 0]
    device.clear(two.address + 16, 8)
    assert read(device, two.address, 5) == [0, 1, 0, 3, 0]


@pytest.mark.parametrize("count", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 17])
def test_large_copies_in_pieces(device: CudaDevice, count: int) -> None:
    memory = device.allocate(count)
    values = np.random.default_rng(1).integers(0, 256, count, np.uint8)
    kept = values.copy()
    device.write(memory.address, values)
    values[:] = 0  # the copy is not under way from here
    back = np.zeros(count, np.uint8)
    device.read(memory.address, back)
    assert np.array_equal(back, kept)


def test_writes_one_after_the_other_do_not_mix(device: CudaDevice) -> None:
    memory = device.allocate(80)
    for k in range(10):
        write(device, memory.address + 8 * k, [k])
    assert read(device, memory.address, 10) == list(range(10))


def test_refused_memory_is_told_with_a_table(fake: FakeCuda, device: CudaDevice) -> None:
    keep = [
        device.allocate(1 << 24, "field `x`"),
        device.allocate(1 << 10),
        device.allocate(1 << 10),
    ]
    with pytest.raises(OctantsMemoryError) as caught:
        device.allocate(1 << 26)
    text = str(caught.value)
    assert "16.0 MiB: field `x`" in text
    assert "2 times 1.0 KiB: an allocation" in text
    device.allocate(1 << 24)
    assert keep


def test_what_was_dropped_is_given_back_before_memory_is_refused(device: CudaDevice) -> None:
    for _ in range(5):
        device.allocate(3 << 24)


def test_memory_dropped_by_another_thread(fake: FakeCuda, device: CudaDevice) -> None:
    memory = [device.allocate(1000)]
    thread = threading.Thread(target=memory.clear)
    thread.start()
    thread.join()
    used = fake.used
    device.memory.free()
    assert fake.used == used - 1000


def test_memory_outlives_the_device(fake: FakeCuda) -> None:
    library = fake.library()
    device = CudaDevice(library=library)
    memory = device.allocate(8)
    write(device, memory.address, [7])
    device.close()
    again = CudaDevice(library=library)
    assert read(again, memory.address, 1) == [7]
    used = fake.used
    del memory
    again.close()
    assert fake.used == used - 8


# -- launches -------------------------------------------------------------------------------------


def test_launch(fake: FakeCuda, device: CudaDevice) -> None:
    fake.kernels["add"] = add_one
    x = device.allocate(8000)
    bounds = "(1, slots[4])"
    kernel = device.load(artifact("add", [Dispatch("add", 0, bounds)], 2))
    launch(kernel, x.address, 1000)
    launch(kernel, x.address, 3)
    launch(kernel, x.address, 1)  # nothing
    launch(kernel, x.address, -5)  # nothing
    launch(kernel, x.address, 1000)
    assert read(device, x.address, 1000) == [0, 3, 3] + [2] * 997
    assert len(fake.launches) == 3


@pytest.mark.parametrize(
    ("items", "given", "grid", "block"),
    [
        (1, 0, 1, 32),  # 4 multiprocessors, 512 threads on each
        (100, 0, 4, 32),
        (200, 0, 4, 64),
        (1000, 0, 8, 128),
        (10**9, 0, 16, 128),
        (10, 256, 1, 256),
        (10**9, 256, 8, 256),
    ],
)
def test_shape(
    fake: FakeCuda, device: CudaDevice, items: int, given: int, grid: int, block: int
) -> None:
    fake.kernels["t"] = lambda call: None
    dispatch = Dispatch("t", 0, f"(5, {5 + items})", given)
    launch(device.load(artifact("t", [dispatch], 0)))
    device.synchronize()
    call = fake.launches[0]
    assert (call.grid, call.block) == (grid, block)
    assert call.launch[:2] == [5, 5 + items]


@pytest.mark.parametrize(("items", "grid"), [(1000, 8), (3000, 24), (10**9, 48)])
def test_waves(fake: FakeCuda, device: CudaDevice, items: int, grid: int) -> None:
    """More blocks than fit at once, but none without work items."""
    fake.kernels["t"] = lambda call: None
    dispatch = Dispatch("t", 0, f"(0, {items})", waves=3)
    launch(device.load(artifact("t", [dispatch], 0)))
    device.synchronize()
    assert fake.launches[0].grid == grid


@pytest.mark.parametrize(
    ("items", "grid", "block"),
    [(100, 4, 32), (500, 4, 128), (1000, 4, 256), (10_000, 4, 512)],
)
def test_large_blocks_for_sums(
    fake: FakeCuda, device: CudaDevice, items: int, grid: int, block: int
) -> None:
    fake.kernels["t"] = lambda call: None
    launch(device.load(artifact("t", [Dispatch("t", 0, f"(0, {items})", sums=True)], 0)))
    device.synchronize()
    assert (fake.launches[0].grid, fake.launches[0].block) == (grid, block)


@pytest.mark.parametrize(("threads", "grid", "block"), [(1, 1, 1), (100, 1, 100), (300, 2, 128)])
def test_the_most_threads(
    fake: FakeCuda, device: CudaDevice, threads: int, grid: int, block: int
) -> None:
    fake.kernels["t"] = lambda call: None
    launch(device.load(artifact("t", [Dispatch("t", 0, "(0, 10000)", threads=threads)], 0)))
    device.synchronize()
    assert (fake.launches[0].grid, fake.launches[0].block) == (grid, block)


def test_one_thread(fake: FakeCuda, device: CudaDevice) -> None:
    fake.kernels["t"] = lambda call: None
    launch(device.load(artifact("t", [Dispatch("t", 0)], 0)))
    device.synchronize()
    assert (fake.launches[0].grid, fake.launches[0].block) == (1, 1)
    assert fake.launches[0].launch[:2] == [0, 1]


def test_bounds_on_the_device(fake: FakeCuda, device: CudaDevice) -> None:
    seen = []

    def tell(call: Call) -> None:
        call.words(call.launch[abi.LAUNCH_BOUNDS // 8], 2)[:] = 3, int(call.slots[3])

    def use(call: Call) -> None:
        lower, upper = call.words(call.launch[abi.LAUNCH_BOUNDS // 8], 2)
        seen.append((int(lower), int(upper), call.grid, call.block))

    fake.kernels.update(tell=tell, use=use)
    dispatches = [Dispatch("tell", 0), Dispatch("use", 0, "device")]
    kernel = device.load(artifact("t", dispatches, 1))
    streams = [device.streams.default, device.create_stream(), device.create_stream()]
    for n, stream in enumerate(streams):
        with device.using(stream):
            launch(kernel, n)
    device.synchronize()
    assert sorted(seen) == [(3, n, 16, 128) for n in range(3)]
    places = {call.launch[abi.LAUNCH_BOUNDS // 8] for call in fake.launches}
    assert len(places) == 3  # one for each stream


def test_parameters_in_memory(fake: FakeCuda, device: CudaDevice) -> None:
    seen = []

    def use(call: Call) -> None:
        seen.append([int(word) for word in call.words(int(call.slots[0]), 5)])

    fake.kernels["t"] = use
    metadata = (("parameters", "pointer"),)
    kernel = device.load(artifact("t", [Dispatch("t", 0)], 2, metadata=metadata))
    block = Block(1, 2)
    for value in (3, 4):
        block.slots[4] = value
        kernel.launch(block.address)
    device.synchronize()
    assert seen == [[0, 0, 0, 1, 3], [0, 0, 0, 1, 4]]


def test_a_warm_launch_is_one_call(fake: FakeCuda, device: CudaDevice) -> None:
    fake.kernels["add"] = add_one
    x = device.allocate(80)
    kernel = device.load(artifact("add", [Dispatch("add", 0, "(0, 10)")] * 2, 1))
    block = Block(x.address)
    kernel.launch(block.address)
    fake.calls.clear()
    for _ in range(5):
        kernel.launch(block.address)
    assert fake.calls == {"cuLaunchKernelEx": 10}


def test_launches_of_a_thread_without_a_context(fake: FakeCuda, device: CudaDevice) -> None:
    fake.kernels["add"] = add_one
    x = device.allocate(80)
    kernel = device.load(artifact("add", [Dispatch("add", 0, "(0, 10)")], 1))
    launch(kernel, x.address)
    errors = []

    def work() -> None:
        try:
            for _ in range(3):
                launch(kernel, x.address)
            fake.stack[:] = [12345]  # another library takes the thread for another device
            launch(kernel, x.address)
            assert fake.stack == [12345]
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not errors
    assert read(device, x.address, 10) == [5] * 10


def test_code_that_the_driver_does_not_take(device: CudaDevice) -> None:
    bad = dataclasses.replace(artifact("t", [Dispatch("t", 0)], 0), code=b"nonsense")
    with pytest.raises(InternalError, match="Unexpected text at line 1"):
        device.load(bad)


def test_a_kernel_that_does_nothing(fake: FakeCuda, device: CudaDevice) -> None:
    launch(device.load(artifact("t", [], 0)))
    device.synchronize()
    assert not fake.launches


def test_code_is_shared_and_unloaded(fake: FakeCuda, device: CudaDevice) -> None:
    fake.kernels["t"] = lambda call: None
    one = artifact("t", [Dispatch("t", 0)], 0)
    kernels = [device.load(one), device.load(one)]
    assert fake.calls["cuModuleLoadDataEx"] == 1
    launch(kernels[0])
    del kernels
    gc.collect()
    assert fake.calls["cuModuleUnload"] == 0
    device.synchronize()
    assert fake.calls["cuModuleUnload"] == 1


# -- streams --------------------------------------------------------------------------------------


def test_a_foreign_stream_is_ordered(fake: FakeCuda, device: CudaDevice) -> None:
    fake.kernels["add"] = add_one
    kernel = device.load(artifact("add", [Dispatch("add", 0, "(0, 4)")], 1))
    foreign = device.streams.foreign(fake.add_foreign_stream())
    with device.using(foreign):
        x = device.allocate(32)
        write(device, x.address, [5] * 4)
        launch(kernel, x.address)
        device.copy(x.address, x.address + 8, 8)
        device.clear(x.address + 24, 8)
        launch(kernel, x.address)
        assert read(device, x.address, 4) == [7, 7, 7, 1]
        launch(kernel, x.address)
    del x
    device.memory.free()
    device.synchronize()
    assert len(fake.launches) == 3


def test_waiting_for_a_foreign_stream(fake: FakeCuda, device: CudaDevice) -> None:
    fake.kernels["add"] = add_one
    kernel = device.load(artifact("add", [Dispatch("add", 0, "(0, 1)")], 1))
    x, y = device.allocate(8), device.allocate(8)
    handle = fake.add_foreign_stream()
    device.make_stream_wait(handle)  # for the zeros of `x`
    with device.context.active():
        device.context.call("cuMemsetD8Async", x.address, 1, 1, handle)
    device.wait_for_foreign(handle)
    launch(kernel, x.address)
    device.make_stream_wait(handle)
    with device.context.active():
        device.context.call("cuMemcpyDtoDAsync", y.address, x.address, 8, handle)
        device.context.wait_for_stream(handle)
    assert read(device, y.address, 1) == [2]


def test_the_legacy_stream_is_the_default_stream(device: CudaDevice) -> None:
    assert device.streams.foreign(1) is device.streams.foreign(0) is device.streams.default


def test_events(fake: FakeCuda, device: CudaDevice) -> None:
    fake.kernels["add"] = add_one
    kernel = device.load(artifact("add", [Dispatch("add", 0, "(0, 1)")], 1))
    x = device.allocate(8)
    with device.create_stream() as stream, device.create_event() as event:
        with device.using(stream):
            launch(kernel, x.address)
        event.record(stream)
        event.wait()
        event.synchronize()
        assert len(fake.launches) == 1
        stream.synchronize()
    with pytest.raises(OctantsRuntimeError, match="OCT439"):
        event.record()
    with pytest.raises(OctantsRuntimeError, match="create_stream"):
        stream.synchronize()


def test_streams_that_are_dropped_are_waited_for(fake: FakeCuda, device: CudaDevice) -> None:
    fake.kernels["add"] = add_one
    kernel = device.load(artifact("add", [Dispatch("add", 0, "(0, 1)")], 1))
    x = device.allocate(8)
    with device.using(device.create_stream()):
        launch(kernel, x.address)
    del kernel, x
    gc.collect()
    device.memory.free()
    device.synchronize()
    assert fake.calls["cuStreamDestroy"] == 1


# -- what goes wrong ------------------------------------------------------------------------------


def test_a_trap(fake: FakeCuda, device: CudaDevice) -> None:
    def trap(call: Call) -> None:
        raise Trap(LAUNCH_FAILED)

    fake.kernels.update(add=add_one, trap=trap)
    x = device.allocate(8)
    add = device.load(artifact("add", [Dispatch("add", 0, "(0, 1)")], 1))
    bad = device.load(artifact("bad", [Dispatch("trap", 0)], 0))
    launch(add, x.address)
    device.synchronize()
    for _ in range(3):
        launch(bad)
    with pytest.raises(OctantsRuntimeError) as caught:
        device.synchronize()
    text, address = str(caught.value), x.address
    assert "`bad` (3 times)" in text and "`add`" not in text
    assert "CUDA_ERROR_LAUNCH_FAILED" in text
    for use in (
        device.synchronize,
        lambda: launch(add, address),
        lambda: device.allocate(8),
        lambda: read(device, address, 1),
        lambda: device.load(artifact("c", [Dispatch("add", 0)], 1)),
    ):
        with pytest.raises(OctantsRuntimeError, match="OCT436"):
            use()
    del x
    device.close()


def test_a_call_that_fails(fake: FakeCuda, device: CudaDevice) -> None:
    fake.fail("cuMemsetD8Async", 1)
    with pytest.raises(OctantsRuntimeError, match="cuMemsetD8Async failed: invalid argument"):
        device.clear(device.memory.allocate(8, zeroed=False).address, 8)
    device.allocate(8)


@pytest.mark.parametrize("name", ["cuMemAllocFromPoolAsync", "cuMemsetD8Async"])
def test_a_call_of_an_allocation_that_fails(fake: FakeCuda, device: CudaDevice, name: str) -> None:
    fake.fail(name, 1)
    with pytest.raises(OctantsRuntimeError, match=name):
        device.allocate(8)
    used = fake.used
    device.memory.free()
    assert fake.used <= used


def test_the_context_of_others_is_left_alone(fake: FakeCuda, device: CudaDevice) -> None:
    fake.stack[:] = [12345]
    x = device.allocate(8)
    write(device, x.address, [1])
    read(device, x.address, 1)
    device.create_stream().destroy()
    device.synchronize()
    assert fake.stack == [12345]


def test_minimum_versions() -> None:
    assert cuda.MINIMUM_DRIVER >= 11080


def test_rows_are_copied_and_what_lies_between_stays(device: CudaDevice) -> None:
    source, target = device.allocate(8 * 12), device.allocate(8 * 12)
    write(device, source.address, range(12))
    write(device, target.address, range(100, 112))
    device.copy_rows(target.address + 8, 32, source.address, 16, 8, 3)
    expected = list(range(100, 112))
    expected[1::4] = [0, 2, 4]
    assert read(device, target.address, 12) == expected


def test_rows_too_far_apart_for_the_driver_go_by_the_host(
    fake: FakeCuda, device: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("octants.runtime.cuda.device.MOST_PITCH", 8)
    source, target = device.allocate(64), device.allocate(64)
    write(device, source.address, range(8))
    device.copy_rows(target.address, 32, source.address, 16, 8, 2)
    assert read(device, target.address, 8) == [0, 0, 0, 0, 2, 0, 0, 0]
    assert not fake.problems
