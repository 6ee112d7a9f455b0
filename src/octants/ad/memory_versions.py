"""What regions of memories held between two writes, as far as somebody will need it.

A write that ends a part of a content has that part copied; the rest stays in memory, and is copied
when it is overwritten, if it is. Where a later content has the rest as well, the earlier one is
based on it: its pieces are what it differs in. So a program that needs all of an array in each
step, and overwrites a row of it, costs a copy of a row for each step.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from octants.analysis.index_ranges import ArrayRegion, contains, intersect, rows_of
from octants.diagnostics.tape_errors import ChangedUnseen
from octants.launch.taped_memory import TapedMemory


class Content:
    """What a region of a memory held between two writes.

    `pieces` are regions with copies of them. What is `left` of the region is in memory as long as
    the content is `live`, or in the content that it is based on. `digest` tells the content by,
    where the tape validates. `reader` is what needs it.
    """

    __slots__ = (
        "_clock",
        "_time",
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
        self, memory: TapedMemory, region: ArrayRegion, clock: LiveContents, reader: str = ""
    ) -> None:
        self.memory = memory
        self.region = self.left = region
        self.reader = reader
        self.live = True
        self.pieces: list[tuple[ArrayRegion, Any]] = []
        self.base: Content | None = None
        self.digest: bytes | None = None
        self._clock = clock
        self._time = clock.unseen_writes(memory)

    def save(self, part: ArrayRegion, copies: dict[ArrayRegion, Any]) -> bool:
        """Copy a part while it is in its memory; whether a copy was made that was not there."""
        self.check()
        is_new = part not in copies
        if is_new:
            copies[part] = self.memory.snapshot(part)
        self.pieces.append((part, copies[part]))
        return is_new

    def check(self) -> None:
        """An error if the array was written through a pointer since."""
        if self._clock.unseen_writes(self.memory) != self._time:
            raise ChangedUnseen(self.memory.name).at(None)

    def is_intact(self) -> bool:
        """Whether the memory still holds a live content."""
        if self.memory.is_foreign:
            return not self.pieces or self.memory.holds(self.pieces[0][1], self.region)
        self.check()
        return not self.pieces

    def has_pieces_of(self, region: ArrayRegion) -> bool:
        """Whether there are copies of all that the content has of a region."""
        if region is None or not self.pieces or any(part is None for part, _ in self.pieces):
            return bool(self.pieces) and self.left == ()
        return all(
            not intersect((box,), self.region)
            or any(contains(part, (box,)) for part, _ in self.pieces)
            for box in region
        )


class LiveContents:
    """The live contents of one memory, found by region.

    A program that steps through the rows of an array has many, each in a row of its own; they are
    found by the numbers of the rows. Those of which a part has ended stand apart.
    """

    def __init__(self) -> None:
        self.host_writes = 0
        self.parted: dict[Content, None] = {}
        self._by_region: dict[ArrayRegion, Content] = {}
        self._in_row: dict[int, dict[ArrayRegion, None]] = {}
        self._elsewhere: dict[ArrayRegion, None] = {}

    def __iter__(self) -> Any:
        yield from self._by_region.values()
        yield from self.parted

    def unseen_writes(self, memory: TapedMemory) -> int:
        """A number that changes with each write of the host that was not announced."""
        return memory.version - self.host_writes

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

    def part(self, content: Content, left: ArrayRegion) -> None:
        """Let a part of a content end."""
        if content not in self.parted:
            self.remove(content)
            self.parted[content] = None
        content.left = left

    def remove(self, content: Content) -> None:
        if content in self.parted:
            del self.parted[content]
            return
        region = content.region
        del self._by_region[region]
        self._elsewhere.pop(region, None)
        for row in rows_of(region) or ():
            del self._in_row[row][region]

    def meeting(self, region: ArrayRegion) -> list[Content]:
        """The contents that a write to a region may end."""
        rows = rows_of(region)
        candidates: Iterable[ArrayRegion] = self._by_region
        if rows is not None:
            near = [self._in_row[row] for row in rows if row in self._in_row]
            candidates = {other: None for found in (*near, self._elsewhere) for other in found}
        found = [self._by_region[other] for other in candidates if intersect(region, other)]
        return found + [content for content in self.parted if intersect(region, content.left)]
