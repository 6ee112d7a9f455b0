"""Batches of commands, which a driver submits in order, and when they are submitted."""

from __future__ import annotations

import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from octants.diagnostics.exceptions import OctantsError, OctantsMemoryError
from octants.locks_at_fork import acquired_before_forks
from octants.runtime.gpu.periodic_thread import PeriodicThread
from octants.runtime.gpu.suballocation import SubAllocation
from octants.runtime.memory.host import view_memory
from octants.runtime.repetitions import Repetitions

if TYPE_CHECKING:
    Bytes = memoryview[int]

MOST_COMMANDS = 64
"""The most commands of a batch: the device begins while the host goes on."""
EARLY_COMMANDS = 16
"""After each so many commands, the batch is submitted if the device is idle."""
PATIENCE = 2e-3
"""The seconds after which a batch is submitted that has few commands."""
ARENA = 1 << 20
"""Bytes of a batch for parameters, and for small copies from the host."""

MOST_PENDING = 8
"""The most commands that wait for the batch that they may repeat."""
SAME = 16
"""Times that the same commands are submitted before they are recorded, which takes as long."""

_MOST_REPEATED = 16  # batches that are recorded
_IN_FLIGHT = 4
_ALIGNMENT = 64


class NotRecordable(Exception):
    """A command that cannot be recorded, since it submits the commands before it."""


class Batch:
    """Commands, and the memory for their parameters; `number` is that of the submission.

    At `due` commands the queue decides whether to submit it. It `is_urgent` if the device was idle
    when it was opened, at the time `since`; then it is submitted after one launch. Of the `bytes`
    of the arena, which is at an `address` of the device, the first `used` are taken. One that
    `is_recorded` is submitted several times, once it has all its commands.
    """

    is_recorded = False

    def __init__(self, arena: SubAllocation) -> None:
        self.arena = arena
        self.address = arena.address
        self.bytes: Bytes = view_memory(arena.host, np.uint8, (arena.nbytes,)).data
        self.clear()

    def clear(self) -> None:
        """Reset the batch for reuse."""
        self.used = 0
        self.count = 0
        self.due = EARLY_COMMANDS
        self.number = 0
        self.since = time.perf_counter()
        self.is_urgent = False
        self.pipeline: Any = None  # the bound pipeline

    def put(self, data: Bytes | bytes) -> int:
        """Copy bytes to the arena, which has space for them; return their offset."""
        offset, count = self.used, len(data)
        self.bytes[offset : offset + count] = data
        self.used = offset + padded(count)
        return offset


def padded(nbytes: int) -> int:
    """The bytes of an arena that some data take."""
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


PendingCommand = tuple[Hashable, Callable[[Any], None], Any, int]
"""A key, a function that queues commands, its argument, and the most bytes of their parameters."""


