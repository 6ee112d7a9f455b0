"""The threads that run parallel loops; `native` has their code."""

from __future__ import annotations

import ctypes
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from octants.abi import MAXIMUM_RECORD_BUFFER
from octants.runtime.cpu.native.linking import Support
from octants.runtime.cpu.native.structures import Pool, Worker, aligned

_POLL_SECONDS = 1e-4


class _Helpers:
    """The memory of the helper threads, which must outlive them."""

    def __init__(self, support: Support, count: int) -> None:
        self.support = support
        self._memory, self.address = aligned(Pool)
        self.fields = Pool.from_address(self.address)
        self.fields.started = -1
        self._worker_memory, start = aligned(Worker, max(1, count))
        size = ctypes.sizeof(Worker)
        self.workers = [Worker.from_address(start + size * k) for k in range(count)]
        self.fields.workers = start
        self.fields.threads = count

    def end(self) -> None:
        """Stop them, wait, and free their record buffers."""
        if self.fields.started > 0:
            self.support.stop(self.address)
        self.free_record_buffers()

    def free_record_buffers(self) -> None:
        for worker in self.workers:
            self.support.free_record_buffer(self.address, ctypes.addressof(worker))


class ThreadPool:
    """A pool of helper threads, started by the first loop that needs them, and again after `stop`
    or a fork.
    """

    def __init__(
        self, support: Support, threads: int, record_buffer_limit: int, record_budget: int = 0
    ) -> None:
        self._support = support
        self._helpers = _Helpers(support, max(0, threads - 1) if support.has_threads else 0)
        self.address, self.fields = self._helpers.address, self._helpers.fields
        self.fields.record_buffer_limit = record_buffer_limit
        self.fields.record_buffer_kept = record_buffer_limit // 4
        self._record_budget = record_budget or MAXIMUM_RECORD_BUFFER
        self.fields.record_buffer_share = self.share
        if support.has_threads:
            support.prepare(self.address)
        weakref.finalize(self, self._helpers.end).atexit = False

    @property
    def threads(self) -> int:
        """The number of threads that run a loop, including that of the launch."""
        return int(self.fields.threads) + 1

    @property
    def share(self) -> int:
        """The share of the record buffer budget for the work items of one thread, in bytes."""
        return max(1, self._record_budget // self.threads)

    @property
    def record_buffer_bytes(self) -> int:
        """The size of all record buffers, including those of launching threads, in bytes."""
        return int(self.fields.record_buffer_bytes)

    def stop(self, patience: float = float("inf")) -> None:
        """Stop the helpers and free their record buffers, unless a launch uses them for more than
        ``patience`` seconds.
        """
        with self.exclusive(patience) as is_ours:
            if is_ours:
                self._helpers.end()

    @contextmanager
    def exclusive(self, patience: float = float("inf")) -> Iterator[bool]:
        """Take the helpers from launches, waiting at most ``patience`` seconds; yield whether that
        worked.
        """
        deadline = time.monotonic() + patience
        while not (is_ours := bool(self._support.acquire(self.address))):
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL_SECONDS)
        try:
            yield is_ours
        finally:
            if is_ours:
                self._support.release(self.address)

    def after_fork(self) -> None:
        """Reset the pool in the child of a fork, which has no helpers, and locks that stay locked.

        A helper may have been moving its record buffer at the fork, so record buffers are
        abandoned, not freed.
        """
        self.fields.state = self.fields.busy = self.fields.stop = 0
        self.fields.refused = self.fields.growing = 0
        self.fields.sleepers = self.fields.waiting = 0
        self.fields.started = -1
        for worker in self._helpers.workers:
            self.fields.record_buffer_bytes -= worker.capacity
            worker.record_memory = worker.record_buffer = None
            worker.capacity = 0
        if self._support.has_threads:
            self._support.prepare(self.address)

    def free_record_buffers(self) -> None:
        """Free the record buffers of the helpers, unless a launch is using them."""
        with self.exclusive(0.0) as is_ours:
            if is_ours:
                self._helpers.free_record_buffers()
