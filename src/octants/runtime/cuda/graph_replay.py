"""Replays of graphs whose tapes may turn out to be too small.

Such a graph is stopped by the node that falls short: whatever is behind it, and all replays that
were queued since, do nothing (`abi.LAUNCH_STOP`). The host looks before it reads, and before it has
anything else done; then it gives that node more tape, and has all of the rest done.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from typing import Protocol

import numpy as np

from octants import abi
from octants.diagnostics.exceptions import OctantsMemoryError
from octants.diagnostics.graph_errors import GraphRanOut
from octants.diagnostics.kernel_errors import UnseenWrite
from octants.lazy_dataclass import dataclass
from octants.runtime.cuda import abortable_nodes
from octants.runtime.cuda.abortable_nodes import StoppableKernels
from octants.runtime.cuda.context import Context
from octants.runtime.cuda.memory import DeviceAllocation, DeviceMemory
from octants.runtime.cuda.modules import Module
from octants.runtime.cuda.streams import Streams

_WORD_BYTES = 64


class Built(Protocol):
    """A graph of the driver; `proved` are versions of memory at which it has had enough tape."""

    proved: list[tuple[int, ...]] | None


class Graph(Protocol):
    """What is replayed."""

    def __call__(self, later: int, /) -> None:
        """Queue a replay, or run it."""

    def go_on(self, replay: GraphReplay, number: int, /) -> None:
        """Do what a replay has left undone since the node of a number, whose tapes were too small.

        `OctantsMemoryError` where there is no memory for them.
        """


@dataclass(frozen=True, slots=True)
class GraphReplay:
    """A replay that was queued: of a graph, as it was built, by launches of later numbers.

    Memory that decides how large its tapes must be had these `versions`; None if that is unknown.
    """

    graph: Graph
    built: Built
    later: int
    versions: list[tuple[int, ...]] | None


class Replays:
    """The replays of a device that nobody has looked at, in their order."""

    def __init__(
        self,
        context: Context,
        memory: DeviceMemory,
        streams: Streams,
        dropped_modules: deque[int],
    ) -> None:
        self._context, self._memory = context, memory
        self._streams = streams
        self._dropped_modules = dropped_modules
        self._lock = threading.RLock()
        self._waiting: list[GraphReplay] = []
        self._begun = 0
        self._trusted = 0  # replays that had surely enough, if versions of memory are right
        self._is_settling = False
        self._word: DeviceAllocation | None = None
        self._kernels: StoppableKernels | None = None
        self.numbers = itertools.count(1)
        """The numbers of nodes."""
        self.is_shared = False
        """Whether others may touch memory that graphs work on without telling anybody."""

    @property
    def kernels(self) -> StoppableKernels:
        """Kernels that the word stops, which all graphs share."""
        if self._kernels is None:
            self._word = self._memory.allocate(_WORD_BYTES, "what stops graphs", zeroed=True)
            code = abortable_nodes.code().encode()
            module = Module(self._context, code, b"", self._dropped_modules)
            self._kernels = StoppableKernels(self._context, module, self._word.address)
        return self._kernels

    def queued(self, replay: GraphReplay) -> None:
        """Note a replay that was queued; from now on others look before they do anything.

        There is no need to where one at the same versions of memory has had enough.
        """
        with self._lock:
            is_proved = replay.versions is not None and replay.versions == replay.built.proved
            if is_proved and not self._waiting:
                self._trusted += 1
                return
            if not self._waiting:
                self._streams.be_settled(self.settle)
            self._waiting.append(replay)
        if self.is_shared:
            self.settle()

    def settle(self) -> None:
        """Wait until all replays are done, in full.

        Raises `OctantsMemoryError` where one cannot go on; the others then have not run.
        """
        with self._lock:
            if self._is_settling or not self._waiting:
                return
            self._is_settling = self._memory.is_held = True
            try:
                while self._waiting:
                    self._streams.wait()
                    self._look()
            finally:
                self._is_settling = self._memory.is_held = False
                if not self._waiting:  # unless Ctrl-C has ended the wait
                    self._streams.be_settled(None)

    def confirm(self) -> None:
        """See that replays were not stopped that nobody has looked at; else an error."""
        with self._lock:
            if self._trusted and self._read()[0]:
                self._clear_number()
                raise UnseenWrite("a graph").at(None)

    def _read(self) -> tuple[int, int]:
        """(the number of the node that fell short, or 0, how many replays have begun since)."""
        words = np.zeros(2, np.int64)
        self._streams.default.transfers.read(self.kernels.word, words.view(np.uint8))
        number, total = int(words[abi.STOP_NUMBER // 8]), int(words[abi.STOP_BEGUN // 8])
        begun, self._begun = total - self._begun - self._trusted, total
        self._trusted = 0
        return number, begun

    def _look(self) -> None:
        """See how far replays that have been waited for have come, and go on from there."""
        waiting, self._waiting = self._waiting, []
        number, begun = self._read()
        if not number:
            for replay in waiting:
                replay.built.proved = replay.versions
            return
        self._clear_number()
        if begun < 1:
            raise UnseenWrite("a graph").at(None)
        self._go_on(waiting[begun - 1 :], number)
        self._streams.wait()

    def _clear_number(self) -> None:
        zero = np.zeros(8, np.uint8)
        place = self.kernels.word + abi.STOP_NUMBER
        self._streams.ready_queue().write(place, zero)

    def _go_on(self, replays: list[GraphReplay], number: int) -> None:
        """Do what is left of the first replay, from the node of a number on, and queue others."""
        left = len(replays)
        try:
            replays[0].graph.go_on(replays[0], number)
            for replay in replays[1:]:
                left -= 1
                replay.graph(replay.later)
        except OctantsMemoryError as refused:
            told = refused.diagnostic
            raise GraphRanOut(told.title if told else str(refused), left).at(None) from refused
