"""Finds writes that were not announced, to arrays through which adjoints or tangents flow.

The derivative of what such a write replaced should end, but it is unknown what that was: an error.
It is noticed where something counts the writes: torch does for its tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octants.diagnostics.tape_errors import ChangedUnseen
from octants.ir.core import Companion
from octants.launch.specialisation import Specialisation
from octants.launch.taped_memory import TapedMemory


class UntrackedWrites:
    """The versions of the arrays with gradients or duals, as of the last launch or host write."""

    def __init__(self, companion: Companion = Companion.ADJOINT) -> None:
        self._companion = companion
        self._versions: dict[Any, int] = {}

    def see(self, specialisation: Specialisation, memories: Mapping[int, TapedMemory]) -> None:
        """Look at a launch: an error if an array was written since the one before."""
        arrays = specialisation.arrays
        for position, memory in memories.items():
            if arrays[position].has(self._companion):
                self.know(memory)
                self._check(memory)

    def know(self, memory: TapedMemory) -> None:
        """Take what an array holds now for known, unless it is known since earlier."""
        self._versions.setdefault(memory.key, memory.version)

    def see_host_write(self, memory: TapedMemory, *, is_done: bool) -> None:
        """The host is writing an array, or says that it was written."""
        if memory.key in self._versions:
            if not is_done:
                self._check(memory)
            self._versions[memory.key] = memory.version + 1

    def _check(self, memory: TapedMemory) -> None:
        if self._versions[memory.key] != memory.version:
            raise ChangedUnseen(memory.name).at(None)
