"""Manages the message buffers of GPU launches, from the launch until the host reads them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from octants import abi
from octants.artifact import Artifact
from octants.diagnostics.exceptions import OctantsError, OctantsMemoryError
from octants.lazy_dataclass import dataclass
from octants.locks_at_fork import released_in_children
from octants.runtime.device import Allocation
from octants.runtime.gpu.driver import DeviceMemory, Queue
from octants.runtime.reports.messages import (
    MOST_IN_FLIGHT,
    PRINT_WORDS,
    MessageBuffer,
    capacity_for,
    clear_head,
    has_messages,
)
from octants.runtime.reports.pending_errors import Pending


@dataclass(frozen=True, slots=True)
class DeviceBuffer:
    """A message buffer in device memory: clean, unless a launch is using it or has written to it.

    One that `is_shared_by_replays` belongs to the launches of a graph.
    """

    memory: Allocation
    capacity: int
    is_shared_by_replays: bool = False


class MessageQueue:
    """Delivers the messages of launches in launch order.

    A buffer that no launch has written to is clean, so a launch without messages costs only the
    read of a buffer's head; the heads of all launches since the last delivery are read at once.

    Args:
        memory: Allocates the buffers.
        queue: Reads and clears them.
        pending: Receives record-buffer overflows.
        wait_for_launches: Waits for all launches, and calls `deliver`.
    """

    def __init__(
        self,
        memory: DeviceMemory,
        queue: Queue,
        pending: Pending,
        wait_for_launches: Callable[[], None],
    ) -> None:
        self._memory, self._queue = memory, queue
        self._pending, self._wait_for_launches = pending, wait_for_launches
        self._clean: dict[int, list[DeviceBuffer]] = {0: [], PRINT_WORDS: []}
        self.undelivered: deque[tuple[Artifact, DeviceBuffer]] = deque()
        self._owners: set[object] = set()
        self._lock = released_in_children(threading.RLock())

    def take(self, artifact: Artifact) -> DeviceBuffer:
        """Take a clean buffer for a launch; deliver messages first if too many launches are in
        flight.

        Raises:
            OctantsError: as `deliver` does.
            OctantsMemoryError: there is no memory for a buffer.
        """
        if len(self.undelivered) >= MOST_IN_FLIGHT:
            self._wait_for_launches()
        capacity = capacity_for(artifact)
        try:
            return self._clean[capacity].pop()
        except IndexError:
            try:
                return self._make(capacity)
            except OctantsMemoryError:
                self._wait_for_launches()
        clean = self._clean[capacity]
        return clean.pop() if clean else self._make(capacity)

    def put(self, artifact: Artifact, buffer: DeviceBuffer) -> None:
        """Register the buffer of a launch, to be read at the next delivery."""
        self.undelivered.append((artifact, buffer))

    def make_shared_buffer(self, artifact: Artifact) -> DeviceBuffer:
        """Allocate a clean buffer that all replays of one captured launch share."""
        made = self._make(capacity_for(artifact))
        return DeviceBuffer(made.memory, made.capacity, is_shared_by_replays=True)

    def awaits(self, owner: object) -> bool:
        """Whether messages of an owner's launches have not been delivered."""
        return owner in self._owners

    def put_shared_buffers(
        self, owner: object, buffers: Sequence[tuple[Artifact, DeviceBuffer]]
    ) -> None:
        """Register the buffers of an owner's launches, once until the next delivery."""
        if owner not in self._owners:
            self._owners.add(owner)
            self.undelivered.extend(buffers)

    def deliver(self) -> None:
        """Write what was printed, and raise the first failure. All launches must be done.

        Record-buffer overflows become pending errors.

        Raises:
            OctantsError: an assertion or bounds check failed.
        """
        with self._lock:
            failure: OctantsError | None = None
            self._owners.clear()
            while self.undelivered:
                for error in self._read_some():
                    failure = failure or error
            if failure is not None:
                raise failure

    def forget(self) -> None:
        """Drop all buffers, because the memory of the GPU is lost."""
        self.undelivered.clear()
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
        """Read the messages of up to `MOST_IN_FLIGHT` launches; return the failures."""
        count = min(len(self.undelivered), MOST_IN_FLIGHT)
        launches = [self.undelivered.popleft() for _ in range(count)]
        addresses = [buffer.memory.address for _, buffer in launches]
        heads = self._queue.read_each(addresses, abi.MESSAGES_HEADER).view(np.int64)
        failures: list[OctantsError] = []
        for (artifact, buffer), head in zip(launches, heads, strict=True):
            try:
                if has_messages(head):
                    self._read(artifact, buffer)
            except OctantsError as error:
                failures.append(error)
            if not buffer.is_shared_by_replays:
                self._clean[buffer.capacity].append(buffer)
        return failures

    def _read(self, artifact: Artifact, buffer: DeviceBuffer) -> None:
        host = MessageBuffer(buffer.capacity)
        self._queue.read(buffer.memory.address, host.bytes)
        self._clear(buffer)
        overflow = host.deliver(artifact)
        if overflow is not None:
            self._pending.add(overflow)
