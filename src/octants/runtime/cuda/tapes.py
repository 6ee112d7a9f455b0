"""The tapes of the kernels in a stream, which share one heap."""

from __future__ import annotations

import threading

import numpy as np

from octants.runtime.cuda.context import Context
from octants.runtime.cuda.memory import DeviceAllocation, DeviceMemory, PinnedMemory
from octants.runtime.cuda.staging import Staging
from octants.runtime.device import Bytes
from octants.runtime.memory import view_memory
from octants.runtime.tapes import HEAD, TapeMemory

_BOUNDS = HEAD  # where bounds that are told stand in the pinned memory


class Tape(TapeMemory):
    """The heap of a stream. `lock` is held by a launch from its first thread to its last look."""

    def __init__(
        self, context: Context, memory: DeviceMemory, staging: Staging, stream: int, limit: int
    ) -> None:
        super().__init__(limit)
        self._context, self._memory, self._staging = context, memory, staging
        self._stream = stream
        self.lock = threading.Lock()
        self._pinned: PinnedMemory = memory.take_pinned()
        self._words = view_memory(self._pinned.address, np.int64, (4,))

    def __del__(self) -> None:
        self._memory.give_back_pinned(self._pinned)

    def _allocate(self, nbytes: int, what: str) -> DeviceAllocation:
        return self._memory.allocate(nbytes, what, zeroed=False)

    def _clear(self, address: int, nbytes: int) -> None:
        self._context.call("cuMemsetD8Async", address, 0, nbytes, self._stream)

    def _copy(self, address: int, into: Bytes) -> None:
        self._staging.read(address, into)

    def _move(self, target: int, source: int, nbytes: int) -> None:
        self._context.call("cuMemcpyDtoDAsync", target, source, nbytes, self._stream)

    def _read_pair(self, address: int) -> tuple[int, int]:
        pinned, stream = self._pinned.address, self._stream
        self._context.call("cuMemcpyDtoHAsync", pinned, address, HEAD, stream)
        self._context.wait_for_stream(stream)
        return int(self._words[0]), int(self._words[1])

    def free(self) -> None:
        """Give the memory back, unless a launch uses it now."""
        if self.lock.acquire(blocking=False):
            try:
                self._drop()
            finally:
                self.lock.release()

    def write_bounds(self, address: int, lower: int, upper: int) -> None:
        """Tell bounds to what is launched next; the one before it must be done."""
        self._words[2:] = lower, upper
        pinned = self._pinned.address + _BOUNDS
        self._context.call("cuMemcpyHtoDAsync", address, pinned, HEAD, self._stream)
