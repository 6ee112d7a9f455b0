"""Copies between the host and the GPU, which share memory: what they do waits for what is queued.

The GPU copies what is aligned to words, which is what Metal asks of it; else the host does.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from octants.runtime.gpu.batched_transfers import BatchedTransfers
from octants.runtime.memory.host import view_memory

_FEW_ROWS = 64


class Transfers(BatchedTransfers):
    """Copies by the host, but for those that would have to wait for what is queued."""

    granule = 4

    def _host(self, address: int, nbytes: int) -> int:
        """The host's address of memory, once all queued work is done."""
        buffer, offset = self.buffer_of(address, nbytes)
        self.queue.finish()
        return int(buffer.host) + offset

    def copy_rows(
        self, target: int, target_step: int, source: int, source_step: int, nbytes: int, rows: int
    ) -> None:
        if not nbytes or not rows:
            return
        numbers = (target, target_step, source, source_step, nbytes)
        with self.queue.lock:
            is_aligned = not any(number % self.granule for number in numbers)
            if rows > _FEW_ROWS or not is_aligned or self.queue.is_idle:
                self._copy_on_host(*numbers, rows)
                return
            for row in range(rows):
                to = self.buffer_of(target + row * target_step, nbytes)
                of = self.buffer_of(source + row * source_step, nbytes)
                self.queue.copy(to, of, nbytes)

    def _copy_on_host(
        self, target: int, target_step: int, source: int, source_step: int, nbytes: int, rows: int
    ) -> None:
        def view(address: int, step: int) -> Any:
            length = (rows - 1) * step + nbytes
            data = view_memory(self._host(address, length), np.uint8, (length,))
            return np.lib.stride_tricks.as_strided(data, (rows, nbytes), (step, 1))

        np.copyto(view(target, target_step), view(source, source_step))

    def clear(self, address: int, nbytes: int) -> None:
        if nbytes <= 0:
            return
        with self.queue.lock:
            buffer, offset = self.buffer_of(address, nbytes)
            if self.queue.is_idle or (offset | nbytes) % self.granule:
                ctypes.memset(self._host(address, nbytes), 0, nbytes)
            else:
                self.queue.fill(buffer, offset, nbytes)
