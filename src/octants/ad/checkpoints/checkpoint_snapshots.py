"""Snapshots of the state of a checkpointed loop, stored as what later steps have overwritten.

A snapshot is empty when it is taken. The first write to a region after it copies the prior contents
into it. What no step writes is never copied, and an array of which each step writes another row
costs one copy over all snapshots. Returning to a snapshot undoes the writes since, those in later
snapshots first.
"""

from __future__ import annotations

from typing import Any

from octants.analysis.indices.index_ranges import ArrayRegion
from octants.diagnostics.checkpoint_errors import SnapshotsTooLarge
from octants.launch.gradients.taped_memory import TapedMemory


class Snapshot:
    """The state before a step; ``number`` is that of the next launch.

    `whole` holds the keys of the arrays of which it has a full copy. `first_step` is the trace of
    the step after it.
    """

    def __init__(self, step: int, number: int) -> None:
        self.step = step
        self.number = number
        self.nbytes = 0
        self.whole: set[Any] = set()
        self.first_step: Any = None
        self._regions: set[tuple[Any, ArrayRegion]] = set()
        self._partial: dict[Any, int] = {}
        self._saved: list[tuple[TapedMemory, ArrayRegion, Any]] = []

    def has(self, memory: TapedMemory, region: ArrayRegion) -> bool:
        """Whether it holds the contents of a region."""
        return memory.key in self.whole or (memory.key, region) in self._regions

    def add(self, memory: TapedMemory, region: ArrayRegion, values: Any) -> None:
        """Keep the contents of a region, before it is written."""
        size = _size(values)
        if region is None:
            self.whole.add(memory.key)
        else:
            self._regions.add((memory.key, region))
            self._partial[memory.key] = self._partial.get(memory.key, 0) + size
        self.nbytes += size
        self._saved.append((memory, region, values))

    def partial(self, memory: TapedMemory) -> int:
        """The bytes that it holds of an array without a full copy."""
        return self._partial.get(memory.key, 0)

    def undo(self) -> None:
        """Restore everything that it holds."""
        for memory, region, values in reversed(self._saved):
            memory.restore(values, region)

    def absorb(self, later: Snapshot) -> None:
        """Take over what the next snapshot holds, which can then be dropped."""
        for memory, region, values in later._saved:
            if not self.has(memory, region):
                self.add(memory, region, values)


def _size(values: Any) -> int:
    return sum(part.nbytes for part in values) if isinstance(values, list) else int(values.nbytes)


class Snapshots:
    """The snapshots of a loop, in the order of their steps; the loop returns to the last one.

    They may take ``budget`` bytes. `taken` counts them, `peak` is the most bytes at a time.
    """

    def __init__(self, slots: int, budget: float) -> None:
        self.slots = slots
        self.stack: list[Snapshot] = []
        self.taken = 0
        self.nbytes = 0
        self.peak = 0
        self._budget = budget
        self._always_copied: dict[Any, TapedMemory] = {}

    @property
    def last(self) -> Snapshot:
        """The snapshot that copies are added to."""
        return self.stack[-1]

    @property
    def free(self) -> int:
        """The number of unused slots."""
        return self.slots - len(self.stack)

    def take(self, step: int, number: int) -> None:
        """Begin a snapshot of the present state.

        Raises:
            OctantsMemoryError: the copies of arrays of other libraries exceed the budget.
        """
        self.stack.append(Snapshot(step, number))
        self.taken += 1
        for memory in self._always_copied.values():
            self._add(memory, None)

    def copy_always(self, memory: TapedMemory) -> None:
        """Copy an array of another library with each snapshot, since writes to it are untracked."""
        if memory.key not in self._always_copied:
            self._always_copied[memory.key] = memory
            self.before_write(memory, None)

    def before_write(self, memory: TapedMemory, region: ArrayRegion) -> None:
        """Keep the contents of a region that is about to be written.

        Raises:
            OctantsMemoryError: the snapshots exceed the budget.
        """
        if region == () or self.last.has(memory, region):
            return
        if region is not None and self._wants_all(memory, region):
            region = None
        self._add(memory, region)

    def _wants_all(self, memory: TapedMemory, region: ArrayRegion) -> bool:
        """Whether to copy the whole array: if it has no regions, or many have been copied."""
        if not memory.has_regions or memory.covers(region):
            return True
        return self.last.partial(memory) + memory.nbytes(region) > memory.nbytes()

    def _add(self, memory: TapedMemory, region: ArrayRegion) -> None:
        size = memory.nbytes(region)
        if self.nbytes + size > self._budget:
            budget, held = int(self._budget), self.nbytes
            raise SnapshotsTooLarge(memory.name, size, held, budget, self.slots).at()
        self.last.add(memory, region, memory.snapshot(region))
        self._count(size)

    def _count(self, change: int) -> None:
        self.nbytes += change
        self.peak = max(self.peak, self.nbytes)

    def drop(self, index: int) -> None:
        """Drop a snapshot other than the first."""
        dropped, earlier = self.stack.pop(index), self.stack[index - 1]
        before = dropped.nbytes + earlier.nbytes
        earlier.absorb(dropped)
        self._count(earlier.nbytes - before)

    def restore(self) -> Snapshot:
        """Return to the last snapshot."""
        self.last.undo()
        return self.last

    def pop(self) -> None:
        """Return to the last snapshot, and free its slot."""
        self._count(-self.restore().nbytes)
        self.stack.pop()
