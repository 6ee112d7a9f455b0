"""Finishes replays of graphs whose record buffers turn out to be too small.

Where memory decides how large a record buffer a node needs, a replay is queued without knowing
whether its record buffers suffice. A node that runs out aborts the replay: it writes its number to
a word of the device (`abi.LAUNCH_STOP`), and all later nodes and replays test that word first and
do nothing. Before the host reads memory or queues anything else, it reads the word, runs the rest
of the aborted replay launch by launch with larger record buffers, and queues the replays behind it
again.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

import numpy as np

from octants import abi
from octants.diagnostics.exceptions import OctantsMemoryError
from octants.diagnostics.graph_errors import GraphOutOfRecordMemory
from octants.diagnostics.kernel_run_time_errors import UntrackedWrite
from octants.locks_at_fork import released_in_children
from octants.runtime.cuda.context import Context
from octants.runtime.cuda.graphs.abortable_nodes import AbortableKernels
from octants.runtime.cuda.memory import DeviceAllocation, DeviceMemory
from octants.runtime.cuda.modules import Module
from octants.runtime.cuda.streams import Streams

_WORD_BYTES = 64


class QueuedReplay(Protocol):
    """A replay of a graph that has been queued."""

    @property
    def is_proved(self) -> bool:
        """Whether a replay at the same versions of memory has had large enough record buffers."""

    def prove(self) -> None:
        """Note that this replay has had large enough record buffers."""

    def resume(self, number: int) -> None:
        """Run what is left of an aborted replay, from the node with a number on.

        Raises:
            OctantsMemoryError: there is no memory for larger record buffers.
        """

    def repeat(self) -> None:
        """Queue the replay again."""


class Replays:
    """The replays of a device that the host has not checked, in the order in which they ran."""

    def __init__(
        self,
        context: Context,
        memory: DeviceMemory,
        streams: Streams,
        dropped_modules: deque[int],
        abortable_code: Callable[[], bytes],
    ) -> None:
        self._context, self._memory = context, memory
        self._abortable_code = abortable_code
        self._streams = streams
        self._dropped_modules = dropped_modules
        self._lock = released_in_children(threading.RLock())
        self._unchecked: list[QueuedReplay] = []
        self._begun = 0  # replays that had begun when the word was last read
        self._proved = 0  # replays since then that are known to have large enough record buffers
        self._is_settling = False
        self._word: DeviceAllocation | None = None
        self._kernels: AbortableKernels | None = None
        self.numbers = itertools.count(1)
        """The numbers of nodes."""
        self.is_shared = False
        """Whether another library may access memory that graphs work on, without notice."""

    @property
    def kernels(self) -> AbortableKernels:
        """The copy and fill kernels of all abortable graphs, with the address of the word."""
        if self._kernels is None:
            self._word = self._memory.allocate(_WORD_BYTES, "what stops graphs", zeroed=True)
            code = self._abortable_code()
            module = Module(self._context, code, b"", self._dropped_modules)
            self._kernels = AbortableKernels(self._context, module, self._word.address)
        return self._kernels

    def add(self, replay: QueuedReplay) -> None:
        """Register a queued replay, so that everything else that uses a stream checks it first.

        A replay that is known to have large enough record buffers is checked at the next
        synchronisation only.
        """
        with self._lock:
            if replay.is_proved and not self._unchecked:
                self._proved += 1
                return
            if not self._unchecked:
                self._streams.call_before_queueing(self.settle)
            self._unchecked.append(replay)
        if self.is_shared:
            self.settle()

    def settle(self) -> None:
        """Wait until all replays are complete; resume the ones that were aborted.

        Raises:
            OctantsMemoryError: a replay cannot be resumed; those behind it have not run.
        """
        with self._lock:
            if self._is_settling or not self._unchecked:
                return
            self._is_settling = self._memory.is_held = True
            try:
                while self._unchecked:
                    self._streams.wait()
                    self._check()
            finally:
                self._is_settling = self._memory.is_held = False
                if not self._unchecked:  # unless Ctrl-C has ended the wait
                    self._streams.call_before_queueing(None)

    def confirm(self) -> None:
        """Check that no replay was aborted that was known to have large enough record buffers.

        Raises:
            OctantsRuntimeError: one was: memory was changed by an untracked write.
        """
        if not self._proved:
            return
        with self._lock:
            if self._proved and self._read()[0]:
                self._clear_number()
                raise UntrackedWrite("a graph").at()

    def _read(self) -> tuple[int, int]:
        """The node that ran out of space for records, or 0; how many unchecked replays began."""
        words = np.zeros(2, np.int64)
        self._streams.default.transfers.read(self.kernels.word, words.view(np.uint8))
        number, total = int(words[abi.STOP_NUMBER // 8]), int(words[abi.STOP_BEGUN // 8])
        begun, self._begun = total - self._begun - self._proved, total
        self._proved = 0
        return number, begun

    def _check(self) -> None:
        """Check the replays that have been waited for; resume the first that was aborted."""
        replays, self._unchecked = self._unchecked, []
        number, begun = self._read()
        if not number:
            for replay in replays:
                replay.prove()
            return
        self._clear_number()
        if begun < 1:
            raise UntrackedWrite("a graph").at()
        self._resume(replays[begun - 1 :], number)
        self._streams.wait()

    def _clear_number(self) -> None:
        zero = np.zeros(8, np.uint8)
        self._streams.queue_without_settling().write(self.kernels.word + abi.STOP_NUMBER, zero)

    def _resume(self, replays: list[QueuedReplay], number: int) -> None:
        """Run the rest of the first replay, from the node with a number on; repeat the others."""
        left = len(replays)
        try:
            replays[0].resume(number)
            for replay in replays[1:]:
                left -= 1
                replay.repeat()
        except OctantsMemoryError as error:
            cause = error.diagnostic
            raise GraphOutOfRecordMemory(cause.title if cause else str(error), left).at() from error
