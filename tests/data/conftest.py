"""Each test of the data layer has a runtime of its own, on memory of the host."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from octants.data import current_runtime
from octants.runtime.devices.devices_in_use import DevicesInUse
from octants.runtime.devices.null import NullDevice
from octants.types import default_types
from octants.types.scalars import f32, i32
from tests.devices import DISCRETE, DiscreteNullDevice


@pytest.fixture(autouse=True)
def runtime() -> Iterator[current_runtime.Runtime]:
    default_types.set_defaults(i32, f32)
    yield current_runtime.start(DevicesInUse(DiscreteNullDevice() if DISCRETE else NullDevice()))
    current_runtime.stop()
