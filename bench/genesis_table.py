"""The table of Genesis' scenes in docs/genesis.md, made of what `genesis_scenes.py` has stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "genesis.md"
SYSTEMS = ("octants", "quadrants")
KEYS = {
    "build, cold": ("cold", "build"),
    "first, cold": ("cold", "first"),
    "build, warm": ("warm", "build"),
    "first, warm": ("warm", "first"),
    "again": ("again",),
}
CLOCK = "cpu"


def seconds(times: dict[str, Any], system: str, path: tuple[str, ...]) -> float:
    """The processor time of a system in a row's times."""
    found = times[system]
    for key in path:
        found = found[key]
    return float(found[CLOCK])


def cell(value: float) -> str:
    """Seconds as text."""
    return f"{value:.3g} s" if value >= 1 else f"{1e3 * value:.3g} ms"


def times_table(rows: list[dict[str, Any]]) -> str:
    """The processor times of all scenes that were timed."""
    lines = [
        f"| scene | system | {' | '.join(KEYS)} |",
        f"|---|---|{'---|' * len(KEYS)}",
    ]
    for row in rows:
        if "times" in row:
            for system in SYSTEMS:
                cells = [cell(seconds(row["times"], system, path)) for path in KEYS.values()]
                name = "" if system == "quadrants" else row["scene"]
                lines.append(f"| {name} | {system} | {' | '.join(cells)} |")
    return "\n".join(lines)


def numbers_table(rows: list[dict[str, Any]]) -> str:
    """How far the numbers of each scene are from Quadrants'."""
    lines = ["| scene | differences | tolerance |", "|---|---|---|"]
    for row in rows:
        if row.get("error"):
            lines.append(f"| {row['scene']} | error | |")
        elif "numbers" in row:
            numbers = row["numbers"]
            apart = ", ".join(f"{key} {value:.0e}" for key, value in numbers["differences"].items())
            words = "" if numbers["agrees"] else " (too much)"
            lines.append(f"| {row['scene']} | {apart}{words} | {numbers['tolerance']:.0e} |")
    return "\n".join(lines)


def measured(rows: list[dict[str, Any]], part: str) -> str:
    """When and with what the rows of a table were measured, a sentence for each such group."""
    groups: dict[tuple[Any, ...], list[str]] = {}
    for row in rows:
        if part in row:
            stamp = row[part]["measured"]
            key = (
                stamp["started"][:10],
                stamp["commit"],
                stamp["machine"]["cpu"],
                stamp["cores"],
            )
            groups.setdefault(key, []).append(row["scene"])
    sentences = []
    for (date, commit, cpu, cores), scenes in groups.items():
        names = "" if len(groups) == 1 else f"{', '.join(scenes)}: "
        sentences.append(f"{names}{date}, commit {commit}, {cores} core(s) of {cpu}.")
    return " ".join(sentences)


def replace_table(rows: list[dict[str, Any]], path: Path) -> None:
    """Put the tables between their markers of the page."""
    place = path.resolve().relative_to(ROOT)
    text = PAGE.read_text()
    for part, table in (("times", times_table(rows)), ("numbers", numbers_table(rows))):
        found = f"{table}\n\nMeasured: {measured(rows, part)} ([all of it](../{place}))"
        if not any(part in row for row in rows):
            found = "Nothing has been measured since the scenes were last changed."
        block = f"<!-- {part} -->\n{found}\n<!-- end -->"
        before, marker, after = text.partition(f"<!-- {part} -->")
        assert marker, f"{PAGE} has no place for {part}"
        text = before + block + after.partition("<!-- end -->")[2]
    PAGE.write_text(text)
