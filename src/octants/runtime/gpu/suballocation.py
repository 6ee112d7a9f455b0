"""Splits the buffers of a device into suballocations.

A suballocation that is freed is used again at once, since the queue runs commands in order. Only an
access of the host waits.
"""

from __future__ import annotations

import bisect
import threading
import weakref
from abc import ABC, abstractmethod
from collections import deque
from typing import Any, Generic, Protocol, TypeVar

from octants.diagnostics.exceptions import InternalError, OctantsError, OctantsMemoryError
from octants.locks_at_fork import released_in_children
from octants.runtime.gpu.allocation_ledger import Ledger

ALIGNMENT = 256
BLOCK = 1 << 24
"""Bytes of a buffer that small pieces share."""
_MOST_FOUND = 1024
_LARGE = BLOCK // 4  # pieces from here on have a buffer of their own


class Buffer(Protocol):
    """Memory of a driver."""

    @property
    def address(self) -> int:
        """Its address on the device."""

    @property
    def nbytes(self) -> int:
        """Its size."""

    def free(self) -> None:
        """Give the memory back; nothing may use it any more."""


B = TypeVar("B", bound=Buffer)


class SubmissionTimeline(Protocol):
    """The submissions of a device: the last one, and the last one that is known to be complete."""

    submitted: int
    done: int

    def check(self) -> None:
        """Raise `OctantsRuntimeError` if the device is lost."""

    def wait(self, number: int, /) -> None:
        """Wait until a submission is complete."""


class SubAllocation:
    """A part of a buffer, freed when its last reference is dropped."""

    __slots__ = ("__weakref__", "address", "buffer", "nbytes")

    def __init__(self, buffer: Any, offset: int, nbytes: int) -> None:
        self.buffer = buffer
        self.address: int = buffer.address + offset
        self.nbytes = nbytes

    @property
    def offset(self) -> int:
        """Its offset in the buffer, in bytes."""
        start: int = self.buffer.address
        return self.address - start

    @property
    def host(self) -> int:
        """Its address on the host; 0 if it is not mapped."""
        start: int = self.buffer.host
        return start and start + self.offset


