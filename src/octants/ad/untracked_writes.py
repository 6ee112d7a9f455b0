"""Detects untracked writes to arrays through which adjoints or tangents flow.

The derivative of what such a write replaced should end there, but nothing says what it replaced: an
error. Torch counts the writes to its tensors. Where nothing counts them, as for a numpy view of an
ndarray, the contents are compared with those that the last launch left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from octants.analysis.index_ranges import ArrayRegion
from octants.data.host_access_events import HostWrite
from octants.diagnostics.tape_errors import UntrackedChange
from octants.ir.core import Companion
from octants.launch.specialisation import Specialisation
from octants.launch.taped_memory import TapedMemory, memories_of, region_of_write
from octants.runtime.capture import thread_capture


class UntrackedWrites:
    """The versions of the arrays with gradients, or duals, at the last launch or host write.

    Of those that are written uncounted, also the contents, with the regions that the host has
    written since, tracked.
    """

    def __init__(self, companion: Companion = Companion.ADJOINT) -> None:
        self._companion = companion
        self._versions: dict[Any, int] = {}
        self._contents: dict[Any, tuple[TapedMemory, Any, list[ArrayRegion]]] = {}

    def see(self, specialisation: Specialisation, memories: Mapping[int, TapedMemory]) -> None:
        """Check the arrays of a launch.

        Args:
            specialisation: the kernel that is launched.
            memories: its arrays, by position.

        Raises:
            OctantsRuntimeError: an array was written, untracked, since the last launch.
        """
        for memory in self._active(specialisation, memories):
            self.know(memory)
            self.check(memory)
        for position in specialisation.written if self._contents else ():
            self.forget(memories[position])

    def see_end(self, specialisation: Specialisation, memories: Mapping[int, TapedMemory]) -> None:
        """Take what a launch left in its arrays as known."""
        for memory in self._active(specialisation, memories):
            self.know_contents(memory)

    def _active(
        self, specialisation: Specialisation, memories: Mapping[int, TapedMemory]
    ) -> Iterator[TapedMemory]:
        arrays = specialisation.arrays
        for position, memory in memories.items():
            if arrays[position].has(self._companion):
                yield memory

    def know(self, memory: TapedMemory) -> None:
        """Take the present version of an array as known, unless an earlier one is."""
        self._versions.setdefault(memory.key, memory.version)

    def know_contents(self, memory: TapedMemory) -> None:
        """Take the present contents of an array as known, if writes to it are not counted."""
        known = memory.array.is_untracked and memory.key not in self._contents
        if known and thread_capture() is None:  # whose replays have other contents
            self._contents[memory.key] = memory, memory.snapshot(), []

    def forget(self, memory: TapedMemory) -> None:
        """Forget the contents of the arrays that a write to one may change."""
        for key, (known, _, _) in tuple(self._contents.items()):
            if known.overlaps(memory):
                del self._contents[key]

    def forget_written(self, specialisation: Specialisation, arguments: tuple[Any, ...]) -> None:
        """Forget the contents that a launch without derivatives is about to change."""
        memories = memories_of(specialisation, arguments) if self._contents else {}
        for position in specialisation.written if memories else ():
            self.forget(memories[position])

    def see_host_write(self, memory: TapedMemory, write: HostWrite) -> None:
        """Note a tracked host write to an array, before it happens or, if `is_done`, after it."""
        region = region_of_write(write)
        if memory.key in self._versions:
            if not write.is_done:
                self.check(memory)
            self._versions[memory.key] = memory.version + 1
        known = self._contents.pop(memory.key, None)
        self.forget(memory)
        if known is not None and region is not None:
            known[2].append(region)
            self._contents[memory.key] = known

    def check(self, memory: TapedMemory) -> None:
        """Check an array, if it is known.

        Raises:
            OctantsRuntimeError: it was written, untracked, since it became known.
        """
        if self._versions.get(memory.key, memory.version) != memory.version:
            raise UntrackedChange(memory.name).at()
        known = self._contents.get(memory.key)
        if known is None or thread_capture() is not None:
            return
        _, saved, written = known
        if written:
            for region in written:
                memory.update_saved(saved, region)
            written.clear()
        if not memory.holds(saved):
            raise UntrackedChange(memory.name).at()
