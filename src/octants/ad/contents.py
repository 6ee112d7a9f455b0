"""What regions of memories held between two writes, as far as somebody will need it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from octants.analysis.boxes import Region, intersect, rows_of
from octants.diagnostics.tape_errors import ChangedUnseen
from octants.launch.memory import Memory


class Content:
    """What a region of a memory held between two writes.

    `saved` is a copy; it may be made while the content is `live`, in its memory still. `digest`
    tells the content by, where the tape validates.
    """

    __slots__ = ("_clock", "_time", "digest", "live", "memory", "region", "saved")

    def __init__(self, memory: Memory, region: Region, clock: LiveContents) -> None:
        self.memory = memory
        self.region = region
        self.live = True
        self.saved: Any = None
        self.digest: bytes | None = None
        self._clock = clock
        self._time = clock.unseen_writes(memory)

    @property
    def nbytes(self) -> int:
        """The bytes of a copy."""
        return self.memory.nbytes(self.region)

    def save(self) -> None:
        """Copy it, while it is in its memory."""
        self.check()
        self.saved = self.memory.snapshot(self.region)

    def check(self) -> None:
        """An error if the array was written through a pointer since."""
        if self._clock.unseen_writes(self.memory) != self._time:
            raise ChangedUnseen(self.memory.name).at(None)

    def is_intact(self) -> bool:
        """Whether the memory still holds a live content."""
        if self.memory.is_foreign:
            return self.saved is None or self.memory.holds(self.saved, self.region)
        self.check()
        return True


class LiveContents:
    """The live contents of one memory, found by region.

    A program that steps through the rows of an array has many, each in a row of its own; they are
    found by the numbers of the rows.
    """

    def __init__(self) -> None:
        self.host_writes = 0
        self._by_region: dict[Region, Content] = {}
        self._in_row: dict[int, dict[Region, None]] = {}
        self._elsewhere: dict[Region, None] = {}

    def unseen_writes(self, memory: Memory) -> int:
        """A number that changes with each write of the host that was not announced."""
        return memory.version - self.host_writes

    def get(self, region: Region) -> Content | None:
        return self._by_region.get(region)

    def add(self, content: Content) -> None:
        region = content.region
        self._by_region[region] = content
        rows = rows_of(region)
        if rows is None:
            self._elsewhere[region] = None
        for row in rows or ():
            self._in_row.setdefault(row, {})[region] = None

    def remove(self, content: Content) -> None:
        region = content.region
        del self._by_region[region]
        self._elsewhere.pop(region, None)
        for row in rows_of(region) or ():
            del self._in_row[row][region]

    def meeting(self, region: Region) -> list[Content]:
        """The contents that a write to a region may end."""
        rows = rows_of(region)
        candidates: Iterable[Region] = self._by_region
        if rows is not None:
            near = [self._in_row[row] for row in rows if row in self._in_row]
            candidates = {other: None for found in (*near, self._elsewhere) for other in found}
        return [self._by_region[other] for other in candidates if intersect(region, other)]
