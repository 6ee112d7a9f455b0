"""The message buffers of launches that may say something, until the host looks at them."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from octants import abi
from octants.artifact import Artifact
from octants.diagnostics.exceptions import OctantsError
from octants.lazy_dataclass import dataclass
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
from octants.runtime.vulkan.memory import Heap, Piece


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer that the host has mapped, clean unless a launch has it or has spoken."""

    memory: Piece
    words: np.ndarray[Any, np.dtype[np.int64]]


class Messages:
    """What launches have said, in the order in which they were launched.

    A buffer to which nothing was written is as good as new, so that a launch that says nothing
    costs a look at its head.
    """

    def __init__(self, heap: Heap, pending: Pending) -> None:
        self._heap, self._pending = heap, pending
        self._clean: dict[int, list[Buffer]] = {0: [], PRINT_WORDS: []}
        self._flying: deque[tuple[Artifact, Buffer]] = deque()

    @property
    def is_full(self) -> bool:
        """Whether the host should look before there are more launches."""
        return len(self._flying) >= MOST_IN_FLIGHT

    def __bool__(self) -> bool:
        return bool(self._flying)

    def take(self, artifact: Artifact) -> int:
        """The address of a clean buffer, for a launch that is made now.

        Until the host has looked, each of its reads has to.
        """
        if not self._flying:
            self._pending.watch()
        capacity = capacity_for(artifact)
        clean = self._clean[capacity]
        buffer = clean.pop() if clean else self._make(capacity)
        self._flying.append((artifact, buffer))
        return buffer.memory.address

    def _make(self, capacity: int) -> Buffer:
        piece = self._heap.allocate(abi.MESSAGES_HEADER + 8 * capacity)
        words = view_memory(piece.host, np.int64, (piece.nbytes // 8,))
        buffer = Buffer(piece, words)
        _clear(buffer)
        return buffer

    def deliver(self) -> None:
        """Print what was printed, and raise the first failure. All launches must be done.

        What overflowed joins what is pending.
        """
        failure: OctantsError | None = None
        if not self._pending:
            self._pending.unwatch()
        while self._flying:
            artifact, buffer = self._flying.popleft()
            try:
                if has_spoken(buffer.words):
                    self._hear(artifact, buffer)
            except OctantsError as error:
                failure = failure or error
            self._clean[buffer.words.size - abi.MESSAGES_HEADER // 8].append(buffer)
        if failure is not None:
            raise failure

    def _hear(self, artifact: Artifact, buffer: Buffer) -> None:
        host = MessageBuffer(buffer.words.size - abi.MESSAGES_HEADER // 8)
        host.bytes.view(np.int64)[...] = buffer.words
        _clear(buffer)
        overflow = host.deliver(artifact)
        if overflow is not None:
            self._pending.add(overflow)

    def forget(self) -> None:
        """Drop all buffers: nothing is known of them any more."""
        self._flying.clear()
        for buffers in self._clean.values():
            buffers.clear()


def _clear(buffer: Buffer) -> None:
    clear_head(buffer.words, buffer.words.size - abi.MESSAGES_HEADER // 8)
