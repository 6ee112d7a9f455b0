"""What kernels print, and when the host receives it, on a fake GPU."""

from __future__ import annotations

from typing import Any

import pytest

from octants import abi
from octants.artifact import Dispatch
from octants.diagnostics.exceptions import OctantsAssertionError, OctantsRuntimeError
from octants.runtime.cuda.device import CudaDevice
from octants.runtime.cuda.kernel import CudaKernel
from octants.runtime.gpu import device as device_module
from octants.runtime.reports.messages import MOST_IN_FLIGHT, NO_END, PRINT_WORDS
from tests.runtime.cuda.fake_cuda import Call, FakeCuda, Trap
from tests.runtime.cuda.kernels import ASSERT, OVERFLOW, PRINT, artifact, launch, read

PRINTS, FAILS, OVERFLOWS = 1, 2, 4


def speak(call: Call) -> None:
    """Says what the fourth slot asks for, with the fifth slot as value; counts in the sixth."""
    buffer, what, value = (int(call.slots[k]) for k in (0, 3, 4))
    words = call.words(buffer, abi.MESSAGES_HEADER // 8)
    assert list(words[4:]) == [0] * (len(words) - 4)
    assert int(words[abi.MESSAGES_COUNT // 8]) == int(words[abi.MESSAGES_CURSOR // 8]) == 0
    assert int(words[abi.MESSAGES_END // 8]) == NO_END
    if what & PRINTS:
        assert words[abi.MESSAGES_CAPACITY // 8] == PRINT_WORDS
        call.words(buffer + abi.MESSAGES_HEADER, 3)[:] = 0, 5, value
        words[abi.MESSAGES_CURSOR // 8] = 3
        words[abi.MESSAGES_COUNT // 8] = 1
    if what & FAILS:
        words[abi.MESSAGES_FAILED // 8] = 1
        words[abi.MESSAGES_FAILURE_ID // 8] = 1
        words[abi.MESSAGES_FAILURE_ITEM // 8] = 3
        words[abi.MESSAGES_FAILURE_VALUES // 8] = value
    if what & OVERFLOWS:
        words[abi.MESSAGES_OVERFLOW_NEED // 8] = value
        words[abi.MESSAGES_OVERFLOW_ID // 8] = 2


@pytest.fixture
def kernel(fake: FakeCuda, device: CudaDevice) -> CudaKernel:
    fake.kernels["speak"] = speak
    return device.load(artifact("speaker", [Dispatch("speak", 0)], 2, (PRINT, ASSERT, OVERFLOW)))


def test_prints_come_at_the_next_synchronisation(
    device: CudaDevice, kernel: CudaKernel, capsys: Any
) -> None:
    for value in (1, 2, 3):
        launch(kernel, PRINTS, value)
    assert capsys.readouterr().out == ""
    device.synchronize()
    assert capsys.readouterr().out == "x = 1\nx = 2\nx = 3\n"
    device.synchronize()
    assert capsys.readouterr().out == ""


def test_prints_of_streams_come_in_the_order_of_launches(
    device: CudaDevice, kernel: CudaKernel, capsys: Any
) -> None:
    streams = [device.create_stream() for _ in range(3)]
    for value in range(9):
        with device.using(streams[value * 2 % 3]):
            launch(kernel, PRINTS, value)
    device.synchronize()
    assert capsys.readouterr().out == "".join(f"x = {value}\n" for value in range(9))


def test_the_first_failure_wins(device: CudaDevice, kernel: CudaKernel, capsys: Any) -> None:
    launch(kernel, PRINTS, 1)
    launch(kernel, FAILS, 2)
    launch(kernel, PRINTS | FAILS, 3)
    with pytest.raises(OctantsAssertionError, match="it is 2\n.*work item 3"):
        device.synchronize()
    assert capsys.readouterr().out == "x = 1\nx = 3\n"
    launch(kernel, 0, 0)
    device.synchronize()


def test_an_overflow_is_pending(device: CudaDevice, kernel: CudaKernel) -> None:
    seen = []
    device.pending.watch = lambda: seen.append(True)
    launch(kernel, OVERFLOWS, 77)
    launch(kernel, OVERFLOWS, 78)
    device.wait_for_launches()
    assert seen
    with pytest.raises(OctantsAssertionError, match="needs 77 slots") as caught:
        device.synchronize()
    assert "1 more launches" in str(caught.value)
    device.synchronize()


def test_a_read_tells_what_went_wrong(device: CudaDevice, kernel: CudaKernel) -> None:
    memory = device.allocate(8)
    for what in (FAILS, OVERFLOWS):
        launch(kernel, what, 5)
        with pytest.raises(OctantsAssertionError):
            read(device, memory.address, 1)
    assert read(device, memory.address, 1) == [0]


def test_buffers_are_used_again(fake: FakeCuda, device: CudaDevice, kernel: CudaKernel) -> None:
    for _ in range(3):
        launch(kernel, PRINTS | OVERFLOWS, 1)
    with pytest.raises(OctantsAssertionError):
        device.synchronize()
    used = fake.used
    for _ in range(10):
        for what in (PRINTS, 0, OVERFLOWS):
            launch(kernel, what, 1)
        with pytest.raises(OctantsAssertionError):
            device.synchronize()
    assert fake.used == used


def test_many_launches_in_flight(
    fake: FakeCuda, device: CudaDevice, kernel: CudaKernel, capsys: Any
) -> None:
    fake.total = 1 << 27
    count = MOST_IN_FLIGHT + 10
    fake.calls.clear()
    for value in range(MOST_IN_FLIGHT):
        launch(kernel, PRINTS if value == 0 else 0, value)
    assert not fake.calls["cuStreamQuery"]
    assert capsys.readouterr().out == ""
    for value in range(MOST_IN_FLIGHT, count):
        launch(kernel, PRINTS, value)
    assert capsys.readouterr().out == "x = 0\n"
    device.synchronize()
    assert capsys.readouterr().out == "".join(f"x = {n}\n" for n in range(MOST_IN_FLIGHT, count))
    assert fake.calls["cuMemAllocFromPoolAsync"] <= MOST_IN_FLIGHT + 1


def test_too_little_memory_for_many_buffers(
    fake: FakeCuda, device: CudaDevice, kernel: CudaKernel, capsys: Any
) -> None:
    fake.total = 4 << 20
    for value in range(10):
        launch(kernel, PRINTS, value)
    device.synchronize()
    assert capsys.readouterr().out == "".join(f"x = {n}\n" for n in range(10))


def test_kernels_that_only_check_have_small_buffers(fake: FakeCuda, device: CudaDevice) -> None:
    fake.kernels["speak"] = speak
    checks = artifact("checks", [Dispatch("speak", 0)], 2, (ASSERT, ASSERT))
    kernel = device.load(checks)
    device.synchronize()
    used = fake.used
    launch(kernel, FAILS, 1)
    assert fake.used < used + 2 * abi.MESSAGES_HEADER
    with pytest.raises(OctantsAssertionError):
        device.synchronize()


def test_a_launch_that_fails_after_messages(
    fake: FakeCuda, device: CudaDevice, kernel: CudaKernel, capsys: Any
) -> None:
    fake.fail("cuLaunchKernelEx", 1)
    with pytest.raises(OctantsRuntimeError, match="invalid argument"):
        launch(kernel, PRINTS, 1)
    launch(kernel, PRINTS, 2)
    device.synchronize()
    assert capsys.readouterr().out == "x = 2\n"


def test_messages_of_a_foreign_stream(
    fake: FakeCuda, device: CudaDevice, kernel: CudaKernel, capsys: Any
) -> None:
    with device.using(device.streams.foreign(fake.add_foreign_stream())):
        launch(kernel, PRINTS, 1)
        launch(kernel, FAILS, 2)
        with pytest.raises(OctantsAssertionError):
            device.synchronize()
        launch(kernel, PRINTS, 3)
    device.synchronize()
    assert capsys.readouterr().out == "x = 1\nx = 3\n"


def test_messages_of_a_lost_device(fake: FakeCuda, device: CudaDevice, kernel: CudaKernel) -> None:
    def trap(call: Call) -> None:
        raise Trap

    launch(kernel, PRINTS, 1)
    fake.kernels["speak"] = trap
    launch(kernel, PRINTS, 1)
    with pytest.raises(OctantsRuntimeError, match="OCT436"):
        device.synchronize()
    device.close()
    device.close()


@pytest.mark.parametrize("what", [PRINTS, FAILS, OVERFLOWS])
def test_the_end_of_the_process(
    device: CudaDevice,
    kernel: CudaKernel,
    capsys: Any,
    what: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launch(kernel, what, 4)
    monkeypatch.setattr(device_module, "_devices", [device])
    device_module._at_exit()
    assert capsys.readouterr().out == ("x = 4\n" if what == PRINTS else "")
    assert bool(device.pending) == (what != PRINTS)
    device.pending.take()


def test_closing_never_fails(device: CudaDevice, kernel: CudaKernel) -> None:
    launch(kernel, FAILS, 4)
    device.close()
    launch(kernel, 0, 0)
    device.synchronize()
