"""The tapes of the threads of a kernel: their memory, and what is told of refused work items.

All kernels of a stream share one *heap*: after each of them the host looks whether work items were
refused, so that no two use it at once. How tapes lie in it is in `abi`.
"""

from __future__ import annotations

import threading

import numpy as np

from octants import abi
from octants.diagnostics.exceptions import OctantsMemoryError
from octants.runtime.cuda.context import Context
from octants.runtime.cuda.memory import DeviceAllocation, DeviceMemory, PinnedMemory
from octants.runtime.cuda.staging import Staging
from octants.runtime.memory import view_memory

_HEAD = 16
_BOUNDS = 16  # where bounds stand in the pinned memory


class Tape:
    """The heap of a stream. `lock` is held by a launch from its first thread to its last look."""

    def __init__(
        self, context: Context, memory: DeviceMemory, staging: Staging, stream: int, limit: int
    ) -> None:
        self._context, self._memory, self._staging = context, memory, staging
        self._stream, self._limit = stream, limit
        self.lock = threading.Lock()
        self._heap: DeviceAllocation | None = None
        self._refused: DeviceAllocation | None = None
        self._is_clean = False
        self._pinned: PinnedMemory = memory.take_pinned()
        self._words = view_memory(self._pinned.address, np.int64, (4,))

    def __del__(self) -> None:
        self._memory.give_back_pinned(self._pinned)

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
                self._heap = self._memory.allocate(size, "tapes of gradients", zeroed=False)
            except OctantsMemoryError:
                continue
            return True
        return False

    def free(self) -> None:
        """Give the memory back, unless a launch uses it now."""
        if self.lock.acquire(blocking=False):
            try:
                self._heap = self._refused = None
            finally:
                self.lock.release()

    # -- refused work items ---------------------------------------------------------------------

    def expect(self, items: int) -> int:
        """The address of room for what is told of so many work items, all of it zero."""
        nbytes = abi.REFUSED_ITEMS + 4 * (-(-items // 32))
        if self._refused is None or self._refused.nbytes < nbytes:
            self._refused = None
            self._refused = self._memory.allocate(nbytes, "refused work items", zeroed=False)
            self._is_clean = False
        if not self._is_clean:
            self._clear(self._refused.nbytes)
        self._is_clean = False
        return self._refused.address

    def refused(self) -> tuple[int, int]:
        """(the most bytes that one needs, how many were refused), when what was launched is done.

        Both are zero again afterwards.
        """
        assert self._refused is not None
        call, pinned = self._context.call, self._pinned.address
        call("cuMemcpyDtoHAsync", pinned, self._refused.address, _HEAD, self._stream)
        self._context.wait_for_stream(self._stream)
        need, count = int(self._words[0]), int(self._words[1])
        if count:
            self._clear(_HEAD)
        else:
            self._is_clean = True
        return need, count

    def first_refused(self) -> int:
        """The place of the first work item that is refused, counted from the lower bound."""
        assert self._refused is not None
        told = np.zeros(self._refused.nbytes, np.uint8)
        self._staging.read(self._refused.address, told)
        bits = np.unpackbits(told[abi.REFUSED_ITEMS :], bitorder="little")
        return int(bits.argmax())

    def _clear(self, nbytes: int) -> None:
        assert self._refused is not None
        self._context.call("cuMemsetD8Async", self._refused.address, 0, nbytes, self._stream)

    # -- bounds that a kernel has computed ------------------------------------------------------

    def read_bounds(self, address: int) -> tuple[int, int]:
        """The bounds that what was launched has left at an address."""
        pinned = self._pinned.address + _BOUNDS
        self._context.call("cuMemcpyDtoHAsync", pinned, address, 16, self._stream)
        self._context.wait_for_stream(self._stream)
        return int(self._words[2]), int(self._words[3])

    def write_bounds(self, address: int, lower: int, upper: int) -> None:
        """Tell bounds to what is launched next; the one before it must be done."""
        self._words[2:] = lower, upper
        pinned = self._pinned.address + _BOUNDS
        self._context.call("cuMemcpyHtoDAsync", address, pinned, 16, self._stream)
