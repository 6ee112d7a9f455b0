"""A fake GPU for each test, which must not have been used in a wrong way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from octants.runtime.cuda.device import CudaDevice
from tests.runtime.cuda.fake_cuda import FakeCuda


@pytest.fixture
def fake() -> Iterator[FakeCuda]:
    fake = FakeCuda()
    yield fake
    assert not fake.problems


@pytest.fixture
def device(fake: FakeCuda) -> Iterator[CudaDevice]:
    device = CudaDevice(library=fake.library())
    yield device
    device.close()
