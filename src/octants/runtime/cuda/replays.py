"""Replays of graphs whose tapes may turn out to be too small.

Such a graph is stopped by the node that falls short: whatever is behind it, and all replays that
were queued since, do nothing (`abi.LAUNCH_STOP`). The host looks before it reads, and before it has
anything else done; then it gives that node more tape, and has all of the rest done.
"""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING

import numpy as np

from octants import abi
from octants.diagnostics.exceptions import OctantsMemoryError
from octants.diagnostics.graph_errors import GraphRanOut
from octants.lazy_dataclass import dataclass
from octants.runtime.cuda import stoppable
from octants.runtime.cuda.memory import DeviceAllocation
from octants.runtime.cuda.stoppable import StoppableKernels

if TYPE_CHECKING:
    from octants.runtime.cuda.built import BuiltGraph
    from octants.runtime.cuda.graphs import CudaGraph
    from octants.runtime.cuda.machine import Machine

_WORD_BYTES = 64


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay that was queued: of a graph, as it was built, by launches of later numbers."""

    graph: CudaGraph
    built: BuiltGraph
    later: int


class Replays:
    """The replays of a device that nobody has looked at, in their order."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._lock = threading.RLock()
        self._waiting: list[Replay] = []
        self._begun = 0
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
            machine = self._machine
            self._word = machine.memory.allocate(_WORD_BYTES, "what stops graphs")
            module = machine.load_module(stoppable.code().encode(), b"")
            self._kernels = StoppableKernels(machine.context, module, self._word.address)
        return self._kernels

    def queued(self, replay: Replay) -> None:
        """Note a replay that was queued; from now on others look before they do anything."""
        with self._lock:
            if not self._waiting:
                self._machine.streams.be_settled(self.settle)
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
            self._is_settling = self._machine.memory.is_held = True
            try:
                while self._waiting:
                    self._machine.streams.wait()
                    self._look()
            finally:
                self._waiting.clear()
                self._is_settling = self._machine.memory.is_held = False
                self._machine.streams.be_settled(None)

    def _look(self) -> None:
        """See how far replays that have been waited for have come, and go on from there."""
        waiting, self._waiting = self._waiting, []
        words = np.zeros(2, np.int64)
        self._machine.staging.read(self.kernels.word, words.view(np.uint8))
        number, begun = int(words[abi.STOP_NUMBER // 8]), int(words[abi.STOP_BEGUN // 8])
        place, self._begun = begun - self._begun - 1, begun
        if number:
            self._clear_number()
            self._go_on(waiting[place:], number)
            self._machine.streams.wait()

    def _clear_number(self) -> None:
        zero = np.zeros(8, np.uint8)
        place = self.kernels.word + abi.STOP_NUMBER
        self._machine.staging.write(place, zero, self._machine.streams.ready())

    def _go_on(self, replays: list[Replay], number: int) -> None:
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
