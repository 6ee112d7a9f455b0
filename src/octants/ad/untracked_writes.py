"""Detects untracked writes to arrays through which adjoints or tangents flow.

The derivative of what such a write replaced should end there, but nothing says what it replaced: an
error. Detection needs a count of writes, which torch keeps for its tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octants.diagnostics.tape_errors import UntrackedChange
from octants.ir.core import Companion
from octants.launch.specialisation import Specialisation
from octants.launch.taped_memory import TapedMemory


class UntrackedWrites:
    """The versions of the arrays with gradients, or duals, at the last launch or host write."""

    def __init__(self, companion: Companion = Companion.ADJOINT) -> None:
        self._companion = companion
        self._versions: dict[Any, int] = {}

    def see(self, specialisation: Specialisation, memories: Mapping[int, TapedMemory]) -> None:
        """Check the arrays of a launch.

        Args:
            specialisation: the kernel that is launched.
            memories: its arrays, by position.

        Raises:
            OctantsRuntimeError: an array was written, untracked, since the last launch.
        """
        arrays = specialisation.arrays
        for position, memory in memories.items():
            if arrays[position].has(self._companion):
                self.know(memory)
                self.check(memory)

    def know(self, memory: TapedMemory) -> None:
        """Take the present version of an array as known, unless an earlier one is."""
        self._versions.setdefault(memory.key, memory.version)

    def see_host_write(self, memory: TapedMemory, *, is_done: bool) -> None:
        """Note a tracked host write to an array, before it happens or, if ``is_done``, after it."""
        if memory.key in self._versions:
            if not is_done:
                self.check(memory)
            self._versions[memory.key] = memory.version + 1

    def check(self, memory: TapedMemory) -> None:
        """Check an array, if it is known.

        Raises:
            OctantsRuntimeError: it was written, untracked, since it became known.
        """
        if self._versions.get(memory.key, memory.version) != memory.version:
            raise UntrackedChange(memory.name).at()
