"""Reports what a tape has copied: of which arrays, before which launches, and why."""

from __future__ import annotations

from collections.abc import Sequence

from octants.analysis.indices.index_ranges import LARGEST_INDEX, ArrayRegion
from octants.lazy_dataclass import dataclass

HOST = "a host write"
UNTRACKED = ""
HEADS = ("array", "copies", "bytes", "made before", "the last one", "because")


@dataclass(slots=True)
class SavedCopies:
    """Copies of one array that launches of one kernel required.

    `writer` is the kernel that was about to overwrite the contents, ``"a host write"``, or empty
    for an array of numpy or torch, which is copied when it is read. `reader` is the kernel whose
    reverse needs the copies. `copies` is their number, `nbytes` their total size, and `region` the
    elements in the last one: index ranges (inclusive, for each axis), or None for the
    whole array. If `array` is empty, the entry counts the logs of what atomics returned.
    """

    array: str
    writer: str
    reader: str
    region: ArrayRegion
    copies: int = 0
    nbytes: int = 0

    @property
    def why(self) -> str:
        """Why the copies are needed, in words."""
        if not self.array:
            return "its reverse run needs what atomics returned"
        if self.writer == UNTRACKED:
            return f"the reverse of `{self.reader}` reads it, and writes to it are untracked"
        if self.writer == self.reader:
            return "its own reverse run reads what it overwrites"
        return f"the reverse of `{self.reader}` reads it"

    def cells(self) -> tuple[str, ...]:
        """The row in the table of `TapeExplanation.text`."""
        writer = self.writer if self.writer in (HOST, UNTRACKED) else f"`{self.writer}`"
        counts = str(self.copies), str(self.nbytes)
        return self.array, *counts, writer, describe(self.region) if self.array else "", self.why


def describe(region: ArrayRegion) -> str:
    """A region in slice notation."""
    if region is None:
        return "[...]"
    return " ".join(f"[{', '.join(_slice(*interval) for interval in ranges)}]" for ranges in region)


def _slice(low: int, high: int) -> str:
    if low == high:
        return str(low)
    end = "" if high >= LARGEST_INDEX else str(high + 1)
    return f"{low or ''}:{end}"


@dataclass(frozen=True)
class TapeExplanation:
    """The copies of a tape so far: `saved`, the largest first; `launches` were recorded."""

    launches: int
    saved: tuple[SavedCopies, ...]

    @property
    def nbytes(self) -> int:
        """The bytes of all copies."""
        return sum(entry.nbytes for entry in self.saved)

    def text(self) -> str:
        """A table for the terminal."""
        copies = sum(entry.copies for entry in self.saved)
        head = f"{self.launches} launches; {copies} copies, {self.nbytes} bytes"
        table = [HEADS, *(entry.cells() for entry in self.saved)] if self.saved else []
        return "\n".join([head, *(_columns(table) if table else ())])

    def __str__(self) -> str:
        return self.text()


class Account:
    """The copies of a tape, grouped by array, writer and reader."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str, str], SavedCopies] = {}

    def note(self, array: str, writer: str, reader: str, region: ArrayRegion, nbytes: int) -> None:
        """Count a copy of a region, of so many bytes."""
        if not nbytes:
            return
        key = array, writer, reader
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = SavedCopies(array, writer, reader, region)
        entry.region = region
        entry.copies += 1
        entry.nbytes += nbytes

    def entries(self) -> tuple[SavedCopies, ...]:
        """All groups, the largest first."""
        return tuple(sorted(self._entries.values(), key=lambda entry: -entry.nbytes))


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table, with columns as wide as their longest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
