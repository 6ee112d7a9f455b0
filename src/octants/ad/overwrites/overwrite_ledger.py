"""Saves what recorded launches read before it is overwritten, and restores it to reverse them.

Each array has a sequence of contents, one after each write. The reverse of a recorded launch needs
some contents, or regions of them. A content that no reverse needs costs nothing. A needed content
is copied once, when the first write to its region is about to end it: all launches between two
writes share the copy. Writes to arrays of numpy and torch are untracked, and so are those of others
to memory that was exported: their needed contents are copied at once, and compared with memory when
they are needed again.
"""

from __future__ import annotations

import bisect
import enum
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from octants.ad.overwrites.needed_contents import Content, LiveContents, MemoryRows
from octants.ad.overwrites.packed_copies import PackedCopies, PackedCopy
from octants.ad.overwrites.repeated_tapes import Observation
from octants.ad.overwrites.snapshot_report import HOST, UNTRACKED, Account
from octants.analysis.indices.index_ranges import (
    ArrayRegion,
    IndexRanges,
    Rows,
    common,
    contains,
    intersect,
    rows_of,
    within,
    without,
)
from octants.diagnostics.tape_errors import (
    ChangedSinceLaunch,
    LogTooLarge,
    OutOfSnapshotMemory,
    TooManySnapshots,
)
from octants.launch.gradients.taped_memory import TapedMemory
from octants.lazy_dataclass import dataclass

_MAX_CHANGES = 32
_MAX_PARTIAL = 64
_MAX_BOXES = 16
_MOST_CUTS = 4096


class _Missing(enum.Enum):
    """How much of a content its memory no longer holds; `PIECES` are the parts with copies."""

    NOTHING = enum.auto()
    PIECES = enum.auto()
    ALL = enum.auto()


MemoryRegion = tuple[TapedMemory, ArrayRegion]
Phase = tuple[Sequence[MemoryRegion], Sequence[MemoryRegion]]
"""Regions that will be needed, and regions that will be written after that."""


@dataclass(slots=True)
class SavedPart:
    """The `values` of a region of an array, which `reader` needs, as they were copied."""

    memory: TapedMemory
    region: ArrayRegion
    values: Any
    reader: str
    nbytes: int


@functools.lru_cache(_MOST_CUTS)
def cut(
    region: ArrayRegion, write: tuple[IndexRanges, ...], shape: tuple[int, ...]
) -> tuple[ArrayRegion, ArrayRegion]:
    """Split a region of an array of some shape by a write to some of its index ranges.

    Returns:
        What the write ends, and what it leaves.
    """
    extents = shape[: len(write[0])]
    parts, ended = within(region, extents), within(write, extents)
    left = without(parts, ended)
    if not left or len(left) > _MAX_BOXES:
        return region, ()
    return common(parts, ended), left


class DeferredEntry(Protocol):
    """An entry of a tape whose needs are resolved only before something overwrites them."""

    def resolve(self, ledger: OverwriteLedger, /) -> None:
        """Register the need for the contents that the entry's reverse reads: the present ones."""


