"""Copies between the host and the device, and within the device."""

from __future__ import annotations

import ctypes
from typing import Any

from octants.diagnostics.exceptions import InternalError
from octants.runtime.device import Bytes
from octants.runtime.memory import address_of
from octants.runtime.moves import move
from octants.runtime.vulkan import structures as vk
from octants.runtime.vulkan.memory import Buffer, Heap
from octants.runtime.vulkan.queue import Queue
from octants.runtime.vulkan.staging import Staging

_FEW = 1 << 16  # bytes that go with the commands
_MOST_ROWS = 1 << 16


class Transfers:
    """Reads, writes and copies by addresses of a heap, after all that is queued."""

    def __init__(self, queue: Queue, heap: Heap) -> None:
        self._queue, self._heap = queue, heap
        self._staging = Staging(queue)

    def _place(self, address: int, nbytes: int) -> tuple[Buffer, int]:
        try:
            buffer, offset = self._heap.find(address)
        except KeyError:
            raise InternalError(f"{address:#x} is not memory of the device") from None
        if offset + nbytes > buffer.nbytes:
            raise InternalError(f"{nbytes} bytes at {address:#x} are not memory of the device")
        return buffer, offset

    def read(self, address: int, into: Bytes) -> None:
        """Copy to the host, when all is done."""
        if into.nbytes == 0:
            return
        buffer, offset = self._place(address, into.nbytes)
        target = address_of(into)
        with self._queue.lock:
            if buffer.host and buffer.reads_well:
                self._queue.finish()
                move(target, buffer.host + offset, into.nbytes)
                return
            self._staging.read((buffer, offset), target, into.nbytes)

    def write(self, address: int, values: Bytes) -> None:
        """Copy from the host; a few bytes need not wait for what is queued."""
        nbytes, source = values.nbytes, address_of(values)
        if nbytes == 0:
            return
        buffer, offset = self._place(address, nbytes)
        with self._queue.lock:
            if nbytes <= _FEW and not (buffer.host and self._queue.is_idle):
                self._queue.write((buffer, offset), ctypes.string_at(source, nbytes))
            elif buffer.host:
                self._queue.finish()
                move(buffer.host + offset, source, nbytes)
            else:
                self._staging.write((buffer, offset), source, nbytes)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy within the device."""
        if nbytes:
            places = self._place(target, nbytes), self._place(source, nbytes)
            self._queue.copy(*places, nbytes)

    def copy_rows(
        self, target: int, target_step: int, source: int, source_step: int, nbytes: int, rows: int
    ) -> None:
        """Copy pieces at equal distances within the device."""
        if not nbytes or not rows:
            return
        to, to_offset = self._place(target, (rows - 1) * target_step + nbytes)
        of, of_offset = self._place(source, (rows - 1) * source_step + nbytes)
        for start in range(0, rows, _MOST_ROWS):
            count = min(_MOST_ROWS, rows - start)
            pieces: Any = (vk.BufferCopy * count)()
            for k in range(count):
                piece, row = pieces[k], start + k
                piece.source = of_offset + row * source_step
                piece.target = to_offset + row * target_step
                piece.size = nbytes
            self._queue.copy_pieces(to, of, pieces, count)

    def clear(self, address: int, nbytes: int) -> None:
        """Set memory to zero: whole words by the device, what is left of others with a copy."""
        if nbytes <= 0:
            return
        buffer, offset = self._place(address, nbytes)
        first, last = -(-offset // 4) * 4, (offset + nbytes) // 4 * 4
        if first >= last:
            self._queue.write((buffer, offset), bytes(nbytes))
            return
        self._queue.fill(buffer, first, last - first)
        for start, end in ((offset, first), (last, offset + nbytes)):
            if start < end:
                self._queue.write((buffer, start), bytes(end - start))
