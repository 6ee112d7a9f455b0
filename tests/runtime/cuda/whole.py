"""The whole of Octants on a fake GPU: `qd.init(arch=qd.cuda)`, with kernels that tests define."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.runtime.cuda import launch_context, modules
from octants.runtime.cuda.library import Library
from tests.runtime.cuda.fake_cuda import Call, FakeCuda


class Gpu:
    """A fake driver that `init` takes for that of the machine."""

    def __init__(self, fake: FakeCuda) -> None:
        self.fake = fake
        self.library: Library = fake.library()

    def init(self, **options: Any) -> None:
        """`qd.init`, and wait until the GPU has started."""
        qd.init(arch=qd.cuda, **{"offline_cache": False, "log_level": "error", **options})
        assert self.device.context.handle

    @property
    def device(self) -> Any:
        return qd.driver.state.device


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    """A fake GPU of number 0 and one of number 1; nothing is initialised yet."""
    gpu = Gpu(FakeCuda(devices=2))
    monkeypatch.setattr(launch_context, "driver_library", lambda: gpu.library)
    monkeypatch.setattr(modules, "load_linker", lambda _: None)  # tests count what is linked
    yield gpu
    qd.reset()
    assert not gpu.fake.problems


def numbers(call: Call, slot: int, count: int, dtype: Any = np.float32) -> Any:
    """An array of a kernel, whose address is in a slot."""
    return call.words(int(call.slots[slot]), count, dtype)