class OverwriteLedger:
    """The contents that are needed, during the recording and during the backward pass.

    Args:
        saves: copy what is overwritten; otherwise memory is taken as it is.
        validates: raise `OctantsAssertionError` if restored or trusted contents differ from what
            the launch read.
        budget: the most bytes of copies and of logs.
    """

    saved_bytes = 0
    observation: Observation | None = None
    """Observes what is done to memory in the backward pass."""
    runs_custom_gradient = False
    _live_bytes = 0  # of the memories of live contents, once for each of these
    _longest = 0  # of the spans
    _has_foreign = False

    def __init__(
        self, *, saves: bool = True, validates: bool = False, budget: float = float("inf")
    ) -> None:
        self.account = Account()
        self.saves = saves
        self._validates = validates
        self._budget = budget
        self._live: dict[Any, LiveContents] = {}
        self._neighbours: dict[Any, list[TapedMemory]] = {}
        self._fields: list[Any] = []  # the keys of the fields among these
        self._spans: list[tuple[int, int, int, Any]] = []  # the addresses of the others, in order
        self._final: dict[Any, tuple[TapedMemory, Any]] = {}
        self._changed: dict[Any, list[tuple[ArrayRegion, Content | None]]] = {}
        self._deferred: list[DeferredEntry] = []
        self._needed: dict[Any, set[int] | None] = {}

    # -- recording ------------------------------------------------------------------------------

    def may_overwrite(self, written: MemoryRows) -> bool:
        """Whether some rows of arrays hold nothing that is needed, as far as is known."""
        if self._has_foreign:
            return False
        if not self._needed:
            return True
        for key, rows in written.items():
            needed = self._needed.get(key, ())
            if needed is None or (needed and (rows is None or not needed.isdisjoint(rows))):
                return False
        return True

    def note(self, entry: DeferredEntry, needed: MemoryRows) -> None:
        """Defer an entry that needs the present contents of some rows.

        Its needs are resolved when some of these rows are about to be overwritten.
        """
        self._deferred.append(entry)
        for key, rows in needed.items():
            known = self._needed.get(key)
            if known and rows is not None:
                known.update(rows)
            else:
                self._note_rows(key, rows)

    def _note_rows(self, key: Any, rows: Rows) -> None:
        """Note that some rows of an array are needed; None: all of them."""
        known = self._needed.get(key, ())
        if rows is None or known is None:
            self._needed[key] = None
        else:
            self._needed[key] = {*known, *rows}

    @property
    def is_new(self) -> bool:
        """Whether nothing is known but deferred entries."""
        return not self._live

    def has_budget_for(self, nbytes: int) -> bool:
        """Whether the budget allows so many bytes more."""
        return self.saved_bytes + nbytes <= self._budget

    def defer(self, entry: DeferredEntry, nbytes: int) -> None:
        """Defer an entry whose launch copied so many bytes, as an earlier tape did.

        Nothing else may use the ledger before `resolve`.
        """
        self._deferred.append(entry)
        self.saved_bytes += nbytes

    def resolve(self) -> None:
        """Resolve the needs of deferred entries, before any of it is overwritten."""
        entries, self._deferred = self._deferred, []
        for entry in entries:
            entry.resolve(self)

    def _resolve_for(self, memory: TapedMemory) -> None:
        if self._deferred and (memory.is_foreign or memory.key in self._needed):
            self.resolve()

    def need(self, memory: TapedMemory, region: ArrayRegion = None, reader: str = "") -> Content:
        """Register the need for the present content of a region.

        Args:
            memory: the array.
            region: the region; None for all of it.
            reader: the kernel whose reverse needs it.

        Returns:
            The content, to be passed to `restore`.

        Raises:
            OctantsMemoryError: memory for a copy could not be allocated.
        """
        self._register(memory)
        if region is not None and not memory.has_regions:
            region = None
        self._note_rows(memory.key, rows_of(region))
        live = self._live[memory.key]
        content = live.get(region)
        if content is not None and memory.is_untracked and not content.is_intact():
            self._end(content)
            content = None
        if content is None:
            content = Content(memory, region, live.host_writes, reader)
            if memory.is_untracked and self.saves:
                self._save(content, region, (), {}, UNTRACKED)
            live.add(content)
            self._live_bytes += memory.nbytes()
            for other in [one for one in live.partial if contains(region, one.left)]:
                self._end(other)
                other.base = content
        if self._validates:
            self._check_digest(content, reader)
        return content

    def overwrite(
        self,
        memory: TapedMemory,
        region: ArrayRegion = None,
        writer: str = "",
        given: Iterator[SavedPart] | None = None,
    ) -> list[SavedPart]:
        """Save the needed contents of a region that ``writer`` is about to write.

        Args:
            memory: the array.
            region: the region; None for all of it.
            writer: a kernel, for `explain`.
            given: the copies, if they were made (and their bytes counted) when it was written.

        Returns:
            The new copies.
        """
        saved: list[SavedPart] = []
        copies: dict[Any, dict[ArrayRegion, Any]] = {}
        for content in list(self.ended_by(memory, region)):
            part, left = self.cut(content, memory, region)
            if self.saves and part != ():
                known = copies.setdefault(content.memory.key, {})
                saved += self._save(content, part, left, known, writer, given)
            if left == ():
                self._end(content)
            elif part != ():
                self._live[content.memory.key].shrink(content, left)
        return saved

    def cut(
        self, content: Content, memory: TapedMemory, region: ArrayRegion
    ) -> tuple[ArrayRegion, ArrayRegion]:
        """Split what is left of a content by a write to a region: the ended part, and the rest."""
        other = content.memory
        if not self.saves or memory.key != other.key or not region or content.left == ():
            return content.left, ()
        if not memory.has_regions or len(self._live[other.key].partial) > _MAX_PARTIAL:
            return content.left, ()
        return cut(content.left, region, memory.shape)

    def _end(self, content: Content) -> None:
        self._live[content.memory.key].remove(content)
        self._live_bytes -= content.memory.nbytes()
        content.live = False

    def overwrite_by_host(self, memory: TapedMemory, region: ArrayRegion) -> None:
        """The same for a tracked host write, which increments the version of the array."""
        self.overwrite(memory, region, HOST)
        self._live[memory.key].host_writes.count += 1

    def save_untracked(self, memory: TapedMemory) -> None:
        """Copy the needed contents of an array to which writes are untracked from now on."""
        if not self.saves or memory.key not in self._live:
            return
        self.check_budget(f"an export of `{memory.name}`", [((), [(memory, None)])])
        for content in list(self._live[memory.key]):
            if content.left != ():
                self._save(content, content.left, (), {}, UNTRACKED)
            if content.pieces[0][0] != content.region:
                self._end(content)

    def check_budget(self, writer: str, phases: Iterable[Phase]) -> None:
        """Check that the copies which some phases require fit the budget.

        Raises:
            OctantsMemoryError: they do not.
        """
        phases = list(phases)
        if not self.saves or self._fits_surely(phases):
            return
        due = self._forecast(phases).due
        if not due:
            return
        sizes = [(memory.nbytes(region), memory.name) for memory, region in due]
        if self.saved_bytes + sum(size for size, _ in sizes) > self._budget:
            largest, name = max(sizes)
            budget = int(self._budget)
            raise TooManySnapshots(writer, name, largest, self.saved_bytes, budget).at()

    def _fits_surely(self, phases: list[Phase]) -> bool:
        """Whether copies of everything that is or will be needed fit, which is the common case."""
        if self._deferred:
            return False
        more = sum(memory.nbytes() for needs, _ in phases for memory, _ in needs)
        return self.saved_bytes + self._live_bytes + more <= self._budget

    def count_log(self, kernel: str, nbytes: int) -> None:
        """Count the bytes of the log of a launch.

        Raises:
            OctantsMemoryError: they exceed the budget.
        """
        if self.saved_bytes + nbytes > self._budget:
            raise LogTooLarge(kernel, nbytes, self.saved_bytes, int(self._budget)).at()
        self.saved_bytes += nbytes
        self.account.note("", kernel, kernel, None, nbytes)

    def copy_argument(self, kernel: str, memory: TapedMemory) -> Any:
        """Copy an array that the reverse of a kernel reads, and to which writes are untracked.

        Raises:
            OctantsMemoryError: the copy exceeds the budget, or could not be allocated.
        """
        size = memory.nbytes()
        if not self.has_budget_for(size):
            budget = int(self._budget)
            writer = f"kernel `{kernel}`"
            raise TooManySnapshots(writer, memory.name, size, self.saved_bytes, budget).at()
        copy = self.copy(memory, None)
        self.saved_bytes += size
        self.account.note(memory.name, UNTRACKED, kernel, None, size)
        return copy

    def overwritten(self, phases: Iterable[Phase]) -> list[TapedMemory]:
        """The arrays whose needed contents some phases will overwrite."""
        return self._forecast(phases).overwritten

    def _forecast(self, phases: Iterable[Phase]) -> _Forecast:
        forecast = _Forecast(self)
        for needs, writes in phases:
            for memory, region in needs:
                forecast.need(memory, region)
            for memory, region in writes:
                forecast.overwrite(memory, region)
        return forecast

    def live(self, memory: TapedMemory, region: ArrayRegion) -> Content | None:
        """The content of a region, if it is needed already."""
        self._register(memory)
        return self._live[memory.key].get(region)

    def _save(
        self,
        content: Content,
        part: ArrayRegion,
        left: ArrayRegion,
        copies: dict[ArrayRegion, Any],
        writer: str,
        given: Iterator[SavedPart] | None = None,
    ) -> Sequence[SavedPart]:
        """Copy a part of a content that ``writer`` is about to end, unless ``copies`` has it.

        Returns:
            The copy, if it is a new one.
        """
        memory = content.memory
        content.check()
        values: Any = copies.get(part)
        is_new = values is None
        if is_new:
            values = self.copy(memory, part) if given is None else self._take(given, memory, part)
            copies[part] = values
        content.pieces.append((part, values))
        content.left = left
        if not is_new:
            return ()
        size = memory.nbytes() if part is None else sum(each.nbytes for each in values)
        self.saved_bytes += size
        self.account.note(memory.name, writer, content.reader, part, size)
        return (SavedPart(memory, part, values, content.reader, size),)

    def _take(self, given: Iterator[SavedPart], memory: TapedMemory, part: ArrayRegion) -> Any:
        """The next copy that was made, which is of a part of an array."""
        saved = next(given)
        assert (saved.memory.key, saved.region) == (memory.key, part), "it copied something else"
        self.saved_bytes -= saved.nbytes
        values = saved.values
        return values.as_snapshot(memory, part) if isinstance(values, PackedCopy) else values

    def copy(
        self, memory: TapedMemory, part: ArrayRegion, packed: PackedCopies | None = None
    ) -> Any:
        """Copy a part of an array, as a `PackedCopy` if ``packed`` can make one.

        Raises:
            OctantsMemoryError: memory for the copy could not be allocated.
        """
        try:
            made = None if packed is None else packed.make(memory, part)
            return memory.snapshot(part) if made is None else made
        except MemoryError:
            size = memory.nbytes(part)
            raise OutOfSnapshotMemory(memory.name, size, self.saved_bytes).at() from None

    def ended_by(self, memory: TapedMemory, region: ArrayRegion) -> Iterator[Content]:
        """The live contents that a write to a region would end."""
        self._register(memory)
        for other in self._neighbours[memory.key]:
            yield from self._live[other.key].overlapping(
                region if other.key == memory.key else None
            )

    def _register(self, memory: TapedMemory) -> None:
        """Find the registered arrays that overlap with an array, and register it."""
        self._resolve_for(memory)
        if memory.key in self._neighbours:
            return
        self._has_foreign |= memory.is_foreign
        neighbours = [memory]
        for key in self._near(memory):
            others = self._neighbours[key]
            if others[0].overlaps(memory):
                neighbours.append(others[0])
                others.append(memory)
        self._neighbours[memory.key] = neighbours
        self._live[memory.key] = LiveContents()
        if memory.is_field:
            self._fields.append(memory.key)
        else:
            start, end = memory.array.extent
            bisect.insort(self._spans, (start, end, len(self._spans), memory.key))
            self._longest = max(self._longest, end - start)

    def _near(self, memory: TapedMemory) -> list[Any]:
        """The keys of registered arrays that may overlap with another one; fields do not overlap
        with each other.
        """
        if memory.is_field and not self._spans:
            return []
        start, end = memory.array.extent
        first = bisect.bisect_left(self._spans, (start - self._longest,))
        last = bisect.bisect_left(self._spans, (end,))
        near = [key for _, _, _, key in self._spans[first:last]]
        return near if memory.is_field else [*near, *self._fields]

    def _check_digest(self, content: Content, reader: str) -> None:
        """Set the digest of a content, or raise an error if it has changed."""
        digest = content.memory.digest(content.region)
        if content.digest not in (None, digest):
            raise ChangedSinceLaunch(content.memory.name, reader).at()
        content.digest = digest

    # -- the backward pass ----------------------------------------------------------------------

    def restore(self, contents: Iterable[Content], reader: str = "") -> None:
        """Restore contents in memory, unless they are there."""
        if not self.saves:
            self._put_back_final()
        for content in contents:
            if self.saves:
                self._restore(content)
            if self._validates:
                self._check_digest(content, reader)

    def _restore(self, content: Content) -> None:
        """Restore a content, and before it the contents that it is based on, as far as needed."""
        chain: list[tuple[Content, ArrayRegion, bool]] = []
        each, region = content, content.region
        while (missing := self._missing(each, region)) is not _Missing.NOTHING:
            needs_rest = missing is _Missing.ALL
            chain.append((each, region, needs_rest and each.base is None))
            if not needs_rest or each.base is None:
                break
            each, region = each.base, each.left
        for each, region, puts_rest in reversed(chain):
            has_all = region == each.region
            self.note_change(each.memory, each.region, each if has_all else None)
            self._put(each, left=puts_rest)

    def _missing(self, content: Content, needed: ArrayRegion) -> _Missing:
        """The part of the needed region of a content that is not in its memory."""
        changed: list[ArrayRegion] = []
        for region, holder in reversed(self._changed.get(content.memory.key, ())):
            if holder is content:
                break
            if intersect(region, needed):
                changed.append(region)
        else:
            if changed or not content.live:
                return _Missing.ALL
            if content.is_intact():
                return _Missing.NOTHING
            return _Missing.ALL if content.memory.is_untracked else _Missing.PIECES
        if not changed:
            return _Missing.NOTHING
        has_all = all(map(content.has_pieces_of, changed))
        return _Missing.PIECES if has_all else _Missing.ALL

    def _put(self, content: Content, *, left: bool) -> None:
        """Copy the pieces of a content to its memory; with ``left``, the rest of it as well."""
        memory = content.memory
        observation = self.observation
        if left and content.left != ():
            if observation is not None:
                observation.put_final(memory, content.left)
            memory.restore_part(self._final[memory.key][1], content.left)
        for region, values in content.pieces:
            if observation is not None:
                observation.put(memory, values, region)
            memory.restore(values, region)

    def note_change(
        self, memory: TapedMemory, region: ArrayRegion = None, holder: Content | None = None
    ) -> None:
        """Note that a region is about to change, and keep the final contents of what overlaps.

        Args:
            memory: the array.
            region: the region; None for all of it.
            holder: the content that the region will hold, if it is known.
        """
        self._register(memory)
        for key in self._component(memory):
            if key not in self._final:
                neighbour = self._neighbours[key][0]
                if self.observation is not None:
                    self.observation.kept(neighbour)
                self._final[key] = neighbour, neighbour.snapshot()
        for neighbour in self._neighbours[memory.key]:
            own = neighbour.key == memory.key
            self._note(neighbour.key, region if own else None, holder if own else None)

    def _note(self, key: Any, region: ArrayRegion, holder: Content | None) -> None:
        entries = self._changed.setdefault(key, [])
        if region is None:
            entries.clear()
        elif holder is not None:
            entries[:] = [entry for entry in entries if not contains(region, entry[0])]
        elif len(entries) >= _MAX_CHANGES:
            entries[:] = [(None, None)]
        entries.append((region, holder))

    def note_change_if_known(
        self, memory: TapedMemory, region: ArrayRegion, *, by_host: bool
    ) -> None:
        """The same for a write of a custom gradient; unregistered arrays stay changed."""
        self._resolve_for(memory)
        if self._knows(memory):
            self.note_change(memory, region)
            self._live[memory.key].host_writes.count += by_host

    def knows(self, memory: TapedMemory) -> bool:
        """Whether an array may hold what is needed, or overlaps with one that may."""
        return memory.key in self._needed or self._knows(memory)

    def may_lose(self, memory: TapedMemory) -> bool:
        """Whether a write to an array may end something that is needed."""
        self._resolve_for(memory)
        return self.knows(memory)

    def _knows(self, memory: TapedMemory) -> bool:
        """Whether an array is registered, or overlaps with one that is."""
        known = self._neighbours.get
        if memory.key in self._neighbours:
            return True
        near = (found[0] for key in self._near(memory) if (found := known(key)))
        return any(each.overlaps(memory) for each in near)

    def _component(self, memory: TapedMemory) -> set[Any]:
        """The arrays that overlap with one, directly or through others."""
        if len(self._neighbours[memory.key]) == 1:
            return {memory.key}
        found, pending = {memory.key}, [memory.key]
        while pending:
            for other in self._neighbours[pending.pop()]:
                if other.key not in found:
                    found.add(other.key)
                    pending.append(other.key)
        return found

    def finish(self) -> None:
        """Restore the final contents of everything that was changed."""
        if self._final or self._changed:
            self._put_back_final()
            self._final.clear()
        self._deferred.clear()
        self._live.clear()
        self._neighbours.clear()

    def _put_back_final(self) -> None:
        for key, (memory, saved) in self._final.items():
            if key in self._changed:
                memory.restore(saved)
        self._changed.clear()


class _Forecast:
    """Simulates needs and writes.

    `due` are the copies that they require, with repetitions; `overwritten` are the arrays whose
    needed contents they overwrite.
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
        if memory.is_untracked:
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
                if not other.is_untracked:
                    self.due.append((other, needed))
