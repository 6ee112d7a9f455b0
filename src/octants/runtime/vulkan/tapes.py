"""The tapes of the threads of a kernel: their memory, and what is told of refused work items.

All kernels of a device share one *heap*: after each of them the host looks whether work items were
refused, so that no two use it at once. How tapes lie in it is in `abi`.
"""

from __future__ import annotations

import threading

import numpy as np

from octants import abi
from octants.diagnostics.exceptions import OctantsMemoryError
from octants.runtime.vulkan.memory import Heap, Piece
from octants.runtime.vulkan.transfers import Transfers

_HEAD = 16


class Tape:
    """The heap of a device, of at most ``limit`` bytes; see `runtime.recording.Tape`."""

    def __init__(self, heap: Heap, transfers: Transfers, limit: int) -> None:
        self._heap, self._transfers, self._limit = heap, transfers, limit
        self.lock = threading.RLock()
        self._tapes: Piece | None = None
        self._refused: Piece | None = None
        self._is_clean = False

    @property
    def address(self) -> int:
        """Where the heap is."""
        return self._tapes.address if self._tapes is not None else 0

    @property
    def nbytes(self) -> int:
        """The bytes of the heap."""
        return self._tapes.nbytes if self._tapes is not None else 0

    def reserve(self, nbytes: int) -> bool:
        """Make the heap as large as that, twice what it was if there is room; False if refused."""
        if nbytes <= self.nbytes:
            return True
        if nbytes > self._limit:
            return False
        generous = max(nbytes, min(2 * self.nbytes, self._limit))
        self._tapes = None  # lest both be there at once
        for size in dict.fromkeys((generous, nbytes)):
            try:
                self._tapes = self._heap.allocate(size)
            except OctantsMemoryError:
                continue
            return True
        return False

    def free(self) -> None:
        """Give the memory back."""
        with self.lock:
            self._tapes = self._refused = None

    # -- refused work items ---------------------------------------------------------------------

    def expect(self, items: int) -> int:
        """The address of room for what is told of so many work items, all of it zero."""
        nbytes = abi.REFUSED_ITEMS + 4 * (-(-items // 32))
        if self._refused is None or self._refused.nbytes < nbytes:
            self._refused = self._heap.allocate(nbytes)
            self._is_clean = False
        if not self._is_clean:
            self._transfers.clear(self._refused.address, self._refused.nbytes)
        self._is_clean = False
        return self._refused.address

    def refused(self) -> tuple[int, int]:
        """(the most bytes that one needs, how many were refused), when what was launched is done.

        Both are zero again afterwards.
        """
        assert self._refused is not None
        need, count = self._read(self._refused.address)
        if count:
            self._transfers.clear(self._refused.address, _HEAD)
        else:
            self._is_clean = True
        return need, count

    def first_refused(self) -> int:
        """The place of the first work item that is refused, counted from the lower bound."""
        assert self._refused is not None
        told = np.zeros(self._refused.nbytes, np.uint8)
        self._transfers.read(self._refused.address, told)
        bits = np.unpackbits(told[abi.REFUSED_ITEMS :], bitorder="little")
        return int(bits.argmax())

    # -- bounds that a kernel has computed ------------------------------------------------------

    def read_bounds(self, address: int) -> tuple[int, int]:
        """The bounds that what was launched has left at an address."""
        return self._read(address)

    def write_bounds(self, address: int, lower: int, upper: int) -> None:
        """Tell bounds to what is launched next."""
        self._transfers.write(address, np.array([lower, upper], np.int64).view(np.uint8))

    def _read(self, address: int) -> tuple[int, int]:
        words = np.zeros(2, np.int64)
        self._transfers.read(address, words.view(np.uint8))
        return int(words[0]), int(words[1])
