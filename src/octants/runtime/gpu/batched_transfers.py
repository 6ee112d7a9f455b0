"""Copies between the host and devices whose commands go in batches, and within such devices."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from octants.runtime.device import Bytes
from octants.runtime.gpu.staging import Staging
from octants.runtime.memory.host import address_of
from octants.runtime.memory.threaded_copy import move

_FEW = 1 << 16  # bytes that go with the commands
FEW_UNCACHED = 512
"""The most bytes that the host reads from mapped memory that is not cached: that takes no command,
but each few bytes take a round trip. On an H100, 256 bytes take 4 us, 1024 take 31 us, and a
submission with its wait takes 20 us.
"""


class BatchedTransfers(ABC):
    """A queue and a heap as a `gpu.driver.Queue`. The device copies multiples of `granule` bytes.

    ``staging`` is for memory that the host cannot access, or reads slowly, where there is any.
    """

    granule = 1
    copy_kernel: Any = None
    """A kernel that copies whole items of 16 bytes within the device, where there is one."""

    def __init__(self, queue: Any, heap: Any, staging: Staging | None = None) -> None:
        self.queue, self._heap, self._staging = queue, heap, staging
        self.buffer_of: Callable[[int, int], tuple[Any, int]] = heap.buffer_of
        """The buffer that contains a range of memory, given by its address and its bytes, and the
        offset in it.
        """

    # -- what a driver adds ---------------------------------------------------------------------

    @abstractmethod
    def copy_rows(
        self, target: int, target_step: int, source: int, source_step: int, nbytes: int, rows: int
    ) -> None:
        """Copy pieces at equal distances within the device."""

    @abstractmethod
    def clear(self, address: int, nbytes: int) -> None:
        """Set memory to zero."""

    # -- what is the same for all ---------------------------------------------------------------

    @property
    def staging_bytes(self) -> int:
        """The size of the staging buffers."""
        return 0 if self._staging is None else self._staging.nbytes

    def _through_staging(self) -> Staging:
        assert self._staging is not None, "all memory is mapped"
        self.queue.context.check()
        return self._staging

    def read(self, address: int, into: Bytes) -> None:
        """Wait for everything queued, and copy to the host."""
        if into.nbytes == 0:
            return
        buffer, offset = self.buffer_of(address, into.nbytes)
        with self.queue.lock:
            if buffer.host and (buffer.reads_well or into.nbytes <= FEW_UNCACHED):
                self.queue.finish()
                move(address_of(into), buffer.host + offset, into.nbytes)
            else:
                self._through_staging().read(address, address_of(into), into.nbytes)

    def read_each(self, addresses: list[int], nbytes: int) -> Bytes:
        """Read ``nbytes`` at each address; see `gpu.driver.Queue.read_each`."""
        found: Bytes = np.empty((len(addresses), nbytes), np.uint8)
        for row, address in zip(found, addresses, strict=True):
            self.read(address, row)
        return found

    def write(self, address: int, values: Bytes) -> None:
        """Copy from the host; a few bytes need not wait for what is queued."""
        nbytes, source = values.nbytes, address_of(values)
        if nbytes == 0:
            return
        buffer, offset = self.buffer_of(address, nbytes)
        is_small = nbytes <= _FEW and not (offset | nbytes) % self.granule
        with self.queue.lock:
            if is_small and not (buffer.host and self.queue.is_idle):
                self.queue.write((buffer, offset), ctypes.string_at(source, nbytes))
            elif buffer.host:
                self.queue.finish()
                move(buffer.host + offset, source, nbytes)
            else:
                self._through_staging().write(address, source, nbytes)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy within the device."""
        self.copy_rows(target, nbytes, source, nbytes, nbytes, 1)
