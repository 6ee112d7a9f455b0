"""What a tape has copied: of which arrays, for which launches, and why."""

from __future__ import annotations

from octants.analysis.index_ranges import FARTHEST, ArrayRegion
from octants.launch.text_table import columns
from octants.lazy_dataclass import dataclass

HOST = "a host write"
UNSEEN = ""
HEADS = ("array", "copies", "bytes", "made before", "the last one", "because")


@dataclass(slots=True)
class Saved:
    """Copies of one array that writes by launches of one kernel have cost.

    `writer` is the kernel that was about to overwrite what was copied, ``"a host write"``, or empty
    for an array of numpy or torch, which is copied when it is read. `reader` is the kernel whose
    reverse run needs the copies. `copies` says how many there are, `nbytes` what they take
    together, and `region` which elements the last one holds: boxes, by inclusive intervals of the
    indices of each axis; None is all of the array. Where `array` is empty, it is what atomics
    returned to the kernel.
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
        if self.writer == UNSEEN:
            return f"the reverse of `{self.reader}` reads it, and others may change it unseen"
        if self.writer == self.reader:
            return "its own reverse run reads what it overwrites"
        return f"the reverse of `{self.reader}` reads it"

    def cells(self) -> tuple[str, ...]:
        """Its row in the table."""
        writer = self.writer if self.writer in (HOST, UNSEEN) else f"`{self.writer}`"
        counts = str(self.copies), str(self.nbytes)
        return self.array, *counts, writer, describe(self.region) if self.array else "", self.why


def describe(region: ArrayRegion) -> str:
    """A region as slices."""
    if region is None:
        return "[...]"
    return " ".join(f"[{', '.join(_slice(*interval) for interval in box)}]" for box in region)


def _slice(low: int, high: int) -> str:
    if low == high:
        return str(low)
    end = "" if high >= FARTHEST else str(high + 1)
    return f"{low or ''}:{end}"


@dataclass(frozen=True)
class TapeExplanation:
    """What a tape has copied so far: `saved`, the largest first; `launches` were recorded."""

    launches: int
    saved: tuple[Saved, ...]

    @property
    def nbytes(self) -> int:
        """The bytes of all copies."""
        return sum(entry.nbytes for entry in self.saved)

    def text(self) -> str:
        """A table for the terminal."""
        copies = sum(entry.copies for entry in self.saved)
        head = f"{self.launches} launches; {copies} copies, {self.nbytes} bytes"
        table = [HEADS, *(entry.cells() for entry in self.saved)] if self.saved else []
        return "\n".join([head, *(columns(table) if table else ())])

    def __str__(self) -> str:
        return self.text()


class Account:
    """The copies of a tape, those of the same array, writer and reader together."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str, str], Saved] = {}

    def note(self, array: str, writer: str, reader: str, region: ArrayRegion, nbytes: int) -> None:
        """Note a copy."""
        if not nbytes:
            return
        key = array, writer, reader
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = Saved(array, writer, reader, region)
        entry.region = region
        entry.copies += 1
        entry.nbytes += nbytes

    def entries(self) -> tuple[Saved, ...]:
        """All of them, the largest first."""
        return tuple(sorted(self._entries.values(), key=lambda entry: -entry.nbytes))
