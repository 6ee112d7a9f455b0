"""The memory of the tapes of a GPU, and which work items it was too small for.

`abi` has the layout; `tape_growth` decides how large tapes are.
"""

from __future__ import annotations

import threading

import numpy as np

from octants import abi
from octants.diagnostics.exceptions import OctantsMemoryError
from octants.diagnostics.kernel_errors import UnseenWrite
from octants.runtime.device import Allocation
from octants.runtime.gpu.driver import DeviceMemory, Queue

_HEAD = 16  # the bytes of the need and the count, before the bits of the work items


class DeviceTape:
    """A *heap* of at most ``limit`` bytes that holds the tapes of all threads of a queue.

    `lock` is held by a launch from its first thread until the host knows that none was refused, so
    that no two use the heap at once.
    """

    def __init__(self, memory: DeviceMemory, queue: Queue, limit: int) -> None:
        self.lock = threading.Lock()
        self._memory, self._queue = memory, queue
        self._limit = limit
        self._heap: Allocation | None = None
        self._refused: Allocation | None = None
        self._is_clean = False
        self._trusted = ""

    @property
    def address(self) -> int:
        """Where the heap is."""
        return self._heap.address if self._heap is not None else 0

    @property
    def nbytes(self) -> int:
        """The bytes of the heap."""
        return self._heap.nbytes if self._heap is not None else 0

    def reserve(self, nbytes: int) -> bool:
        """Make the heap as large as that, twice what it was if there is room; False if refused."""
        if nbytes <= self.nbytes:
            return True
        if nbytes > self._limit:
            return False
        generous = max(nbytes, min(2 * self.nbytes, self._limit))
        self._heap = None  # lest both be there at once
        for size in dict.fromkeys((generous, nbytes)):
            try:
                self._heap = self._memory.allocate(size, "tapes of gradients")
            except OctantsMemoryError:
                continue
            return True
        return False

    def free(self) -> None:
        """Give the memory back, unless a launch uses it now."""
        if self.lock.acquire(blocking=False):
            self._heap = None
            if not self._trusted:
                self._refused = None
            self.lock.release()

    # -- refused work items ---------------------------------------------------------------------

    def expect(self, items: int) -> int:
        """The address of zeros, in which so many work items can be noted as refused."""
        self.confirm()
        address = self.nothing_refused(items)
        self._is_clean = False
        return address

    def nothing_refused(self, items: int) -> int:
        """The same address, for a launch of which no work item can be refused."""
        nbytes = refused_bytes(items)
        if self._refused is None or self._refused.nbytes < nbytes:
            self.confirm()
            self._refused = None
            self._refused = self._memory.allocate(nbytes, "refused work items")
            self._is_clean = False
        if not self._is_clean:
            self._queue.clear(self._refused.address, self._refused.nbytes)
            self._is_clean = True
        return self._refused.address

    def trust(self, kernel: str) -> None:
        """Note that a launch of a kernel was queued which the host need not look at.

        No work item can be refused, unless memory was written that no version tells of.
        """
        self._trusted = kernel

    @property
    def is_trusted(self) -> bool:
        """Whether there is something to `confirm`."""
        return bool(self._trusted)

    def confirm(self) -> None:
        """Wait, and check the launches that were trusted; `OctantsRuntimeError` if one failed."""
        kernel, self._trusted = self._trusted, ""
        if kernel and self.refused()[1]:
            self._is_clean = False
            raise UnseenWrite(f"kernel `{kernel}`").at(None)

    def refused(self) -> tuple[int, int]:
        """(the most bytes that one needs, how many were refused), when what was launched is done.

        Both are zero again afterwards.
        """
        assert self._refused is not None
        need, count = self._read_pair(self._refused.address)
        if count:
            self._queue.clear(self._refused.address, _HEAD)
        else:
            self._is_clean = True
        return need, count

    def adopt(self, noted: int, items: int) -> tuple[int, int]:
        """Take over refused items that are noted at another address: `expect`, then `refused`.

        Gives the address of that, and the most bytes that one of them needs.
        """
        address = self.expect(items)
        self._queue.copy(address, noted, refused_bytes(items))
        return address, self.refused()[0]

    def first_refused(self) -> int:
        """The place of the first work item that is refused, counted from the lower bound."""
        assert self._refused is not None
        noted = np.zeros(self._refused.nbytes, np.uint8)
        self._queue.read(self._refused.address, noted)
        bits = np.unpackbits(noted[abi.REFUSED_ITEMS :], bitorder="little")
        return int(bits.argmax())

    # -- bounds that a kernel has computed ------------------------------------------------------

    def read_bounds(self, address: int) -> tuple[int, int]:
        """The bounds at an address, when what was launched is done."""
        return self._read_pair(address)

    def write_bounds(self, address: int, lower: int, upper: int) -> None:
        """Set the bounds at an address, for what is launched next."""
        self._queue.write(address, np.array([lower, upper], np.int64).view(np.uint8))

    def _read_pair(self, address: int) -> tuple[int, int]:
        words = np.empty(2, np.int64)
        self._queue.read(address, words.view(np.uint8))
        return int(words[0]), int(words[1])


def refused_bytes(items: int) -> int:
    """The bytes in which so many work items are noted as refused."""
    return abi.REFUSED_ITEMS + 4 * -(-items // 32)
