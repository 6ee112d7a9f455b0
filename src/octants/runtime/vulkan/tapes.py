"""The tapes of the kernels of a device, which share one heap."""

from __future__ import annotations

import threading

import numpy as np

from octants.runtime.device import Bytes
from octants.runtime.tapes import TapeMemory
from octants.runtime.vulkan.memory import Heap, Piece
from octants.runtime.vulkan.transfers import Transfers


class Tape(TapeMemory):
    """The heap of a device; see `runtime.steps.Tape`."""

    def __init__(self, heap: Heap, transfers: Transfers, limit: int) -> None:
        super().__init__(limit)
        self._memory, self._transfers = heap, transfers
        self.lock = threading.RLock()

    def _allocate(self, nbytes: int, what: str) -> Piece:
        return self._memory.allocate(nbytes, what)

    def _clear(self, address: int, nbytes: int) -> None:
        self._transfers.clear(address, nbytes)

    def _copy(self, address: int, into: Bytes) -> None:
        self._transfers.read(address, into)

    def _move(self, target: int, source: int, nbytes: int) -> None:
        self._transfers.copy(target, source, nbytes)

    def _read_pair(self, address: int) -> tuple[int, int]:
        words = np.zeros(2, np.int64)
        self._transfers.read(address, words.view(np.uint8))
        return int(words[0]), int(words[1])

    def free(self) -> None:
        """Give the memory back."""
        with self.lock:
            self._drop()

    def write_bounds(self, address: int, lower: int, upper: int) -> None:
        """Tell bounds to what is launched next."""
        self._transfers.write(address, np.array([lower, upper], np.int64).view(np.uint8))
