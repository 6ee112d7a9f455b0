"""What arrays held when recorded launches ran: saved before it is overwritten, put back to reverse.

Each memory has a sequence of contents, one after each write. A recorded launch needs some contents,
or regions of them, in its reverse run. A content that nobody needs costs nothing; one that is
needed is copied when the first write to its region is about to end it, and once: all launches
between two writes share it. Arrays of numpy and torch can be written without our seeing it, so that
what is needed of them is copied at once, and compared with what is there when it is needed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from octants.analysis.regions import Region, intersect
from octants.diagnostics.tape_errors import ChangedUnseen
from octants.launch.memory import Memory

_MOST_DISTURBANCES = 32
_MOST_ROWS = 16


class Content:
    """What a region of a memory held between two writes.

    `saved` is a copy; it may be made while the content is `live`, in its memory still.
    """

    __slots__ = ("_clock", "_time", "live", "memory", "region", "saved")

    def __init__(self, memory: Memory, region: Region, clock: LiveContents) -> None:
        self.memory = memory
        self.region = region
        self.live = True
        self._clock = clock
        self._time = clock.unseen_writes(memory)
        self.saved: Any = memory.snapshot() if memory.is_foreign else None

    def end(self) -> None:
        """The region is about to be written."""
        self.live = False
        if self.saved is None:
            self.check()
            self.saved = self.memory.snapshot(self.region)

    def check(self) -> None:
        """An error if the array was written through a pointer since."""
        if self._clock.unseen_writes(self.memory) != self._time:
            raise ChangedUnseen(self.memory.name).at(None)

    def is_intact(self) -> bool:
        """Whether the memory still holds a live content."""
        if self.memory.is_foreign:
            return self.memory.holds(self.saved)
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
        rows = _rows(region)
        if rows is None:
            self._elsewhere[region] = None
        for row in rows or ():
            self._in_row.setdefault(row, {})[region] = None

    def remove(self, content: Content) -> None:
        region = content.region
        del self._by_region[region]
        self._elsewhere.pop(region, None)
        for row in _rows(region) or ():
            del self._in_row[row][region]

    def meeting(self, region: Region) -> list[Content]:
        """The contents that a write to a region may end."""
        rows = _rows(region)
        candidates: Iterable[Region] = self._by_region
        if rows is not None:
            near = [self._in_row[row] for row in rows if row in self._in_row]
            candidates = {other: None for found in (*near, self._elsewhere) for other in found}
        return [self._by_region[other] for other in candidates if intersect(region, other)]


def _rows(region: Region) -> range | None:
    """The first indices of the elements of a region; None where they are many or unknown."""
    if not region or not region[0]:
        return None
    first = min(box[0][0] for box in region)
    last = max(box[0][1] for box in region)
    return range(first, last + 1) if last - first < _MOST_ROWS else None


class Ledger:
    """The contents that are needed, during the recording and during the backward pass."""

    def __init__(self) -> None:
        self._live: dict[Any, LiveContents] = {}
        self._neighbours: dict[Any, list[Memory]] = {}
        self._final: dict[Any, tuple[Memory, Any]] = {}
        self._disturbed: dict[Any, list[tuple[Region, Content | None]]] = {}

    # -- recording ------------------------------------------------------------------------------

    def need(self, memory: Memory, region: Region = None) -> Content:
        """The present content of a region, which will be needed later."""
        self._know(memory)
        if not memory.has_regions:
            region = None
        live = self._live[memory.key]
        content = live.get(region)
        if content is not None and memory.is_foreign and not content.is_intact():
            live.remove(content)
            content.live, content = False, None
        if content is None:
            content = Content(memory, region, live)
            live.add(content)
        return content

    def needed(self, memory: Memory, region: Region = None) -> Memory | None:
        """Whose content, of those that are needed, a write to a region would end."""
        return next((content.memory for content in self._ended_by(memory, region)), None)

    def overwrite(self, memory: Memory, region: Region = None) -> None:
        """Save what is needed of a region that is about to be written."""
        for content in list(self._ended_by(memory, region)):
            self._live[content.memory.key].remove(content)
            content.end()

    def overwrite_by_host(self, memory: Memory, region: Region) -> None:
        """The same for an announced write of the host, which counts in the array's version."""
        self.overwrite(memory, region)
        self._live[memory.key].host_writes += 1

    def _ended_by(self, memory: Memory, region: Region) -> Iterator[Content]:
        self._know(memory)
        for other in self._neighbours[memory.key]:
            yield from self._live[other.key].meeting(region if other.key == memory.key else None)

    def _know(self, memory: Memory) -> None:
        """Find out which known memories overlap with one, itself among them."""
        if memory.key in self._neighbours:
            return
        neighbours = [memory]
        for others in self._neighbours.values():
            if others[0].overlaps(memory):
                neighbours.append(others[0])
                others.append(memory)
        self._neighbours[memory.key] = neighbours
        self._live[memory.key] = LiveContents()

    # -- the backward pass ----------------------------------------------------------------------

    def restore(self, contents: Iterable[Content]) -> None:
        """Put contents back into their memories, where they are not there already."""
        for content in contents:
            if not self._is_in_place(content):
                self._put(content)

    def _is_in_place(self, content: Content) -> bool:
        for region, holder in reversed(self._disturbed.get(content.memory.key, ())):
            if intersect(region, content.region):
                return holder is content
        return content.live and content.is_intact()

    def _put(self, content: Content) -> None:
        memory = content.memory
        self.disturb(memory, content.region, content)
        if content.saved is not None:
            memory.restore(content.saved, content.region)
        else:
            memory.restore_part(self._final[memory.key][1], content.region)

    def disturb(self, memory: Memory, region: Region = None, holder: Content | None = None) -> None:
        """Let a region, and what overlaps with it, be changed: remember the final contents.

        ``holder`` is the content that the region holds from now on, if it is known.
        """
        self._know(memory)
        for key in self._component(memory):
            if key not in self._final:
                neighbour = self._neighbours[key][0]
                self._final[key] = neighbour, neighbour.snapshot()
        for neighbour in self._neighbours[memory.key]:
            own = neighbour.key == memory.key
            self._note(neighbour.key, region if own else None, holder if own else None)

    def _note(self, key: Any, region: Region, holder: Content | None) -> None:
        entries = self._disturbed.setdefault(key, [])
        if region is None:
            entries.clear()
        elif len(entries) >= _MOST_DISTURBANCES:
            entries[:] = [(None, None)]
        entries.append((region, holder))

    def disturb_if_known(self, memory: Memory) -> None:
        """The same for a write of others in the backward pass; what is unknown stays changed."""
        known = memory.key in self._neighbours
        self._know(memory)
        if known or len(self._neighbours[memory.key]) > 1:
            self.disturb(memory)

    def _component(self, memory: Memory) -> set[Any]:
        """The memories that overlap with one, directly or through others."""
        found, pending = {memory.key}, [memory.key]
        while pending:
            for other in self._neighbours[pending.pop()]:
                if other.key not in found:
                    found.add(other.key)
                    pending.append(other.key)
        return found

    def finish(self) -> None:
        """Put back the final contents of all that was disturbed."""
        for key, (memory, saved) in self._final.items():
            if key in self._disturbed:
                memory.restore(saved)
        self._disturbed.clear()
        self._final.clear()
        self._live.clear()
        self._neighbours.clear()