class BatchQueue(ABC):
    """Gathers commands in batches while the device is busy, for about `PATIENCE` at most.

    A caller holds the `lock` for a sequence of commands. `batch` is the open one, if any.
    ``context`` is the device: it waits for submissions, and knows which are complete.

    The first commands of a batch are `_pending` until it is submitted or has too many: programs
    submit the same few again and again, such as a launch that the host waits for, or a tape. After
    `SAME` times they are recorded, and from then on neither queued nor recorded.
    """

    may_record = False
    """Whether `record` may record commands."""

    def __init__(self, context: Any) -> None:
        self.context = context
        self.lock = acquired_before_forks(threading.RLock())
        self.batch: Any = None
        self._flying: deque[Any] = deque()
        self._submitted_at = 0.0
        self._pending: list[PendingCommand] = []
        self._pending_since = 0.0
        self._launches_left = 0  # until the pending commands are submitted; 0: any number
        self._repeated = Repetitions[Any](SAME, most=_MOST_REPEATED, counted=4 * _MOST_REPEATED)
        self.timer = PeriodicThread(self._submit_old)

    # -- what a driver adds ---------------------------------------------------------------------

    @abstractmethod
    def _make_batch(self) -> Any:
        """One more batch, a subclass of `Batch`."""

    @abstractmethod
    def _begin_batch(self, batch: Any) -> None:
        """Have a batch take commands."""

    @abstractmethod
    def _submit_batch(self, batch: Any) -> int:
        """End a batch and submit it; return the number of the submission."""

    def record(self, run: Callable[[], None], nbytes: int) -> Any:  # noqa: ARG002
        """Record the commands that a function queues, and submit nothing.

        Args:
            run: Queues commands.
            nbytes: The most bytes of their parameters.

        Returns:
            The commands, whose method `submit` may be called any number of times, with the lock
            held; None if they cannot be recorded.
        """
        return None

    # -- commands that may repeat ---------------------------------------------------------------

    def add(
        self, key: Hashable, queue: Callable[[Any], None], data: Any, nbytes: int, launches: int = 0
    ) -> None:
        """Add commands to the open batch, or to the pending ones. The caller holds the lock.

        Args:
            key: Commands with the same key do the same.
            queue: Queues the commands.
            data: Its argument.
            nbytes: The most bytes of their parameters.
            launches: How many launches that follow should be in the same submission.
        """
        if self.batch is not None or not self.may_record:
            queue(data)
            return
        pending = self._pending
        if len(pending) == MOST_PENDING:
            self._queue_pending()
            queue(data)
            return
        if not pending:
            self.context.check()
            self._pending_since = since = time.perf_counter()
            self._launches_left = int(self._is_urgent(since))
        if self._launches_left:
            self._launches_left += launches
        pending.append((key, queue, data, nbytes))
        self.timer.start()

    def add_launch(
        self, key: Hashable, queue: Callable[[Any], None], data: Any, nbytes: int
    ) -> None:
        """Add the commands of a launch; see `add`."""
        if not self._pending and self.context.done == self.context.submitted:
            known = self._repeated.made.get((key,))  # in fewer steps: it is urgent
            if known is not None:
                known.submit()
                return
        self.add(key, queue, data, nbytes)
        self.launched()

    def _queue_pending(self) -> None:
        """Queue the pending commands in a batch."""
        pending, self._pending = self._pending, []
        _queue_each(pending)
        if self.batch is not None:
            self.batch.is_urgent = self._launches_left > 0

    def _take_repeated(self) -> Any:
        """Replace the pending commands by recorded ones; without such, queue them, return None."""
        pending, repeated = self._pending, self._repeated
        if not pending or self.batch is not None:  # while it records, that is the batch
            return None
        key = tuple([each[0] for each in pending])
        known = repeated.made.get(key)
        if known is None and repeated.is_due(key):
            nbytes = sum(each[3] for each in pending)
            known = self.record(lambda: _queue_each(pending), nbytes)
            if known is not None:
                repeated.made[key] = known
        if known is None:
            self._queue_pending()
        else:
            self._pending = []
        return known

    # -- batches --------------------------------------------------------------------------------

    def open(self, nbytes: int = 0) -> Any:
        """The batch for the next command, with ``nbytes`` free in its arena."""
        if self._pending and self.batch is None:
            self._queue_pending()
        batch = self.batch
        if batch is not None:
            if not self._is_due(batch) and batch.used + nbytes <= ARENA:
                return batch
            self.flush()
        batch = self._next()
        self._begin_batch(batch)
        batch.is_urgent = self._is_urgent(batch.since)
        self.batch = batch
        self.timer.start()
        return batch

    def _is_due(self, batch: Any) -> bool:
        """Whether a batch should be submitted before it takes one more command."""
        if batch.count < batch.due:
            return False
        batch.due += EARLY_COMMANDS
        return bool(batch.count >= MOST_COMMANDS or self.context.is_idle())

    def _is_urgent(self, since: float) -> bool:
        """Whether the device is idle, except if it has just been given little work.

        ``since`` is the time of the first command.
        """
        context = self.context
        if context.done == context.submitted:  # the host has waited
            return True
        return bool(since - self._submitted_at > PATIENCE and context.is_idle())

    def launched(self) -> None:
        """End a launch; the caller holds the lock."""
        batch = self.batch
        if batch is not None:
            if batch.is_urgent:
                self.flush()
        elif self._pending and self._launches_left:
            self._launches_left -= 1
            if not self._launches_left:
                self.flush()

    def _submit_old(self) -> float | None:
        """Submit a batch that has waited for too long; return the seconds until the next check."""
        since = self._since()
        if since is None or self.context.lost is not None:
            return None
        left = since + PATIENCE - time.perf_counter()
        if left > 0.0:
            return float(left)
        with self.lock, contextlib.suppress(OctantsError):  # the next call raises it
            if self._since() == since:
                self.flush()
        return PATIENCE

    def _since(self) -> float | None:
        """The time of the first command that is not submitted."""
        batch = self.batch
        if batch is not None:
            return float(batch.since)
        return self._pending_since if self._pending else None

    def _next(self) -> Any:
        self.context.check()
        if len(self._flying) < _IN_FLIGHT:
            try:
                return self._make_batch()
            except OctantsMemoryError:
                if not self._flying:
                    raise
        batch = self._flying.popleft()
        self.context.wait(batch.number)
        batch.clear()
        return batch

    def flush(self) -> int:
        """Submit the open batch; return the number of the last submission."""
        with self.lock:
            known = self._take_repeated()
            if known is not None:
                known.submit()
            batch = self.batch
            if batch is None:
                return int(self.context.submitted)
            if batch.is_recorded:
                raise NotRecordable
            self.batch = None
            batch.number = self._submit_batch(batch)
            self._submitted_at = time.perf_counter()
            self._flying.append(batch)
            return int(batch.number)

    def finish(self) -> None:
        """Submit the open batch, and wait for everything."""
        self.context.check()
        self.context.wait(self.flush())

    @property
    def is_idle(self) -> bool:
        """Whether everything queued is known to be complete."""
        is_empty = self.batch is None and not self._pending
        return bool(is_empty and self.context.done == self.context.submitted)


def _queue_each(pending: Sequence[PendingCommand]) -> None:
    for _, queue, data, _ in pending:
        queue(data)
