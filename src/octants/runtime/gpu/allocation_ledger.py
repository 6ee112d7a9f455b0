"""What a GPU has allocated, and how its errors list that."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

from octants.diagnostics.byte_counts import format_bytes
from octants.diagnostics.exceptions import OctantsError

_ROWS = 12


class Ledger(dict[int, tuple[int, str]]):
    """The bytes and the names of allocations, by their addresses."""

    __slots__ = ()

    @property
    def nbytes(self) -> int:
        """The bytes of all allocations."""
        return sum(nbytes for nbytes, _ in list(self.values()))

    def find(self, address: int) -> tuple[int, int] | None:
        """The beginning and the end of the allocation that has an address; None if none has."""
        for start, (nbytes, _) in list(self.items()):
            if start <= address < start + nbytes:
                return start, start + nbytes
        return None

    def table(self) -> list[str]:
        """The allocations, the most bytes first, a line for each name and size."""
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
        """The exception for memory that was refused, with the table."""
        diagnostic = dataclasses.replace(error.diagnostic(), notes=tuple(self.table()))
        refused: OctantsError = error.exception(diagnostic)
        return refused
