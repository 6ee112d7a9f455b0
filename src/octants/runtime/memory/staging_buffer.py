"""A staging buffer for any device: numpy's memory on the host, copied by the device's methods."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Protocol

import numpy as np

from octants.diagnostics.exceptions import OctantsError
from octants.runtime.device import Allocation, Bytes, LoadedKernel


class Copies(Protocol):
    """The methods of a `runtime.device.Device` that a staging buffer uses."""

    def allocate(self, nbytes: int, what: str = "", /) -> Allocation: ...

    def read(self, address: int, into: Bytes) -> None: ...

    def write(self, address: int, values: Bytes) -> None: ...


class PageableStagingBuffer:
    """Implements `runtime.device.StagingBuffer`."""

    def __init__(self, device: Copies, nbytes: int, written: int) -> None:
        self._device = device
        self.memory = device.allocate(max(1, nbytes))
        self.host: Bytes = np.zeros(nbytes, np.uint8)
        self._written: Bytes = self.host[:written]
        self.is_launched = False

    def launch(self, run: Callable[[int], None], _: LoadedKernel, block: int) -> None:
        """Queue a copy of `host` to the device, and a launch."""
        if self.host.size:
            self._device.write(self.memory.address, self.host)
        self.is_launched = True
        run(block)

    def download(self) -> None:
        """Wait for all launches, and copy what the launch may have written to `host`."""
        failure = None
        if self._written.size:
            failure = failure_of(lambda: self._device.read(self.memory.address, self._written))
        self.is_launched = False
        if failure is not None:
            raise failure


def failure_of(read: Callable[[], None]) -> OctantsError | None:
    """Read device memory, and give the failure of a launch that the read reports, if any.

    Then it reads again, since a device may report the failure before it copies.
    """
    try:
        read()
    except OctantsError as error:
        with contextlib.suppress(OctantsError):  # such as that of a lost device
            read()
        return error
    return None
