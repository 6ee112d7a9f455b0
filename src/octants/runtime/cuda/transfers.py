"""Copies between the host and a GPU, and within the GPU, in the order of a stream."""

from __future__ import annotations

import ctypes
import threading
from collections import defaultdict
from collections.abc import Callable
from ctypes import byref, c_void_p

import numpy as np

from octants.locks_at_fork import released_in_children
from octants.runtime.cuda import library as cuda
from octants.runtime.cuda.context import Context
from octants.runtime.cuda.fill_words import FILLS
from octants.runtime.cuda.memory import DEFAULT_STREAM, PinnedMemory
from octants.runtime.device import Bytes
from octants.runtime.gpu.driver import Chunk
from octants.runtime.gpu.staging import CHUNKS, Staging
from octants.runtime.memory.host import address_of

LARGE = 4 << 20
FEW = 1 << 14
"""The most bytes of a write that passes through a `PinnedRing`."""
_HALF = 1 << 16
SMALL = 1 << 16
"""The most bytes of a read that uses a buffer of its own, without alternating chunks."""


class PinnedChunk:
    """A staging buffer in pinned memory, with the event after which it may be used again."""

    def __init__(self, context: Context, nbytes: int) -> None:
        self._context = context
        self.host = PinnedMemory(context, nbytes).address
        event = c_void_p()
        context.call("cuEventCreate", byref(event), cuda.EVENT_NO_TIMING)
        self._event = event.value or 0
        self._is_busy = False

    def upload(self, target: int, nbytes: int, stream: int) -> None:
        """Queue a copy to the GPU."""
        self._context.call("cuMemcpyHtoDAsync", target, self.host, nbytes, stream)
        self._note(stream)

    def download(self, source: int, nbytes: int, stream: int) -> None:
        """Queue a copy from the GPU."""
        self._context.call("cuMemcpyDtoHAsync", self.host, source, nbytes, stream)
        self._note(stream)

    def _note(self, stream: int) -> None:
        self._context.call("cuEventRecord", self._event, stream)
        self._is_busy = True

    def wait(self) -> None:
        """Wait for the last copy."""
        if self._is_busy:
            self._context.wait_for_event(self._event)
            self._is_busy = False


