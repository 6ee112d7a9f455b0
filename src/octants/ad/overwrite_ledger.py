"""What arrays held when recorded launches ran: saved before it is overwritten, put back to reverse.

Each memory has a sequence of contents, one after each write. A recorded launch needs some contents,
or regions of them, in its reverse run. A content that nobody needs costs nothing; one that is
needed is copied when the first write to its region is about to end it, and once: all launches
between two writes share it. Arrays of numpy and torch can be written without our seeing it, so that
what is needed of them is copied at once, and compared with what is there when it is needed again.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from octants.ad.memory_versions import Content, LiveContents
from octants.ad.snapshot_report import HOST, UNSEEN, Account
from octants.analysis.index_ranges import (
    ArrayRegion,
    Rows,
    common,
    contains,
    intersect,
    rows_of,
    without,
)
from octants.diagnostics.tape_errors import (
    ChangedSinceLaunch,
    LogTooLarge,
    SnapshotRefused,
    TooManySnapshots,
)
from octants.launch.taped_memory import TapedMemory

_MOST_DISTURBANCES = 32
_MOST_PARTED = 64
_MOST_BOXES = 16


class _Missing(enum.Enum):
    """What of a content is not in its memory; if only `PIECES` are, these are copies."""

    NOTHING = enum.auto()
    PIECES = enum.auto()
    ALL = enum.auto()


MemoryRegion = tuple[TapedMemory, ArrayRegion]
Phase = tuple[Sequence[MemoryRegion], Sequence[MemoryRegion]]
"""What will be needed, and then what will be written."""


MemoryPartition = Mapping[Any, Rows]
"""Rows of memories, by the keys of these."""


def cut(
    memory: TapedMemory, region: ArrayRegion, write: ArrayRegion
) -> tuple[ArrayRegion, ArrayRegion]:
    """What a write to some boxes of a memory ends of a region, and what it leaves."""
    assert write
    rank = len(write[0])
    boxes, ended = memory.boxes(region, rank), memory.boxes(write, rank)
    left = without(boxes, ended)
    if not left or len(left) > _MOST_BOXES:
        return region, ()
    return common(boxes, ended), left


class Unsettled(Protocol):
    """An entry of a tape that will tell what it needs when it is asked."""

    def settle(self, ledger: OverwriteLedger, /) -> None:
        """Need the contents that the entry's reverse run reads: those of now."""


