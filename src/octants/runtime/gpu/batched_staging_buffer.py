"""Staging buffers whose copies go into one submission with their launch.

    host ──copy──▶ memory ──kernel──▶ memory ──copy──▶ host

The host writes `memory` itself where it is mapped, and reads few bytes from there. It uses no other
memory where it also reads that well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from octants.runtime.device import Allocation, Bytes, LoadedKernel
from octants.runtime.gpu.batched_transfers import FEW_UNCACHED
from octants.runtime.gpu.suballocation import SubAllocation
from octants.runtime.memory.host import view_memory

_abandoned: list[SubAllocation] = []
"""Memory of launches whose wait Ctrl-C has ended; the device may still use it."""


class BatchedStagingBuffer:
    """Implements `runtime.device.StagingBuffer`, for launches that write to it.

    ``device`` is a `batched_device.BatchedDevice`.
    """

    def __init__(self, device: Any, nbytes: int, written: int) -> None:
        self._device, self._nbytes, self._written = device, nbytes, written
        self._own = own = device.allocate_dirty(nbytes, "copies of arguments")
        self.memory: Allocation = own
        self._is_mapped = bool(own.host)
        is_one = self._is_mapped and bool(own.buffer.reads_well)
        self._shared = own if is_one else device.mapped.allocate(nbytes, "copies of arguments")
        self._reads_own = self._is_mapped and not is_one and written <= FEW_UNCACHED
        self.host: Bytes = view_memory(self._shared.host, np.uint8, (nbytes,))
        self.is_launched = False
        device.queue.finish()  # earlier commands may use memory that was freed

    def launch(self, run: Callable[[int], None], _: LoadedKernel, block: int) -> None:
        """Submit a copy of `host`, a launch, and a copy of what it may have written."""
        device, own, shared = self._device, self._own, self._shared
        inside, outside = (own.buffer, own.offset), (shared.buffer, shared.offset)
        queue, is_one = device.queue, own is shared
        if device.versions.watches:
            device.versions.wrote(own.address, self._nbytes)
        with queue.lock:
            queue.open().is_urgent = False  # it takes more than one launch
            if not self._is_mapped:
                queue.copy(inside, outside, self._nbytes)
            elif not is_one:
                view_memory(own.host, np.uint8, (self._nbytes,))[...] = self.host
            self.is_launched = True
            try:
                run(block)
            finally:
                if not (is_one or self._reads_own):
                    queue.copy(outside, inside, self._written)
                queue.flush()

    def download(self) -> None:
        """Wait for all launches."""
        device = self._device
        try:
            device.queue.finish()
        except BaseException:  # such as Ctrl-C
            _abandoned.append(self._shared)
            raise
        if self._reads_own:
            self.host[: self._written] = view_memory(self._own.host, np.uint8, (self._written,))
        self.is_launched = False
        device.deliver()
        device.pending.raise_first()