class PinnedRing:
    """Pinned memory that small copies in the default stream pass through, one after the other.

    Each half has an event, after which it may be used again: most copies need none.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._host = 0
        self._events = [c_void_p(), c_void_p()]
        self._is_used = [False, False]
        self._half = self._used = 0

    def write(self, target: int, source: int, nbytes: int) -> None:
        """Queue a copy to the GPU of at most `FEW` bytes."""
        start = self._take(nbytes)
        ctypes.memmove(start, source, nbytes)
        self._context.call_here("cuMemcpyHtoDAsync", target, start, nbytes, DEFAULT_STREAM)

    def _take(self, nbytes: int) -> int:
        """The address of free memory; waits for the copies that used it before."""
        if not self._host:
            self._host = PinnedMemory(self._context, 2 * _HALF).address
            for event in self._events:
                self._context.call_here("cuEventCreate", byref(event), cuda.EVENT_NO_TIMING)
        if self._used + nbytes > _HALF:
            self._context.call_here("cuEventRecord", self._events[self._half], DEFAULT_STREAM)
            self._is_used[self._half] = True
            other = 1 - self._half
            if self._is_used[other]:
                self._context.wait_for_event(self._events[other].value or 0)
            self._half, self._used = other, 0  # not earlier, since the wait can be interrupted
        start = self._host + self._half * _HALF + self._used
        self._used += -(-nbytes // 16) * 16
        return start


class PinnedStaging:
    """The pinned memory of a context; all streams share it."""

    def __init__(self, context: Context) -> None:
        def make(nbytes: int) -> list[Chunk]:
            return [PinnedChunk(context, nbytes) for _ in range(CHUNKS)]

        self.lock = released_in_children(threading.Lock())
        self.copies = Staging(make, LARGE)
        self.ring = PinnedRing(context)
        self.free: defaultdict[int, list[PinnedMemory]] = defaultdict(list)
        """Free buffers for small copies, by their sizes in bytes."""
        self._context = context

    def take(self, nbytes: int) -> PinnedMemory:
        """A buffer of ``nbytes``, which the caller adds to those in `free` afterwards."""
        try:
            return self.free[nbytes].pop()
        except IndexError:
            return PinnedMemory(self._context, nbytes)

    @property
    def nbytes(self) -> int:
        """The size of all buffers, in bytes."""
        small = sum(size * len(free) for size, free in list(self.free.items()))
        return self.copies.nbytes + small


class Transfers:
    """A stream as a `gpu.driver.Queue`."""

    def __init__(self, context: Context, staging: PinnedStaging, stream: int) -> None:
        self._context, self._staging = context, staging
        self._stream = stream

    def write(self, address: int, values: Bytes) -> None:
        """Queue a copy from the host; the caller may change ``values`` when this returns."""
        nbytes, source, staging = values.nbytes, address_of(values), self._staging
        if nbytes <= FEW and self._stream == DEFAULT_STREAM:
            with staging.lock:
                staging.ring.write(address, source, nbytes)
            return
        with staging.lock, self._context.active():
            staging.copies.write(address, source, nbytes, self._stream)

    def read(self, address: int, into: Bytes, wait: Callable[[], None] | None = None) -> None:
        """Copy to the host, and wait for it.

        Args:
            address: The address on the device.
            into: The target.
            wait: Waits for the stream in place of the driver's wait for it.
        """
        if into.nbytes > SMALL or not into.nbytes:
            if wait is not None:
                wait()
            with self._staging.lock, self._context.active():
                copies = self._staging.copies
                copies.read(address, address_of(into), into.nbytes, self._stream)
        else:
            self._read_small([address], into, into.nbytes, wait)

    def read_each(self, addresses: list[int], nbytes: int) -> Bytes:
        """Read ``nbytes`` at each address, with one wait for all; see `gpu.driver.Queue`."""
        found: Bytes = np.empty((len(addresses), nbytes), np.uint8)
        most = SMALL // nbytes
        for start in range(0, len(addresses), most):
            some = slice(start, start + most)
            self._read_small(addresses[some], found[some], nbytes, None)
        return found

    def _read_small(
        self, addresses: list[int], into: Bytes, size: int, wait: Callable[[], None] | None
    ) -> None:
        """Read ``size`` bytes at each address, at most `SMALL` together."""
        context, staging = self._context, self._staging
        pinned = staging.take(SMALL)
        target = pinned.address
        for address in addresses:
            context.call_here("cuMemcpyDtoHAsync", target, address, size, self._stream)
            target += size
        if wait is not None:
            wait()
        else:
            with context.active():
                context.wait_for_stream(self._stream)
        ctypes.memmove(address_of(into), pinned.address, into.nbytes)
        staging.free[SMALL].append(pinned)  # after an interrupted wait the copy may be under way

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Queue a copy within the GPU."""
        self._context.call_here("cuMemcpyDtoDAsync", target, source, nbytes, self._stream)

    def copy_rows(
        self, target: int, target_step: int, source: int, source_step: int, nbytes: int, rows: int
    ) -> None:
        """Queue a strided copy within the GPU; see `gpu.driver.Queue.copy_rows`."""
        copy = cuda.RowCopy(
            source_kind=cuda.ON_DEVICE,
            source=source,
            source_pitch=source_step,
            target_kind=cuda.ON_DEVICE,
            target=target,
            target_pitch=target_step,
            width=nbytes,
            height=rows,
        )
        self._context.call_here("cuMemcpy2DAsync", byref(copy), self._stream)

    def clear(self, address: int, nbytes: int) -> None:
        """Queue a fill with zeros."""
        self._context.call_here("cuMemsetD8Async", address, 0, nbytes, self._stream)

    def fill_words(self, address: int, size: int, value: int, count: int) -> None:
        """Queue a fill of ``count`` words of 1, 2 or 4 bytes."""
        self._context.call_here(FILLS[size], address, value, count, self._stream)
