"""Staging buffers in pinned memory, for one copy of the arrays of a launch in each direction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from octants.diagnostics.exceptions import OctantsError
from octants.runtime.cuda.memory import DEFAULT_STREAM
from octants.runtime.device import Bytes
from octants.runtime.memory.host import view_memory

if TYPE_CHECKING:
    from octants.runtime.cuda.launch_context import LaunchContext

_LEAST = 1 << 12  # bytes of pinned memory, whose sizes are powers of two


class PinnedStagingBuffer:
    """Implements `runtime.device.StagingBuffer`.

    The host waits for each launch that uses it, so that the pinned memory is free for the next one;
    if Ctrl-C ends the wait, it is never used again.
    """

    def __init__(self, device: LaunchContext, nbytes: int, written: int) -> None:
        self._device, self._nbytes, self._written = device, nbytes, written
        self.memory = device.allocate(nbytes)
        size = max(_LEAST, 1 << (nbytes - 1).bit_length())
        self._free = device.staging.free[size]
        self._pinned = device.staging.take(size)
        self.host: Bytes = view_memory(self._pinned.address, np.uint8, (nbytes,))
        self._is_in_flight = False

    def __del__(self) -> None:
        if hasattr(self, "_is_in_flight") and not self._is_in_flight:
            self._free.append(self._pinned)

    def upload(self) -> None:
        """Queue a copy of `host` to the device."""
        device, address = self._device, self.memory.address
        if device.streams.is_busy:
            device.write(address, self.host)
            return
        if device.versions.watches:
            device.versions.wrote(address, self._nbytes)
        copy = address, self._pinned.address, self._nbytes, DEFAULT_STREAM
        self._is_in_flight = True
        device.context.call_here("cuMemcpyHtoDAsync", *copy)

    def download(self) -> None:
        """Wait for all launches, and copy what the launch may have written to `host`."""
        device, address = self._device, self.memory.address
        if device.streams.is_busy:
            device.read(address, self.host[: self._written])
        else:
            copy = self._pinned.address, address, self._written, DEFAULT_STREAM
            device.context.call_here("cuMemcpyDtoHAsync", *copy)
            try:
                device.synchronize()
            except OctantsError:  # of a kernel, after the copy
                self._is_in_flight = False
                raise
        self._is_in_flight = False
