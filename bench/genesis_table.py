"""The table of Genesis' scenes in docs/genesis.md, made of what `genesis_scenes.py` has stored."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "genesis.md"
SYSTEMS = ("octants", "quadrants")
COLUMNS = {
    "build, cold": ("cold", "build"),
    "first, cold": ("cold", "first"),
    "build, warm": ("warm", "build"),
    "first, warm": ("warm", "first"),
    "again": ("warm", "step"),
}


def table(report: dict[str, Any]) -> str:
    """The processor times of all scenes that ran, and how far their numbers are apart."""
    lines = [
        f"| scene | system | {' | '.join(COLUMNS)} | numbers differ by |",
        f"|---|---|{'---|' * len(COLUMNS)}---|",
    ]
    for row in report["rows"]:
        for system in SYSTEMS:
            cells = [_cell(row, system, *column) for column in COLUMNS.values()]
            name, difference = row["scene"], _difference(row)
            if system != SYSTEMS[0]:
                name = difference = ""
            lines.append(f"| {name} | {system} | {' | '.join(cells)} | {difference} |")
    return "\n".join(lines)


def _cell(row: dict[str, Any], system: str, state: str, key: str) -> str:
    seconds = row.get(f"{system} {state}", {}).get("cpu_times", {}).get(key)
    if seconds is None:
        return "-"
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def _difference(row: dict[str, Any]) -> str:
    if row["errors"]:
        return "error"
    return f"{row['difference']:.0e}" + ("" if row["agrees"] else " (too much)")


def replace_table(report: dict[str, Any], path: Path) -> None:
    """Put the table between the markers of the page."""
    place = path.resolve().relative_to(ROOT)
    block = f"<!-- times -->\n{table(report)}\n\n([numbers](../{place}))\n<!-- end -->"
    text = PAGE.read_text()
    PAGE.write_text(re.sub(r"<!-- times -->.*<!-- end -->", lambda _: block, text, flags=re.DOTALL))
