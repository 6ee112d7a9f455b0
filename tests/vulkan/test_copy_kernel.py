"""Large copies within the device by a kernel, for drivers that copy slowly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.codegen.spirv.copy_kernel import WIDTH, copy_kernel
from octants.runtime.vulkan import transfers
from octants.runtime.vulkan.physical_devices import Hardware
from tests.vulkan import compiled
from tests.vulkan.validation import check


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A device whose driver copies slowly."""
    if compiled.device().hardware.is_bound:
        pytest.skip("the device has no addresses")
    monkeypatch.setattr(Hardware, "copies_slowly", True)
    monkeypatch.setattr(transfers, "BY_KERNEL", 64)
    monkeypatch.setattr(compiled.device().transfers, "copy_kernel", None)
    qd.init(arch=qd.vulkan, offline_cache=False, log_level="error")
    yield qd.driver.state.device
    qd.reset()


def copied(device: Any, nbytes: int, source: int, target: int) -> tuple[Any, Any]:
    """An array of bytes after a copy between offsets, and what it should be."""
    rng = np.random.default_rng(nbytes)
    of, to = (rng.integers(0, 256, nbytes + 64).astype(np.uint8) for _ in range(2))
    ours = [qd.ndarray(qd.u8, nbytes + 64) for _ in range(2)]
    for array, values in zip(ours, (of, to), strict=True):
        array.from_numpy(values)
    ranges: Any = [array.contiguous_range() for array in ours]
    (_, a, _), (_, b, _) = ranges
    device.copy(b + target, a + source, nbytes)
    to[target : target + nbytes] = of[source : source + nbytes]
    return ours[1].to_numpy(), to


@pytest.mark.parametrize("nbytes", [16, 63, 64, 65, 4096, 4111, 100_000])
@pytest.mark.parametrize(("source", "target"), [(0, 0), (16, 32), (4, 4), (1, 2), (16, 8)])
def test_every_byte_is_copied_and_no_other(
    nbytes: int, source: int, target: int, device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers, "_MOST_GROUPS", 3)  # so that threads copy several items
    found, wanted = copied(device, nbytes, source, target)
    np.testing.assert_array_equal(found, wanted)
    program = device.transfers.copy_kernel._program
    assert (program is not None) == (nbytes >= 64 and not (source | target) % WIDTH)


def test_copies_are_in_the_order_of_launches_and_in_graphs(device: Any) -> None:
    a, b = (qd.ndarray(qd.i32, 1000) for _ in range(2))

    @qd.kernel
    def increment(x: qd.types.NDArray[qd.i32, 1]):
        for i in x:
            x[i] += i

    def step() -> None:
        increment(a)
        b.copy_from(a)
        increment(b)
        a.copy_from(b)

    for _ in range(10):
        step()
    with qd.graph.capture() as graph:
        step()
    for _ in range(5):
        graph()
    assert (a.to_numpy() == 32 * np.arange(1000)).all()
    assert device.transfers.copy_kernel._program is not None


def test_other_drivers_copy_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled.device()
    monkeypatch.setattr(Hardware, "copies_slowly", False)
    monkeypatch.setattr(compiled.device().transfers, "copy_kernel", None)
    qd.init(arch=qd.vulkan, offline_cache=False, log_level="error")
    device: Any = qd.driver.state.device
    assert device.transfers.copy_kernel is None
    qd.reset()


@pytest.mark.parametrize("without", ["", "splits"])
def test_the_kernel_is_valid(without: str) -> None:
    features = set(compiled.device().hardware.features) - {without}
    target = compiled.device().hardware.target
    check(copy_kernel(type(target)(target.arch, target.triple, target.cpu, ",".join(features))))
