"""Allocates the tapes of a GPU, and reads which work items ran out of tape.

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

_HEAD = 16  # bytes of the largest need and the count, before one bit for each work item


class DeviceTape:
    """The tapes of all threads of a queue, in one heap of at most ``limit`` bytes.

    A launch holds `lock` from its first thread until the host knows that no work item ran out of
    tape, so that no two launches use the heap at once.
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
        """The address of the heap; 0 without one."""
        return self._heap.address if self._heap is not None else 0

    @property
    def nbytes(self) -> int:
        """The size of the heap, in bytes."""
        return self._heap.nbytes if self._heap is not None else 0

    def reserve(self, nbytes: int) -> bool:
        """Grow the heap to at least ``nbytes``, to twice its size if memory allows.

        Returns:
            Whether it is that large now; False if it would exceed the limit or the memory of the
                device.
        """
        if nbytes <= self.nbytes:
            return True
        if nbytes > self._limit:
            return False
        generous = max(nbytes, min(2 * self.nbytes, self._limit))
        self._heap = None  # free the old heap first
        for size in dict.fromkeys((generous, nbytes)):
            try:
                self._heap = self._memory.allocate(size, "tapes of gradients")
            except OctantsMemoryError:
                continue
            return True
        return False

    def free(self) -> None:
        """Free the heap, unless a launch is using it."""
        if self.lock.acquire(blocking=False):
            self._heap = None
            if not self._trusted:
                self._refused = None
            self.lock.release()

    # -- capacity failures ----------------------------------------------------------------------

    def expect(self, items: int) -> int:
        """The address of a zeroed failure record for ``items`` work items, for a launch that may
        fail.
        """
        self.confirm()
        address = self.nothing_refused(items)
        self._is_clean = False
        return address

    def nothing_refused(self, items: int) -> int:
        """The same address, for a launch whose tapes are known to suffice."""
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
        """Register a queued launch of a kernel that the host does not wait for.

        Its tapes suffice unless memory was written that no version tracks; `confirm` checks that.
        """
        self._trusted = kernel

    @property
    def is_trusted(self) -> bool:
        """Whether there are launches to `confirm`."""
        return bool(self._trusted)

    def confirm(self) -> None:
        """Wait for the launches that were trusted, and check that none ran out of tape.

        Raises:
            OctantsRuntimeError: one did: memory was changed by an untracked write.
        """
        kernel, self._trusted = self._trusted, ""
        if kernel and self.refused()[1]:
            self._is_clean = False
            raise UnseenWrite(f"kernel `{kernel}`").at(None)

    def refused(self) -> tuple[int, int]:
        """Wait for the launch, and read its failure record, which is zero again afterwards.

        Returns:
            The most bytes that a failed work item needs, and how many failed.
        """
        assert self._refused is not None
        need, count = self._read_pair(self._refused.address)
        if count:
            self._queue.clear(self._refused.address, _HEAD)
        else:
            self._is_clean = True
        return need, count

    def adopt(self, noted: int, items: int) -> tuple[int, int]:
        """Copy a failure record of a graph's node into the one of this tape.

        Returns:
            The address of this tape's record, and the most bytes that a failed work item needs.
        """
        address = self.expect(items)
        self._queue.copy(address, noted, refused_bytes(items))
        return address, self.refused()[0]

    def first_refused(self) -> int:
        """The first work item that failed, counted from the lower bound."""
        assert self._refused is not None
        noted = np.zeros(self._refused.nbytes, np.uint8)
        self._queue.read(self._refused.address, noted)
        bits = np.unpackbits(noted[abi.REFUSED_ITEMS :], bitorder="little")
        return int(bits.argmax())

    # -- bounds computed on the device ----------------------------------------------------------

    def read_bounds(self, address: int) -> tuple[int, int]:
        """Wait for what is queued, and read the bounds at an address."""
        return self._read_pair(address)

    def write_bounds(self, address: int, lower: int, upper: int) -> None:
        """Queue a write of the bounds at an address."""
        self._queue.write(address, np.array([lower, upper], np.int64).view(np.uint8))

    def _read_pair(self, address: int) -> tuple[int, int]:
        words = np.empty(2, np.int64)
        self._queue.read(address, words.view(np.uint8))
        return int(words[0]), int(words[1])


def refused_bytes(items: int) -> int:
    """The size of a failure record for ``items`` work items, in bytes."""
    return abi.REFUSED_ITEMS + 4 * -(-items // 32)
