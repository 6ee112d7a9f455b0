"""Tapes on the device: what is pushed comes back, and what is refused is run again."""

from __future__ import annotations

import numpy as np
import pytest

from octants.diagnostics.exceptions import OctantsMemoryError
from octants.runtime.vulkan import VulkanDevice
from octants.runtime.vulkan.kernel import VulkanKernel
from octants.target import NEVER
from tests.codegen import test_records as records
from tests.vulkan import compiled

by_while = pytest.mark.parametrize("by_while", [False, True])


@pytest.fixture(autouse=True)
def on_vulkan(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled.device()
    monkeypatch.setattr(records, "Compiled", compiled.OnVulkan)


def small_device(**limits: int) -> VulkanDevice:
    return VulkanDevice(**limits)


@by_while
def test_what_is_pushed_comes_back(by_while: bool) -> None:
    kernel = compiled.OnVulkan(records.reversal(by_while))
    rng = np.random.default_rng(3)
    for bound, count in ((1, 60), (40, 60), (2000, 60), (50, 3000)):
        n = rng.integers(0, bound, count).astype(np.int32)
        data = {"n": n, "out": np.zeros(count)}
        kernel.run(data)
        assert data["out"].tolist() == records.wanted(n)
    assert compiled.device().record_buffers.nbytes >= 1900 * 24


def test_booleans_share_bytes() -> None:
    records.test_booleans_share_bytes(NEVER)


@by_while
def test_refused_items_run_again_and_others_do_not(by_while: bool) -> None:
    kernel = compiled.OnVulkan(records.reversal(by_while))
    n = np.full(300, 5, np.int32)
    n[[17, 230]] = 5000
    data = {"n": n, "out": np.zeros(300)}
    kernel.run(data)
    assert data["out"].tolist() == records.wanted(n)
    runs = launches(kernel)
    assert runs >= 2
    kernel.run(data)  # now the need is known
    assert launches(kernel) == runs + 1


def launches(kernel: compiled.OnVulkan) -> int:
    """How often dispatches that record were launched."""
    loaded = kernel.kernel
    assert isinstance(loaded, VulkanKernel)
    return sum(step.launches for step in loaded.steps)


@by_while
def test_memory_that_is_refused_is_an_error(
    by_while: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = small_device(record_buffer_limit=1 << 20)
    monkeypatch.setattr(compiled, "device", lambda: device)
    kernel = compiled.OnVulkan(records.reversal(by_while))
    n = np.full(40, 100, np.int32)
    n[[17, 30]] = 2_000_000
    data = {"n": n, "out": np.zeros(40)}
    with pytest.raises(OctantsMemoryError, match="kernel `reversal`") as caught:
        kernel.run(data)
    assert "work item 17;" in str(caught.value)
    data = {"n": n[:10].copy(), "out": np.zeros(10)}
    kernel.run(data)
    assert data["out"].tolist() == records.wanted(data["n"])
