"""Copies between the host and a GPU through staging buffers.

Two buffers alternate: while the GPU copies one, the host copies the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from octants.runtime.gpu.driver import Chunk
from octants.runtime.memory.threaded_copy import move

SMALL = 1 << 20
"""Size of the buffers for small copies, in bytes: a program that copies little starts sooner."""
CHUNKS = 2


class Staging:
    """The staging buffers of a device. The caller holds a lock: one thread at a time copies.

    Args:
        make: Allocates `CHUNKS` buffers of a size in bytes.
        large: The size of the buffers for long copies, in bytes.
    """

    def __init__(self, make: Callable[[int], list[Chunk]], large: int) -> None:
        self._make, self.large = make, large
        self._chunks: dict[int, deque[Chunk]] = {}

    @property
    def nbytes(self) -> int:
        """The size of all buffers, in bytes."""
        return sum(size * len(chunks) for size, chunks in list(self._chunks.items()))

    def write(self, address: int, source: int, nbytes: int, stream: int = 0) -> None:
        """Copy ``nbytes`` from an address of the host, which may be reused when this returns."""
        size = self._size(nbytes)
        for start in range(0, nbytes, size):
            chunk, count = self._next(size), min(size, nbytes - start)
            move(chunk.host, source + start, count)
            chunk.upload(address + start, count, stream)

    def read(self, address: int, target: int, nbytes: int, stream: int = 0) -> None:
        """Copy ``nbytes`` to an address of the host, and wait for the copy."""
        size = self._size(nbytes)
        flying: deque[tuple[Chunk, int, int]] = deque()
        for start in range(0, nbytes, size):
            if len(flying) == CHUNKS:
                _take(*flying.popleft())
            chunk, count = self._next(size), min(size, nbytes - start)
            chunk.download(address + start, count, stream)
            flying.append((chunk, target + start, count))
        for each in flying:
            _take(*each)

    def _size(self, nbytes: int) -> int:
        return SMALL if nbytes <= SMALL else self.large

    def _next(self, size: int) -> Chunk:
        """Wait for the least recently used buffer of a size, and return it."""
        chunks = self._chunks.get(size)
        if chunks is None:
            chunks = self._chunks[size] = deque(self._make(size))
        chunk = chunks[0]
        chunks.rotate(-1)
        chunk.wait()
        return chunk


def _take(chunk: Chunk, target: int, nbytes: int) -> None:
    """Wait for a download, and copy it to its target on the host."""
    chunk.wait()
    move(target, chunk.host, nbytes)
