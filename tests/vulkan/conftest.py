"""The device of the tests of submissions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import octants as qd
from octants.runtime.gpu import batches
from octants.runtime.vulkan.device import VulkanDevice
from tests.vulkan import compiled


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[VulkanDevice]:
    """A device of which nothing is submitted because time has passed."""
    compiled.device()  # or skip
    qd.init(arch=qd.vulkan, offline_cache=False)
    made = qd.driver.state.device
    assert isinstance(made, VulkanDevice)
    monkeypatch.setattr(made.queue.timer, "start", lambda: None)
    monkeypatch.setattr(batches, "PATIENCE", 3.0)
    yield made
    qd.reset()