class OverwriteLedger:
    """The contents that are needed, during the recording and during the backward pass.

    Copies, and logs of launches, may take ``budget`` bytes. One that does not ``save`` keeps no
    copies: it takes what memory holds for what is needed. One that ``validates`` raises
    `OctantsAssertionError` where that, or what it has put back, is not what the launch saw.
    """

    def __init__(
        self, *, saves: bool = True, validates: bool = False, budget: float = float("inf")
    ) -> None:
        self.saved_bytes = 0
        self.account = Account()
        self.saves = saves
        self._live_bytes = 0  # of the memories of live contents, once for each of these
        self._validates = validates
        self._budget = budget
        self._live: dict[Any, LiveContents] = {}
        self._neighbours: dict[Any, list[TapedMemory]] = {}
        self._final: dict[Any, tuple[TapedMemory, Any]] = {}
        self._disturbed: dict[Any, list[tuple[ArrayRegion, Content | None]]] = {}
        self._unsettled: list[Unsettled] = []
        self._needed: dict[Any, set[int] | None] = {}
        self._knows_strangers = False

    # -- recording ------------------------------------------------------------------------------

    def is_free(self, written: MemoryPartition) -> bool:
        """Whether nobody needs what some memories hold in some rows, as far as we can know."""
        if self._knows_strangers:
            return False
        for key, rows in written.items():
            needed = self._needed.get(key, ())
            if needed is None or (needed and (rows is None or not needed.isdisjoint(rows))):
                return False
        return True

    def note(self, entry: Unsettled, needed: MemoryPartition) -> None:
        """Remember an entry that needs what some memories hold now in some rows.

        What of that is asked when some of it is about to be overwritten.
        """
        if needed:
            self._unsettled.append(entry)
            self._note_rows(needed)

    def _note_rows(self, parts: MemoryPartition) -> None:
        for key, rows in parts.items():
            if rows is None:
                self._needed[key] = None
                continue
            known = self._needed.get(key, ())
            if known:
                known.update(rows)
            elif known is not None:
                self._needed[key] = set(rows)

    def settle(self) -> None:
        """Find out what entries need that were noted, before any of it is overwritten."""
        entries, self._unsettled = self._unsettled, []
        for entry in entries:
            entry.settle(self)

    def _settle_for(self, memory: TapedMemory) -> None:
        if self._unsettled and (memory.is_foreign or memory.key in self._needed):
            self.settle()

    def need(self, memory: TapedMemory, region: ArrayRegion = None, reader: str = "") -> Content:
        """The present content of a region, which ``reader`` will need later."""
        self._know(memory)
        if not memory.has_regions:
            region = None
        self._note_rows({memory.key: rows_of(region)})
        live = self._live[memory.key]
        content = live.get(region)
        if content is not None and memory.is_foreign and not content.is_intact():
            self._end(content)
            content = None
        if content is None:
            content = Content(memory, region, live, reader)
            if memory.is_foreign and self.saves:
                self._save(content, region, (), {}, UNSEEN)
            live.add(content)
            self._live_bytes += memory.nbytes()
            for other in [one for one in live.parted if contains(region, one.left)]:
                self._end(other)
                other.base = content
        if self._validates:
            self._mark(content, reader)
        return content

    def overwrite(self, memory: TapedMemory, region: ArrayRegion = None, writer: str = "") -> None:
        """Save what is needed of a region that ``writer`` is about to write."""
        copies: dict[Any, dict[ArrayRegion, Any]] = {}
        for content in list(self.ended_by(memory, region)):
            part, left = self.cut(content, memory, region)
            if self.saves and part != ():
                known = copies.setdefault(content.memory.key, {})
                self._save(content, part, left, known, writer)
            if left == ():
                self._end(content)
            elif part != ():
                self._live[content.memory.key].part(content, left)

    def cut(
        self, content: Content, memory: TapedMemory, region: ArrayRegion
    ) -> tuple[ArrayRegion, ArrayRegion]:
        """What a write to a region of a memory ends of a content, and what it leaves."""
        other = content.memory
        if not self.saves or memory.key != other.key or not region or content.left == ():
            return content.left, ()
        if not memory.has_regions or len(self._live[other.key].parted) > _MOST_PARTED:
            return content.left, ()
        return cut(memory, content.left, region)

    def _end(self, content: Content) -> None:
        self._live[content.memory.key].remove(content)
        self._live_bytes -= content.memory.nbytes()
        content.live = False

    def overwrite_by_host(self, memory: TapedMemory, region: ArrayRegion) -> None:
        """The same for an announced write of the host, which counts in the array's version."""
        self.overwrite(memory, region, HOST)
        self._live[memory.key].host_writes += 1

    def make_room(self, writer: str, phases: Iterable[Phase]) -> None:
        """An error if the copies that will be due do not fit into the budget."""
        phases = list(phases)
        if not self.saves or self._surely_fits(phases):
            return
        due = self._forecast(phases).due
        if not due:
            return
        sizes = [(memory.nbytes(region), memory.name) for memory, region in due]
        if self.saved_bytes + sum(size for size, _ in sizes) > self._budget:
            largest, name = max(sizes)
            budget = int(self._budget)
            raise TooManySnapshots(writer, name, largest, self.saved_bytes, budget).at(None)

    def _surely_fits(self, phases: list[Phase]) -> bool:
        """Whether there is room for copies of all that is needed, and of what will be: usually."""
        if self._unsettled:
            return False
        more = sum(memory.nbytes() for needs, _ in phases for memory, _ in needs)
        return self.saved_bytes + self._live_bytes + more <= self._budget

    def keep_log(self, kernel: str, nbytes: int) -> None:
        """Count the log of a launch; an error if the budget has no more."""
        if self.saved_bytes + nbytes > self._budget:
            raise LogTooLarge(kernel, nbytes, self.saved_bytes, int(self._budget)).at(None)
        self.saved_bytes += nbytes
        self.account.note("", kernel, kernel, None, nbytes)

    def overwritten(self, phases: Iterable[Phase]) -> list[TapedMemory]:
        """The memories of which contents that are needed will be overwritten."""
        return self._forecast(phases).overwritten

    def _forecast(self, phases: Iterable[Phase]) -> _Forecast:
        forecast = _Forecast(self)
        for needs, writes in phases:
            for place in needs:
                forecast.need(*place)
            for place in writes:
                forecast.overwrite(*place)
        return forecast

    def live(self, memory: TapedMemory, region: ArrayRegion) -> Content | None:
        """The content of a region that is needed already."""
        self._know(memory)
        return self._live[memory.key].get(region)

    def _save(
        self,
        content: Content,
        part: ArrayRegion,
        left: ArrayRegion,
        copies: dict[ArrayRegion, Any],
        writer: str,
    ) -> None:
        """Copy a part of a content, which ``writer`` is about to end; ``copies`` were made."""
        memory = content.memory
        try:
            is_new = content.save(part, copies)
        except MemoryError:
            size = memory.nbytes(part)
            raise SnapshotRefused(memory.name, size, self.saved_bytes).at(None) from None
        content.left = left
        size = memory.nbytes(part) if is_new else 0
        self.saved_bytes += size
        self.account.note(memory.name, writer, content.reader, part, size)

    def ended_by(self, memory: TapedMemory, region: ArrayRegion) -> Iterator[Content]:
        """The live contents that a write to a region would end."""
        self._know(memory)
        for other in self._neighbours[memory.key]:
            yield from self._live[other.key].meeting(region if other.key == memory.key else None)

    def _know(self, memory: TapedMemory) -> None:
        """Find out which known memories overlap with one, itself among them."""
        self._settle_for(memory)
        if memory.key in self._neighbours:
            return
        self._knows_strangers |= memory.is_foreign
        neighbours = [memory]
        for others in self._neighbours.values():
            if others[0].overlaps(memory):
                neighbours.append(others[0])
                others.append(memory)
        self._neighbours[memory.key] = neighbours
        self._live[memory.key] = LiveContents()

    def _mark(self, content: Content, reader: str) -> None:
        """Note what a content is; an error if it is not what it was when it was noted."""
        digest = content.memory.digest(content.region)
        if content.digest not in (None, digest):
            raise ChangedSinceLaunch(content.memory.name, reader).at(None)
        content.digest = digest

    # -- the backward pass ----------------------------------------------------------------------

    def restore(self, contents: Iterable[Content], reader: str = "") -> None:
        """Put contents back into their memories, where they are not there already."""
        if not self.saves:
            self._put_back_final()
        for content in contents:
            if self.saves:
                self._bring(content)
            if self._validates:
                self._mark(content, reader)

    def _bring(self, content: Content) -> None:
        """Put a content into its memory, and before it what it is based on, as far as need be."""
        chain = [content]
        while chain[-1].base is not None and self._missing(chain[-1]) is _Missing.ALL:
            chain.append(chain[-1].base)
        for each in reversed(chain):
            missing = self._missing(each)
            if missing is not _Missing.NOTHING:
                self._put(each, left=missing is _Missing.ALL and each.base is None)

    def _missing(self, content: Content) -> _Missing:
        """What of a content is not in its memory."""
        disturbed: list[ArrayRegion] = []
        for region, holder in reversed(self._disturbed.get(content.memory.key, ())):
            if holder is content:
                break
            if intersect(region, content.region):
                disturbed.append(region)
        else:
            if disturbed or not content.live:
                return _Missing.ALL
            if content.is_intact():
                return _Missing.NOTHING
            return _Missing.ALL if content.memory.is_foreign else _Missing.PIECES
        if not disturbed:
            return _Missing.NOTHING
        has_all = all(map(content.has_pieces_of, disturbed))
        return _Missing.PIECES if has_all else _Missing.ALL

    def _put(self, content: Content, *, left: bool) -> None:
        """Put the pieces of a content into its memory; with ``left``, the rest of it as well."""
        memory = content.memory
        self.disturb(memory, content.region, content)
        if left and content.left != ():
            memory.restore_part(self._final[memory.key][1], content.left)
        for region, values in content.pieces:
            memory.restore(values, region)

    def disturb(
        self, memory: TapedMemory, region: ArrayRegion = None, holder: Content | None = None
    ) -> None:
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

    def _note(self, key: Any, region: ArrayRegion, holder: Content | None) -> None:
        entries = self._disturbed.setdefault(key, [])
        if region is None:
            entries.clear()
        elif holder is not None:
            entries[:] = [entry for entry in entries if not contains(region, entry[0])]
        elif len(entries) >= _MOST_DISTURBANCES:
            entries[:] = [(None, None)]
        entries.append((region, holder))

    def disturb_if_known(self, memory: TapedMemory) -> None:
        """The same for a write of others in the backward pass; what is unknown stays changed."""
        self._settle_for(memory)
        known = memory.key in self._neighbours
        self._know(memory)
        if known or len(self._neighbours[memory.key]) > 1:
            self.disturb(memory)

    def _component(self, memory: TapedMemory) -> set[Any]:
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
        self._put_back_final()
        self._final.clear()
        self._live.clear()
        self._neighbours.clear()

    def _put_back_final(self) -> None:
        for key, (memory, saved) in self._final.items():
            if key in self._disturbed:
                memory.restore(saved)
        self._disturbed.clear()


