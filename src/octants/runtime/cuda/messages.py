"""The message buffers of launches that may say something, until the host looks at them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from octants import abi
from octants.artifact import Artifact
from octants.diagnostics.exceptions import OctantsError
from octants.lazy_dataclass import dataclass
from octants.runtime.cuda.context import Context
from octants.runtime.cuda.memory import (
    DEFAULT_STREAM,
    DeviceAllocation,
    DeviceMemory,
    PinnedMemory,
)
from octants.runtime.cuda.staging import Staging
from octants.runtime.memory import view_memory
from octants.runtime.messages import (
    MOST_IN_FLIGHT,
    PRINT_WORDS,
    MessageBuffer,
    capacity_for,
    clear_head,
    has_spoken,
)
from octants.runtime.pending import Pending

_WORD = np.dtype(np.int64)
_Heads = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class DeviceBuffer:
    """A message buffer in the memory of the GPU, clean unless a launch has it or has spoken.

    One that `is_kept` belongs to the launches of a graph.
    """

    memory: DeviceAllocation
    capacity: int
    is_kept: bool = False


class MessageQueue:
    """What launches have said, in the order in which they were launched.

    A buffer to which nothing was written is as good as new, so that a launch that says nothing
    costs the reading of the heads, once for all launches since the last look.
    """

    def __init__(
        self, context: Context, memory: DeviceMemory, staging: Staging, pending: Pending
    ) -> None:
        self._context, self._memory, self._staging = context, memory, staging
        self._pending = pending
        self._clean: dict[int, list[DeviceBuffer]] = {0: [], PRINT_WORDS: []}
        self._flying: deque[tuple[Artifact, DeviceBuffer]] = deque()
        self._owners: set[object] = set()
        self._lock = threading.RLock()
        self._heads: PinnedMemory | None = None

    @property
    def is_full(self) -> bool:
        """Whether the host should look before there are more launches."""
        return len(self._flying) >= MOST_IN_FLIGHT

    def take(self, artifact: Artifact) -> DeviceBuffer:
        """A clean buffer for a launch."""
        capacity = capacity_for(artifact)
        try:
            return self._clean[capacity].pop()
        except IndexError:
            return self._make(capacity)

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

    def give_back(self, buffer: DeviceBuffer) -> None:
        """Take a buffer back whose launch was not made."""
        self._clean[buffer.capacity].append(buffer)

    def deliver(self) -> None:
        """Print what was printed, and raise the first failure. All launches must be done.

        What overflowed joins what is pending.
        """
        with self._lock:
            failure: OctantsError | None = None
            self._owners.clear()
            while self._flying:
                for error in self._look():
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
        buffer = DeviceBuffer(self._memory.allocate(nbytes, "messages", zeroed=False), capacity)
        self._clear(buffer)
        return buffer

    def _clear(self, buffer: DeviceBuffer) -> None:
        head = np.zeros(abi.MESSAGES_HEADER // 8, _WORD)
        clear_head(head, buffer.capacity)
        self._staging.write(buffer.memory.address, head.view(np.uint8))

    def _look(self) -> list[OctantsError]:
        """Look at a number of launches at once; the failures."""
        count = min(len(self._flying), MOST_IN_FLIGHT)
        launches = [self._flying.popleft() for _ in range(count)]
        heads = self._read_heads([buffer for _, buffer in launches])
        failures: list[OctantsError] = []
        for (artifact, buffer), head in zip(launches, heads, strict=True):
            try:
                if has_spoken(head):
                    self._hear(artifact, buffer)
            except OctantsError as error:
                failures.append(error)
            if not buffer.is_kept:
                self._clean[buffer.capacity].append(buffer)
        return failures

    def _read_heads(self, buffers: list[DeviceBuffer]) -> _Heads:
        size = abi.MESSAGES_HEADER
        if self._heads is None:
            self._heads = PinnedMemory(self._context, MOST_IN_FLIGHT * size)
        with self._context.active():
            for number, buffer in enumerate(buffers):
                target, source = self._heads.address + number * size, buffer.memory.address
                self._context.call("cuMemcpyDtoHAsync", target, source, size, DEFAULT_STREAM)
            self._context.wait_for_stream(DEFAULT_STREAM)
        heads: _Heads = view_memory(self._heads.address, _WORD, (len(buffers), size // 8)).copy()
        return heads

    def _hear(self, artifact: Artifact, buffer: DeviceBuffer) -> None:
        host = MessageBuffer(buffer.capacity)
        self._staging.read(buffer.memory.address, host.bytes)
        self._clear(buffer)
        overflow = host.deliver(artifact)
        if overflow is not None:
            self._pending.add(overflow)
