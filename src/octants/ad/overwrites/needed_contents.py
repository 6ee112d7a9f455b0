"""The contents that regions of arrays held between two writes, if a reverse kernel needs them.

A write that ends a part of a content requires a copy of that part; the rest stays in memory, and is
copied only if it is overwritten. If a later content includes the rest, the earlier content is based
on it: its pieces are the differences. So a program that needs all of an array in each step, and
overwrites one row of it, copies one row for each step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from octants.analysis.indices.index_ranges import ArrayRegion, Rows, contains, intersect, rows_of
from octants.diagnostics.tape_errors import UntrackedChange
from octants.launch.gradients.taped_memory import TapedMemory

MemoryRows = Mapping[Any, Rows]
"""Rows of arrays, by the keys of the arrays."""


class HostWrites:
    """Counts the writes of the host to an array that the tape was notified of."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def untracked(self, memory: TapedMemory) -> int:
        """A number that changes with each untracked write of the host."""
        return memory.version - self.count


class Content:
    """The content of a region of an array between two writes.

    `pieces` are regions with copies of them. What is `left` of the region is in memory while the
    content is `live`, afterwards in the content that it is based on. `digest` identifies the
    content if the tape validates. `reader` is the kernel that needs it.
    """

    __slots__ = (
        "_host_writes",
        "_untracked",
        "base",
        "digest",
        "left",
        "live",
        "memory",
        "pieces",
        "reader",
        "region",
    )

    def __init__(
        self, memory: TapedMemory, region: ArrayRegion, host_writes: HostWrites, reader: str = ""
    ) -> None:
        self.memory = memory
        self.region = self.left = region
        self.reader = reader
        self.live = True
        self.pieces: list[tuple[ArrayRegion, Any]] = []
        self.base: Content | None = None
        self.digest: bytes | None = None
        self._host_writes = host_writes
        self._untracked = host_writes.untracked(memory)

    def check(self) -> None:
        """Raise an error if the array was written through a pointer since.

        Raises:
            OctantsRuntimeError: it was.
        """
        if self._host_writes.untracked(self.memory) != self._untracked:
            raise UntrackedChange(self.memory.name).at()

    def is_intact(self) -> bool:
        """Whether the memory still holds a live content."""
        if self.memory.is_untracked:
            return not self.pieces or self.memory.holds(self.pieces[0][1], self.region)
        self.check()
        return not self.pieces

    def has_pieces_of(self, region: ArrayRegion) -> bool:
        """Whether there are copies of everything that the content has of a region."""
        if region is None or not self.pieces or any(part is None for part, _ in self.pieces):
            return bool(self.pieces) and self.left == ()
        return all(
            not intersect((ranges,), self.region)
            or any(contains(part, (ranges,)) for part, _ in self.pieces)
            for ranges in region
        )


class LiveContents:
    """The live contents of one array, indexed by region.

    A program that steps through the rows of an array has many contents, each within a row: they are
    indexed by row. `partial` are those of which a part has ended.
    """

    def __init__(self) -> None:
        self.host_writes = HostWrites()  # of its own, so that contents do not refer back to this
        self.partial: dict[Content, None] = {}
        self._by_region: dict[ArrayRegion, Content] = {}
        self._in_row: dict[int, dict[ArrayRegion, None]] = {}
        self._elsewhere: dict[ArrayRegion, None] = {}

    def __iter__(self) -> Any:
        yield from self._by_region.values()
        yield from self.partial

    def get(self, region: ArrayRegion) -> Content | None:
        return self._by_region.get(region)

    def add(self, content: Content) -> None:
        region = content.region
        self._by_region[region] = content
        rows = rows_of(region)
        if rows is None:
            self._elsewhere[region] = None
        for row in rows or ():
            self._in_row.setdefault(row, {})[region] = None

    def shrink(self, content: Content, left: ArrayRegion) -> None:
        """Let a part of a content end."""
        if content not in self.partial:
            self.remove(content)
            self.partial[content] = None
        content.left = left

    def remove(self, content: Content) -> None:
        if content in self.partial:
            del self.partial[content]
            return
        region = content.region
        del self._by_region[region]
        self._elsewhere.pop(region, None)
        for row in rows_of(region) or ():
            del self._in_row[row][region]

    def overlapping(self, region: ArrayRegion) -> list[Content]:
        """The contents that a write to a region may end."""
        rows = rows_of(region)
        candidates: Iterable[ArrayRegion] = self._by_region
        if rows is not None:
            near = [self._in_row[row] for row in rows if row in self._in_row]
            candidates = {other: None for found in (*near, self._elsewhere) for other in found}
        found = [self._by_region[other] for other in candidates if intersect(region, other)]
        return found + [content for content in self.partial if intersect(region, content.left)]
