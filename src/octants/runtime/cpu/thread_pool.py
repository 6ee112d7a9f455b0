"""The threads that help with parallel loops; `support` has their code."""

from __future__ import annotations

import ctypes
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from octants.abi import MAXIMUM_TAPE
from octants.runtime.cpu.native.structures import Pool, Worker, aligned
from octants.runtime.cpu.native.support import Support

_POLL_SECONDS = 1e-4


class _Helpers:
    """The memory that the helpers live in: it must stay until they have ended."""

    def __init__(self, support: Support) -> None:
        self.support = support
        self._memory, self.address = aligned(Pool)
        self.fields = Pool.from_address(self.address)
        self.fields.started = -1
        self.workers: list[Worker] = []
        self._worker_memory: Any = None

    def set_count(self, count: int) -> None:
        """Have memory for so many. None of them may be running."""
        self._worker_memory, start = aligned(Worker, max(1, count))
        size = ctypes.sizeof(Worker)
        self.workers = [Worker.from_address(start + size * k) for k in range(count)]
        self.fields.workers = start
        self.fields.threads = count

    def end(self) -> None:
        """Wait for them to end, and free their tapes."""
        if self.fields.started > 0:
            self.support.stop(self.address)
        self.free_tapes()

    def free_tapes(self) -> None:
        for worker in self.workers:
            self.support.free_tape(self.address, ctypes.addressof(worker))


class ThreadPool:
    """Helpers are started by the first loop that wants them, and anew after `stop` or a fork."""

    def __init__(
        self, support: Support, threads: int, tape_limit: int, tape_budget: int = 0
    ) -> None:
        self._support = support
        self._helpers = _Helpers(support)
        self.address, self.fields = self._helpers.address, self._helpers.fields
        self.fields.tape_limit = tape_limit
        self.fields.tape_kept = tape_limit // 4
        self._tape_budget = tape_budget or MAXIMUM_TAPE
        if support.has_threads:
            support.prepare(self.address)
        self._set_threads(threads)
        weakref.finalize(self, self._helpers.end).atexit = False

    @property
    def threads(self) -> int:
        """How many threads work at a loop, that of the launch included."""
        return int(self.fields.threads) + 1

    @property
    def share(self) -> int:
        """The bytes of the budget for the records of the work items of one thread."""
        return max(1, self._tape_budget // self.threads)

    @property
    def tape_bytes(self) -> int:
        """The bytes of all tapes, also those of the launching threads."""
        return int(self.fields.tape_bytes)

    def resize(self, threads: int) -> None:
        """Use another number of threads from the next launch on."""
        if threads != self.threads:
            with self.exclusive():
                self._helpers.end()
                self._set_threads(threads)

    def stop(self, patience: float = float("inf")) -> None:
        """End the helpers and free their tapes, unless a launch keeps them for longer."""
        with self.exclusive(patience) as is_ours:
            if is_ours:
                self._helpers.end()

    @contextmanager
    def exclusive(self, patience: float = float("inf")) -> Iterator[bool]:
        """Keep launches from the helpers, waiting until the one that has them is done."""
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
        """In the child there are no helpers, and whatever they held stays locked: begin anew.

        A helper may have been moving its tape at the fork, so the tapes are given up, not freed.
        """
        self.fields.state = self.fields.busy = self.fields.stop = 0
        self.fields.refused = self.fields.growing = 0
        self.fields.sleepers = self.fields.waiting = 0
        self.fields.started = -1
        for worker in self._helpers.workers:
            self.fields.tape_bytes -= worker.capacity
            worker.tape, worker.capacity = None, 0
        if self._support.has_threads:
            self._support.prepare(self.address)

    def _set_threads(self, threads: int) -> None:
        self._helpers.set_count(max(0, threads - 1) if self._support.has_threads else 0)
        self.fields.tape_share = self.share

    def free_tapes(self) -> None:
        """Free the tapes of the helpers, unless a launch uses them."""
        with self.exclusive(0.0) as is_ours:
            if is_ours:
                self._helpers.free_tapes()
