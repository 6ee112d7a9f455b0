"""Custom gradients that launch and write while a tape is reversed."""

from __future__ import annotations

import threading
from _thread import RLock
from typing import Any

from octants.ad.overwrites.overwrite_ledger import OverwriteLedger
from octants.analysis.indices.index_ranges import ArrayRegion
from octants.data.host_access_events import HostWrite
from octants.diagnostics.tape_errors import WrittenDuringReverse
from octants.launch.gradients.taped_memory import (
    TapedMemory,
    memories_of,
    memory_of_write,
    region_of_write,
    written_regions,
)
from octants.launch.specialisation import Specialisation


class BackwardGuard:
    """Records what custom gradients write during the backward pass.

    At its end, the arrays of the tape are again as the body left them, and all others as written.
    Other threads may not write these arrays meanwhile, unless they work for a custom gradient.
    """

    def __init__(self, ledger: OverwriteLedger, lock: RLock) -> None:
        self.paused = 0
        self.thread = threading.get_ident()
        self._ledger, self._lock = ledger, lock
        self._has_ended = False

    def end(self) -> None:
        """Leave later writes of other threads alone."""
        self._has_ended = True

    def launch(self, specialisation: Specialisation, arguments: tuple[Any, ...]) -> Any:
        memories = memories_of(specialisation, arguments)
        for memory, region in written_regions(specialisation, arguments, memories):
            self._note_change(memory, region, by_host=False)
        return specialisation.run(arguments)

    def before_write(self, write: HostWrite) -> None:
        memory = memory_of_write(write)
        if memory is not None and not write.is_done:
            self._note_change(memory, region_of_write(write), by_host=True)

    def _note_change(self, memory: TapedMemory, region: ArrayRegion, *, by_host: bool) -> None:
        ledger = self._ledger
        if self._has_ended:
            return
        if threading.get_ident() == self.thread or ledger.runs_custom_gradient:
            with self._lock:
                ledger.note_change_if_known(memory, region, by_host=by_host)
        elif ledger.knows(memory):
            raise WrittenDuringReverse(memory.name).at()
