"""Detects untracked writes to arrays through which adjoints or tangents flow.

The derivative of what such a write replaced should end there, but nothing says what it replaced: an
error. Torch counts the writes to its tensors. Where nothing counts them, as for a numpy view of an
ndarray, the contents are compared with those that the last launch left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from octants.analysis.indices.index_ranges import ArrayRegion
from octants.data.host_access_events import HostWrite
from octants.diagnostics.tape_errors import UntrackedChange
from octants.ir.core import Companion
from octants.launch.gradients.taped_memory import (
    TapedMemory,
    adjoint_of,
    memory_of,
    region_of_write,
)
from octants.launch.specialisation import Specialisation


class UntrackedWrites:
    """The versions of the arrays with gradients, or duals, at the last launch or host write.

    Of those that are written uncounted, also the contents, with the regions that the host has
    written since, tracked.
    """

    def __init__(self, companion: Companion = Companion.ADJOINT) -> None:
        self._companion = companion
        self._versions: dict[Any, int] = {}
        self._contents: dict[Any, tuple[TapedMemory, Any, list[ArrayRegion]]] = {}

    def see(
        self,
        specialisation: Specialisation,
        memories: Mapping[int, TapedMemory],
        *,
        differentiates: bool = True,
    ) -> list[TapedMemory]:
        """Check the arrays of a launch.

        Args:
            specialisation: the kernel that is launched.
            memories: its arrays, by position.
            differentiates: whether derivatives pass through the launch.

        Returns:
            The arrays whose contents must be known after the launch, see `know_contents`.

        Raises:
            OctantsRuntimeError: an array was written, untracked, since the last launch.
        """
        found: list[TapedMemory] = []
        arrays = specialisation.arrays
        for position, memory in memories.items() if differentiates else ():
            if arrays[position].has(self._companion):
                self.know(memory)
                self.check(memory)
                if memory.is_exported:
                    found.append(memory)
        for position in specialisation.written if self._contents else ():
            found += self._forget(memories[position])
        return found

    def know(self, memory: TapedMemory) -> None:
        """Take the present version of an array as known, unless an earlier one is."""
        self._versions.setdefault(memory.key, memory.version)

    def know_contents(self, memories: Iterable[TapedMemory]) -> None:
        """Take the present contents of arrays as known, to which writes are not counted."""
        for memory in memories:
            if memory.key not in self._contents:
                self._contents[memory.key] = memory, memory.snapshot(), []

    def _forget(self, memory: TapedMemory) -> list[TapedMemory]:
        """Forget the contents of the arrays that a write to one may change: these."""
        found = [known for known, _, _ in self._contents.values() if known.overlaps(memory)]
        for known in found:
            del self._contents[known.key]
        return found

    def see_custom_call(self, memories: Iterable[TapedMemory]) -> None:
        """Take the contents that a call with a custom gradient left in arrays as known."""
        for memory in memories:
            if memory.is_exported and adjoint_of(memory.array) is not None:
                self._forget(memory)
                self.know_contents([memory])

    def see_host_write(self, memory: TapedMemory, write: HostWrite) -> None:
        """Note a tracked host write to an array, before it happens or, if `is_done`, after it."""
        if write.source is not None:
            self.check(memory_of(write.source, write.source.describe()))
        if memory.key in self._versions:
            if not write.is_done:
                self._check_version(memory)
            self._versions[memory.key] = memory.version + 1
        known = self._contents.pop(memory.key, None)
        self._forget(memory)
        region = region_of_write(write)
        if known is not None and region is not None:
            known[2].append(region)
            self._contents[memory.key] = known

    def check(self, memory: TapedMemory) -> None:
        """Check an array, if it is known.

        Raises:
            OctantsRuntimeError: it was written, untracked, since it became known.
        """
        self._check_version(memory)
        if memory.key not in self._contents or not memory.is_exported:
            return
        _, saved, written = self._contents[memory.key]
        for region in written:
            memory.update_saved(saved, region)
        written.clear()
        if not memory.holds(saved):
            raise UntrackedChange(memory.name).at()

    def _check_version(self, memory: TapedMemory) -> None:
        if self._versions.get(memory.key, memory.version) != memory.version:
            raise UntrackedChange(memory.name).at()
