"""Copies between the host and a GPU, through memory of the host that the GPU reaches.

Two chunks take turns: while the GPU copies one of them, the host copies the other one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from octants.runtime.gpu.driver import Chunk
from octants.runtime.memory.threaded_copy import move

SMALL = 1 << 20
"""Bytes of chunks for copies that need no more: programs that copy little start sooner."""
CHUNKS = 2


class Staging:
    """The chunks of a device; ``make`` makes some of a size, ``large`` is that of long copies.

    One thread at a time copies: the caller holds a lock.
    """

    def __init__(self, make: Callable[[int], list[Chunk]], large: int) -> None:
        self._make, self.large = make, large
        self._chunks: dict[int, deque[Chunk]] = {}

    def write(self, address: int, source: int, nbytes: int, stream: int = 0) -> None:
        """Copy from an address of the host, which is free when this returns."""
        size = self._size(nbytes)
        for start in range(0, nbytes, size):
            chunk, count = self._next(size), min(size, nbytes - start)
            move(chunk.host, source + start, count)
            chunk.upload(address + start, count, stream)

    def read(self, address: int, target: int, nbytes: int, stream: int = 0) -> None:
        """Copy to an address of the host, and wait for it."""
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
        """The chunk of a size that was used longest ago, when it is free."""
        chunks = self._chunks.get(size)
        if chunks is None:
            chunks = self._chunks[size] = deque(self._make(size))
        chunk = chunks[0]
        chunks.rotate(-1)
        chunk.wait()
        return chunk


def _take(chunk: Chunk, target: int, nbytes: int) -> None:
    """Copy what was downloaded to the host."""
    chunk.wait()
    move(target, chunk.host, nbytes)
