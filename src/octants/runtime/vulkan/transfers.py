"""Copies between the host and the device, and within the device."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from octants.runtime.device import Bytes
from octants.runtime.gpu.driver import Chunk
from octants.runtime.gpu.staging import CHUNKS, Staging
from octants.runtime.memory.host import address_of
from octants.runtime.memory.threaded_copy import move
from octants.runtime.vulkan import structures as vk
from octants.runtime.vulkan.memory import MAPPED, Buffer, Heap
from octants.runtime.vulkan.queue import Queue

LARGE = 1 << 24
"""Size of the staging buffers for long copies to memory that is not mapped, in bytes."""
_FEW = 1 << 16  # bytes that go with the commands
_MOST_ROWS = 1 << 16


class MappedChunk:
    """A staging buffer; `number` is that of the submission that used it last."""

    def __init__(self, transfers: Transfers, buffer: Buffer, offset: int) -> None:
        self._transfers, self._queue = transfers, transfers.queue
        self._chunk = buffer, offset
        self.host = buffer.host + offset
        self.number = 0

    def upload(self, target: int, nbytes: int, _: int) -> None:
        """Submit a copy to the device."""
        self._queue.copy(self._transfers.buffer_of(target, nbytes), self._chunk, nbytes)
        self.number = self._queue.flush()

    def download(self, source: int, nbytes: int, _: int) -> None:
        """Submit a copy from the device."""
        self._queue.copy(self._chunk, self._transfers.buffer_of(source, nbytes), nbytes)
        self.number = self._queue.flush()

    def wait(self) -> None:
        """Wait for the last copy."""
        self._queue.context.wait(self.number)


class Transfers:
    """A queue and a heap as a `gpu.driver.Queue`."""

    def __init__(self, queue: Queue, heap: Heap) -> None:
        self.queue, self._heap = queue, heap
        self._staging = Staging(self._make_chunks, LARGE)

    def _make_chunks(self, nbytes: int) -> list[Chunk]:
        buffer = Buffer(self.queue.context, CHUNKS * nbytes, MAPPED)
        return [MappedChunk(self, buffer, number * nbytes) for number in range(CHUNKS)]

    def buffer_of(self, address: int, nbytes: int) -> tuple[Buffer, int]:
        """The buffer that contains a range of memory, and the offset in it."""
        return self._heap.buffer_of(address, nbytes)

    def read(self, address: int, into: Bytes) -> None:
        """Wait for everything queued, and copy to the host."""
        if into.nbytes == 0:
            return
        buffer, offset = self.buffer_of(address, into.nbytes)
        target = address_of(into)
        with self.queue.lock:
            if buffer.host and buffer.reads_well:
                self.queue.finish()
                move(target, buffer.host + offset, into.nbytes)
                return
            self.queue.context.check()
            self._staging.read(address, target, into.nbytes)

    def read_each(self, addresses: list[int], nbytes: int) -> Bytes:
        """Read ``nbytes`` at each address; see `gpu.driver.Queue.read_each`."""
        found: Bytes = np.empty((len(addresses), nbytes), np.uint8)
        for row, address in zip(found, addresses, strict=True):
            self.read(address, row)
        return found

    def write(self, address: int, values: Bytes) -> None:
        """Copy from the host; a few bytes need not wait for what is queued."""
        nbytes, source = values.nbytes, address_of(values)
        if nbytes == 0:
            return
        buffer, offset = self.buffer_of(address, nbytes)
        with self.queue.lock:
            if nbytes <= _FEW and not (buffer.host and self.queue.is_idle):
                self.queue.write((buffer, offset), ctypes.string_at(source, nbytes))
            elif buffer.host:
                self.queue.finish()
                move(buffer.host + offset, source, nbytes)
            else:
                self.queue.context.check()
                self._staging.write(address, source, nbytes)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy within the device."""
        if nbytes:
            ranges = self.buffer_of(target, nbytes), self.buffer_of(source, nbytes)
            self.queue.copy(*ranges, nbytes)

    def copy_rows(
        self, target: int, target_step: int, source: int, source_step: int, nbytes: int, rows: int
    ) -> None:
        """Copy pieces at equal distances within the device."""
        if not nbytes or not rows:
            return
        to, to_offset = self.buffer_of(target, (rows - 1) * target_step + nbytes)
        of, of_offset = self.buffer_of(source, (rows - 1) * source_step + nbytes)
        for start in range(0, rows, _MOST_ROWS):
            count = min(_MOST_ROWS, rows - start)
            pieces: Any = (vk.BufferCopy * count)()
            for k in range(count):
                piece, row = pieces[k], start + k
                piece.source = of_offset + row * source_step
                piece.target = to_offset + row * target_step
                piece.size = nbytes
            self.queue.copy_pieces(to, of, pieces, count)

    def clear(self, address: int, nbytes: int) -> None:
        """Queue a fill with zeros: whole words by a fill, the bytes around them by copies."""
        if nbytes <= 0:
            return
        buffer, offset = self.buffer_of(address, nbytes)
        first, last = -(-offset // 4) * 4, (offset + nbytes) // 4 * 4
        if first >= last:
            self.queue.write((buffer, offset), bytes(nbytes))
            return
        self.queue.fill(buffer, first, last - first)
        for start, end in ((offset, first), (last, offset + nbytes)):
            if start < end:
                self.queue.write((buffer, start), bytes(end - start))