class Heap(ABC, Generic[B]):
    """Suballocates buffers of one memory type, which a driver makes.

    The finalizer of a suballocation only notes that it is free, since it may run in any thread.
    """

    def __init__(self, context: SubmissionTimeline) -> None:
        self._context = context
        self._lock = released_in_children(threading.RLock())
        self._buffers: list[B] = []  # by address
        self._free: dict[B, list[tuple[int, int]]] = {}  # offsets and sizes, in order
        self._freed: deque[tuple[B, int, int]] = deque()
        self._leaving: deque[tuple[int, B]] = deque()  # with the submission to wait for
        self._found: dict[int, tuple[B, int]] = {}  # by addresses that were looked for
        self.generation = 0
        """Counts the buffers that were dropped: their addresses may belong to others afterwards."""
        self._can_grow = True
        self.live = Ledger()

    def allocate(self, nbytes: int, what: str = "") -> SubAllocation:
        """Allocate memory with unspecified contents.

        Args:
            nbytes: The size in bytes.
            what: A name for the table of allocations.

        Raises:
            OctantsMemoryError: the device is out of memory; the error shows the table.
        """
        self._context.check()
        size = max(ALIGNMENT, -(-nbytes // ALIGNMENT) * ALIGNMENT)
        with self._lock:
            self._take_back()
            try:
                buffer, offset = self._find(size) or self._grow(size)
            except OctantsMemoryError:
                raise self._refused(nbytes) from None
            piece = SubAllocation(buffer, offset, nbytes)
            self.live[piece.address] = nbytes, what
        weakref.finalize(piece, self._freed.append, (buffer, offset, size)).atexit = False
        return piece

    def _find(self, size: int) -> tuple[B, int] | None:
        """The first gap that is large enough."""
        for buffer, gaps in self._free.items():
            for number, (offset, free) in enumerate(gaps):
                if free >= size:
                    gaps[number : number + 1] = [(offset + size, free - size)][: free > size]
                    return buffer, offset
        return None

    def _grow(self, size: int) -> tuple[B, int]:
        if not self._can_grow:
            raise OctantsMemoryError(f"{size} bytes are refused")
        whole = size if size >= _LARGE else BLOCK
        try:
            buffer = self._make(whole)
        except OctantsMemoryError:
            self._release(everything=True)
            buffer = self._make(size)
        bisect.insort(self._buffers, buffer, key=lambda each: each.address)
        self._free[buffer] = [(size, buffer.nbytes - size)] if buffer.nbytes > size else []
        return buffer, 0

    def free_bytes(self) -> int:
        """The bytes of its buffers that no suballocation has."""
        with self._lock:
            self._take_back()
            return sum(size for gaps in self._free.values() for _, size in gaps)

    @abstractmethod
    def _make(self, nbytes: int) -> B:
        """A buffer of the driver.

        Raises:
            OctantsMemoryError: the driver refuses it.
        """

    def stay_within(self, buffer: B, start: int, nbytes: int) -> None:
        """Allocate only within a part of a buffer, whose other parts belong to other heaps."""
        self._buffers = [buffer]
        self._free = {buffer: [(start, nbytes)]}
        self._can_grow = False

    def find(self, address: int) -> tuple[B, int]:
        """The buffer that contains an address, and the offset in it.

        Raises:
            KeyError: no buffer contains it.
        """
        with self._lock:
            position = (
                bisect.bisect_right(self._buffers, address, key=lambda each: each.address) - 1
            )
            if position >= 0:
                buffer = self._buffers[position]
                if address <= buffer.address + buffer.nbytes:
                    return buffer, address - buffer.address
        raise KeyError(address)

    def buffer_of(self, address: int, nbytes: int) -> tuple[B, int]:
        """The buffer that contains a range of memory, and the offset in it."""
        known = self._found.get(address)
        if known is not None and known[1] + nbytes <= known[0].nbytes:
            return known
        try:
            buffer, offset = self.find(address)
        except KeyError:
            raise InternalError(f"{address:#x} is not memory of the device") from None
        if offset + nbytes > buffer.nbytes:
            raise InternalError(f"{nbytes} bytes at {address:#x} are not memory of the device")
        if len(self._found) >= _MOST_FOUND:
            self._found.clear()
        self._found[address] = found = buffer, offset
        return found

    @abstractmethod
    def _refused(self, nbytes: int) -> OctantsError:
        """The exception for memory that the device does not have."""

    # -- freeing ---------------------------------------------------------------------------------

    def _take_back(self) -> None:
        while self._freed:
            buffer, offset, size = self._freed.popleft()
            del self.live[buffer.address + offset]
            gaps = self._free[buffer]
            position = bisect.bisect(gaps, (offset, size))
            gaps.insert(position, (offset, size))
            _merge(gaps, position)
            is_whole = gaps == [(0, buffer.nbytes)] and buffer.nbytes != BLOCK
            if is_whole and self._can_grow:
                self._drop(buffer)
        self._release()

    def _drop(self, buffer: B) -> None:
        """Free a buffer once everything queued now is complete."""
        del self._free[buffer]
        self._buffers.remove(buffer)
        self._found.clear()
        self.generation += 1
        self._leaving.append((self._context.submitted + 1, buffer))

    def _release(self, *, everything: bool = False) -> None:
        """Free the buffers that are no longer in use."""
        while self._leaving:
            number, buffer = self._leaving[0]
            if everything and number <= self._context.submitted:
                self._context.wait(number)
            if number > self._context.done:
                return
            self._leaving.popleft()
            buffer.free()


def _merge(gaps: list[tuple[int, int]], position: int) -> None:
    """Merge a gap with its neighbours."""
    for first in (position, position - 1):
        if 0 <= first < len(gaps) - 1:
            (offset, size), (other, more) = gaps[first : first + 2]
            if offset + size == other:
                gaps[first : first + 2] = [(offset, size + more)]
