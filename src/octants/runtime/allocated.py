"""What a device has allocated, as its errors tell it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from octants.diagnostics.quantities import format_bytes

_ROWS = 12


def table(pieces: Iterable[tuple[int, str]]) -> list[str]:
    """The bytes and names of pieces, the most first, a line for each name and size."""
    counts: Counter[tuple[str, str]] = Counter()
    sums: Counter[tuple[str, str]] = Counter()
    for nbytes, what in pieces:
        row = format_bytes(nbytes), what or "an allocation"
        counts[row] += 1
        sums[row] += nbytes
    lines = []
    for row, _ in sums.most_common(_ROWS):
        times = f"{counts[row]} times " if counts[row] > 1 else ""
        lines.append(f"{times}{row[0]}: {row[1]}")
    rest = sum(nbytes for _, nbytes in sums.most_common()[_ROWS:])
    return [*lines, f"{format_bytes(rest)}: others"] if rest else lines
