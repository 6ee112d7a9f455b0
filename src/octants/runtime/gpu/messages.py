"""The message buffers of launches that may write to them, until the host reads them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from octants import abi
from octants.artifact import Artifact
from octants.diagnostics.exceptions import OctantsError, OctantsMemoryError
from octants.lazy_dataclass import dataclass
from octants.runtime.device import Allocation
from octants.runtime.gpu.driver import DeviceMemory, Queue
from octants.runtime.reports.messages import (
    MOST_IN_FLIGHT,
    PRINT_WORDS,
    MessageBuffer,
    capacity_for,
    clear_head,
    has_spoken,
)
from octants.runtime.reports.pending_errors import Pending


@dataclass(frozen=True, slots=True)
class DeviceBuffer:
    """A message buffer of the device, clean unless a launch has it or has written to it.

    One that `is_kept` belongs to the launches of a graph.
    """

    memory: Allocation
    capacity: int
    is_kept: bool = False


class MessageQueue:
    """The messages of launches, in the order in which they were launched.

    A buffer to which nothing was written is clean, so that a launch without messages costs the
    reading of its head, which is done at once for all launches since the last look. Buffers are of
    ``memory``, ``queue`` reads them, and ``look`` waits for all launches and calls `deliver`.
    """

    def __init__(
        self, memory: DeviceMemory, queue: Queue, pending: Pending, look: Callable[[], None]
    ) -> None:
        self._memory, self._queue = memory, queue
        self._pending, self._look = pending, look
        self._clean: dict[int, list[DeviceBuffer]] = {0: [], PRINT_WORDS: []}
        self._flying: deque[tuple[Artifact, DeviceBuffer]] = deque()
        self._owners: set[object] = set()
        self._lock = threading.RLock()

    def __bool__(self) -> bool:
        return bool(self._flying)

    def take(self, artifact: Artifact) -> DeviceBuffer:
        """A clean buffer for a launch; where there are too many, those of launches that are done.

        Raises what `deliver` does.
        """
        if len(self._flying) >= MOST_IN_FLIGHT:
            self._look()
        capacity = capacity_for(artifact)
        try:
            return self._clean[capacity].pop()
        except IndexError:
            try:
                return self._make(capacity)
            except OctantsMemoryError:
                self._look()
        clean = self._clean[capacity]
        return clean.pop() if clean else self._make(capacity)

    def put(self, artifact: Artifact, buffer: DeviceBuffer) -> None:
        """Remember the buffer of a launch that was made."""
        self._flying.append((artifact, buffer))

    def make_kept(self, artifact: Artifact) -> DeviceBuffer:
        """A clean buffer for all launches of one kind: it is never another's."""
        made = self._make(capacity_for(artifact))
        return DeviceBuffer(made.memory, made.capacity, is_kept=True)

    def awaits(self, owner: object) -> bool:
        """Whether launches of an owner have not been looked at."""
        return owner in self._owners

    def put_kept(self, owner: object, buffers: Sequence[tuple[Artifact, DeviceBuffer]]) -> None:
        """Remember the buffers of launches that were made, for an owner, once until the look."""
        if owner not in self._owners:
            self._owners.add(owner)
            self._flying.extend(buffers)

    def deliver(self) -> None:
        """Print what was printed, and raise the first failure. All launches must be done.

        What overflowed joins what is pending.
        """
        with self._lock:
            failure: OctantsError | None = None
            self._owners.clear()
            while self._flying:
                for error in self._read_some():
                    failure = failure or error
            if failure is not None:
                raise failure

    def forget(self) -> None:
        """Drop all buffers: the memory of the GPU is lost."""
        self._flying.clear()
        for buffers in self._clean.values():
            buffers.clear()

    # -- inside ---------------------------------------------------------------------------------

    def _make(self, capacity: int) -> DeviceBuffer:
        nbytes = abi.MESSAGES_HEADER + 8 * capacity
        buffer = DeviceBuffer(self._memory.allocate(nbytes, "messages"), capacity)
        self._clear(buffer)
        return buffer

    def _clear(self, buffer: DeviceBuffer) -> None:
        head = np.zeros(abi.MESSAGES_HEADER // 8, np.int64)
        clear_head(head, buffer.capacity)
        self._queue.write(buffer.memory.address, head.view(np.uint8))

    def _read_some(self) -> list[OctantsError]:
        """Read the messages of a number of launches at once; the failures."""
        count = min(len(self._flying), MOST_IN_FLIGHT)
        launches = [self._flying.popleft() for _ in range(count)]
        addresses = [buffer.memory.address for _, buffer in launches]
        heads = self._queue.read_each(addresses, abi.MESSAGES_HEADER).view(np.int64)
        failures: list[OctantsError] = []
        for (artifact, buffer), head in zip(launches, heads, strict=True):
            try:
                if has_spoken(head):
                    self._read(artifact, buffer)
            except OctantsError as error:
                failures.append(error)
            if not buffer.is_kept:
                self._clean[buffer.capacity].append(buffer)
        return failures

    def _read(self, artifact: Artifact, buffer: DeviceBuffer) -> None:
        host = MessageBuffer(buffer.capacity)
        self._queue.read(buffer.memory.address, host.bytes)
        self._clear(buffer)
        overflow = host.deliver(artifact)
        if overflow is not None:
            self._pending.add(overflow)
