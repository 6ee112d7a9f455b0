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
        self._slots: deque[Slot] = deque()

    def write(self, to: tuple[Buffer, int], source: int, nbytes: int) -> None:
        """Copy from an address of the host, which is free when this returns."""
        buffer, offset = to
        with self._queue.lock:
            for start in range(0, nbytes, CHUNK):
                slot, count = self._next(), min(CHUNK, nbytes - start)
                move(slot.host, source + start, count)
                self._queue.copy((buffer, offset + start), (slot.buffer, slot.offset), count)
                slot.number = self._queue.flush()

    def read(self, of: tuple[Buffer, int], target: int, nbytes: int) -> None:
        """Copy to an address of the host; all that is queued is done when this returns."""
        buffer, offset = of
        flying: deque[tuple[Slot, int]] = deque()
        with self._queue.lock:
            for start in range(0, nbytes, CHUNK):
                if len(flying) == SLOTS:
                    self._take(*flying.popleft(), target, nbytes)
                slot, count = self._next(), min(CHUNK, nbytes - start)
                self._queue.copy((slot.buffer, slot.offset), (buffer, offset + start), count)
                slot.number = self._queue.flush()
                flying.append((slot, start))
            for slot, start in flying:
                self._take(slot, start, target, nbytes)

    def _take(self, slot: Slot, start: int, target: int, nbytes: int) -> None:
        """Copy a chunk that begins at ``start`` to the host, when it has arrived."""
        self._queue.context.wait(slot.number)
        move(target + start, slot.host, min(CHUNK, nbytes - start))

    def _next(self) -> Slot:
        """The part that was used longest ago, when it is free."""
        if not self._slots:
            buffer = Buffer(self._queue.context, SLOTS * CHUNK, MAPPED)
            self._slots.extend(Slot(buffer, k * CHUNK) for k in range(SLOTS))
        slot = self._slots[0]
        self._slots.rotate(-1)
        self._queue.context.wait(slot.number)
        return slot
