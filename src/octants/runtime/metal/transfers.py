"""Copies between the host and the GPU, which share memory: what they do waits for what is queued.

The GPU copies what is aligned to words, which is what Metal asks of it; else the host does.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from octants.runtime.device import Bytes
from octants.runtime.memory.host import address_of, view_memory
from octants.runtime.memory.threaded_copy import move
from octants.runtime.metal.memory import Heap
from octants.runtime.metal.queue import Queue

_FEW = 1 << 16  # bytes that go with the commands
_FEW_ROWS = 64
_WORD = 4


class Transfers:
    """A queue and a heap as a `gpu.driver.Queue`."""

    def __init__(self, queue: Queue, heap: Heap) -> None:
        self.queue, self._heap = queue, heap

    def _host(self, address: int, nbytes: int) -> int:
        """Where the host finds memory, when what is queued is done."""
        buffer, offset = self._heap.buffer_of(address, nbytes)
        self.queue.finish()
        return buffer.host + offset

    def read(self, address: int, into: Bytes) -> None:
        """Copy to the host, when what is queued is done."""
        if into.nbytes:
            with self.queue.lock:
                move(address_of(into), self._host(address, into.nbytes), into.nbytes)

    def read_each(self, addresses: list[int], nbytes: int) -> Bytes:
        """The bytes at each of some addresses, as rows."""
        found: Bytes = np.empty((len(addresses), nbytes), np.uint8)
        for row, address in zip(found, addresses, strict=True):
            self.read(address, row)
        return found

    def write(self, address: int, values: Bytes) -> None:
        """Copy from the host; a few words need not wait for what is queued."""
        nbytes, source = values.nbytes, address_of(values)
        if nbytes == 0:
            return
        with self.queue.lock:
            to = self._heap.buffer_of(address, nbytes)
            if nbytes <= _FEW and not self.queue.is_idle and not (to[1] | nbytes) % _WORD:
                self.queue.write(to, ctypes.string_at(source, nbytes))
            else:
                move(self._host(address, nbytes), source, nbytes)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy within the device."""
        if nbytes:
            self.copy_rows(target, nbytes, source, nbytes, nbytes, 1)

    def copy_rows(
        self, target: int, target_step: int, source: int, source_step: int, nbytes: int, rows: int
    ) -> None:
        """Copy pieces at equal distances within the device."""
        if not nbytes or not rows:
            return
        numbers = (target, target_step, source, source_step, nbytes)
        with self.queue.lock:
            is_aligned = not any(number % _WORD for number in numbers)
            if rows > _FEW_ROWS or not is_aligned or self.queue.is_idle:
                self._copy_on_host(*numbers, rows)
                return
            for row in range(rows):
                to = self._heap.buffer_of(target + row * target_step, nbytes)
                self.queue.copy(
                    to, self._heap.buffer_of(source + row * source_step, nbytes), nbytes
                )

    def _copy_on_host(
        self, target: int, target_step: int, source: int, source_step: int, nbytes: int, rows: int
    ) -> None:
        def view(address: int, step: int) -> Any:
            length = (rows - 1) * step + nbytes
            data = view_memory(self._host(address, length), np.uint8, (length,))
            return np.lib.stride_tricks.as_strided(data, (rows, nbytes), (step, 1))

        np.copyto(view(target, target_step), view(source, source_step))

    def clear(self, address: int, nbytes: int) -> None:
        """Set memory to zero."""
        if nbytes <= 0:
            return
        with self.queue.lock:
            buffer, offset = self._heap.buffer_of(address, nbytes)
            if self.queue.is_idle or (offset | nbytes) % _WORD:
                ctypes.memset(self._host(address, nbytes), 0, nbytes)
            else:
                self.queue.fill(buffer, offset, nbytes)
