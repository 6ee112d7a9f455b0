"""Records the allocations of a GPU, so that errors about memory can list them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

from octants.diagnostics.byte_counts import format_bytes
from octants.diagnostics.exceptions import OctantsError

_ROWS = 12


class Ledger(dict[int, tuple[int, str]]):
    """The live allocations by address: their sizes in bytes and their names."""

    __slots__ = ()

    @property
    def nbytes(self) -> int:
        """The total size of all allocations, in bytes."""
        return sum(nbytes for nbytes, _ in list(self.values()))

    def find(self, address: int) -> tuple[int, int] | None:
        """Find the allocation that contains an address.

        Returns:
            Its first address and the one past its last; None if no allocation contains the address.
        """
        for start, (nbytes, _) in list(self.items()):
            if start <= address < start + nbytes:
                return start, start + nbytes
        return None

    def table(self) -> list[str]:
        """The allocations as lines of text, largest total first; equal names and sizes share a
        line.
        """
        counts: Counter[tuple[str, str]] = Counter()
        sums: Counter[tuple[str, str]] = Counter()
        for nbytes, what in list(self.values()):
            row = format_bytes(nbytes), what or "an allocation"
            counts[row] += 1
            sums[row] += nbytes
        lines = []
        for row, _ in sums.most_common(_ROWS):
            times = f"{counts[row]} times " if counts[row] > 1 else ""
            lines.append(f"{times}{row[0]}: {row[1]}")
        rest = sum(nbytes for _, nbytes in sums.most_common()[_ROWS:])
        return [*lines, f"{format_bytes(rest)}: others"] if rest else lines

    def refusal(self, error: Any) -> OctantsError:
        """The exception for an allocation that failed, with the table of allocations as notes."""
        diagnostic = dataclasses.replace(error.diagnostic(), notes=tuple(self.table()))
        refused: OctantsError = error.exception(diagnostic)
        return refused
