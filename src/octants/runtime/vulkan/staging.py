"""Copies between the host and memory that it has not mapped, by way of memory that it has.

The parts of that take turns: while the device copies to or from one, the host does with another.
"""

from __future__ import annotations

from collections import deque

from octants.lazy_dataclass import dataclass
from octants.runtime.moves import move
from octants.runtime.vulkan.memory import MAPPED, Buffer
from octants.runtime.vulkan.queue import Queue

CHUNK = 1 << 24
SMALL = 1 << 20
"""Bytes that never need more: programs that copy little start sooner."""
SLOTS = 2


@dataclass(slots=True)
class Slot:
    """A part, at an offset of the buffer; `number` is that of the submission that used it last."""

    buffer: Buffer
    offset: int
    number: int = 0

    @property
    def host(self) -> int:
        """Where the host has it mapped."""
        return self.buffer.host + self.offset


class Staging:
    """The parts, for one queue."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._slots: dict[int, deque[Slot]] = {}

    def write(self, to: tuple[Buffer, int], source: int, nbytes: int) -> None:
        """Copy from an address of the host, which is free when this returns."""
        buffer, offset = to
        chunk = SMALL if nbytes <= SMALL else CHUNK
        with self._queue.lock:
            for start in range(0, nbytes, chunk):
                slot, count = self._next(chunk), min(chunk, nbytes - start)
                move(slot.host, source + start, count)
                self._queue.copy((buffer, offset + start), (slot.buffer, slot.offset), count)
                slot.number = self._queue.flush()

    def read(self, of: tuple[Buffer, int], target: int, nbytes: int) -> None:
        """Copy to an address of the host; all that is queued is done when this returns."""
        buffer, offset = of
        chunk = SMALL if nbytes <= SMALL else CHUNK
        flying: deque[tuple[Slot, int, int]] = deque()
        with self._queue.lock:
            for start in range(0, nbytes, chunk):
                if len(flying) == SLOTS:
                    self._take(*flying.popleft())
                slot, count = self._next(chunk), min(chunk, nbytes - start)
                self._queue.copy((slot.buffer, slot.offset), (buffer, offset + start), count)
                slot.number = self._queue.flush()
                flying.append((slot, target + start, count))
            for each in flying:
                self._take(*each)

    def _take(self, slot: Slot, target: int, nbytes: int) -> None:
        """Copy a chunk to the host, when it has arrived."""
        self._queue.context.wait(slot.number)
        move(target, slot.host, nbytes)

    def _next(self, chunk: int) -> Slot:
        """The part of so many bytes that was used longest ago, when it is free."""
        context = self._queue.context
        context.check()
        slots = self._slots.get(chunk)
        if slots is None:
            buffer = Buffer(context, SLOTS * chunk, MAPPED)
            slots = deque(Slot(buffer, k * chunk) for k in range(SLOTS))
            self._slots[chunk] = slots
        slot = slots[0]
        slots.rotate(-1)
        context.wait(slot.number)
        return slot