class _Forecast:
    """Follows needs and writes without doing them.

    `due` is what will be copied, with repetitions; `overwritten` are the memories of contents that
    were needed.
    """

    def __init__(self, ledger: OverwriteLedger) -> None:
        self.due: list[MemoryRegion] = []
        self.overwritten: list[TapedMemory] = []
        self._ledger = ledger
        self._ended: set[Content] = set()
        self._needed: dict[tuple[Any, ArrayRegion], MemoryRegion] = {}

    def need(self, memory: TapedMemory, region: ArrayRegion) -> None:
        if not memory.has_regions:
            region = None
        live = self._ledger.live(memory, region)
        key = memory.key, region
        if (live is not None and live not in self._ended) or key in self._needed:
            return
        self._needed[key] = memory, region
        if memory.is_foreign:
            self.due.append((memory, region))

    def overwrite(self, memory: TapedMemory, region: ArrayRegion) -> None:
        copied: set[tuple[Any, ArrayRegion]] = set()
        for content in self._ledger.ended_by(memory, region):
            if content in self._ended:
                continue
            part, left = self._ledger.cut(content, memory, region)
            if left == ():
                self._ended.add(content)
            elif part == ():
                continue
            self.overwritten.append(content.memory)
            if part != () and (content.memory.key, part) not in copied:
                copied.add((content.memory.key, part))
                self.due.append((content.memory, part))
        for key, (other, needed) in list(self._needed.items()):
            is_same = other.key == memory.key
            if intersect(needed, region) if is_same else other.overlaps(memory):
                del self._needed[key]
                self.overwritten.append(other)
                if not other.is_foreign:
                    self.due.append((other, needed))
