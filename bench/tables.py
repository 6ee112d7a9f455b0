"""The rows of the benchmark, as text, as Markdown and as JSON."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The options that bear on the numbers; the others are paths of one machine.
MEASURED_WITH = ("workloads", "long", "rounds", "threads", "patience")


@dataclass(frozen=True)
class Row:
    """One measure: a number, or why there is none, for each system; ratio = theirs / ours."""

    group: str
    measure: str
    unit: str
    octants: float | str | None
    quadrants: float | str | None
    ratio: tuple[float, float, float] | None  # least, median, greatest
    note: str = ""


def write_results(
    folder: Path, rows: list[Row], versions: dict[str, str], options: dict[str, Any]
) -> None:
    """Print the table, and store it as Markdown and as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    machine = describe_machine()
    text = markdown(rows, versions, machine, options)
    stem = time.strftime("%Y-%m-%d-%H%M%S")
    (folder / f"{stem}.md").write_text(text)
    data = {
        "machine": machine,
        "versions": versions,
        "options": {key: str(options[key]) for key in MEASURED_WITH},
        "rows": [dataclasses.asdict(row) for row in rows],
    }
    (folder / f"{stem}.json").write_text(json.dumps(data, indent=1) + "\n")
    print(text)
    print(f"stored as {folder / stem}.md and .json")


def describe_machine() -> dict[str, str]:
    """The date and what the program ran on."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cpu": models[0] if models else platform.processor(),
        "cores": str(os.cpu_count()),
        "load at the end": f"{os.getloadavg()[0]:.1f}",
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def markdown(
    rows: list[Row], versions: dict[str, str], machine: dict[str, str], options: dict[str, Any]
) -> str:
    """The table with what it was measured on, aligned, so that it reads well as text, too."""
    header = ["workload", "measure", "unit", "octants", "quadrants", "quadrants / octants", ""]
    cells = [header, *(_cells(row) for row in rows)]
    widths = [max(len(line[k]) for line in cells) for k in range(len(header))]
    lines = [_line(line, widths) for line in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    where = ", ".join(f"{key} {value}" for key, value in {**machine, **versions}.items())
    how = (
        f"{options['threads']} thread(s), f32, {options['rounds']} alternating rounds: medians; of"
        " the ratios also the range. A ratio above 1: Octants needs less."
    )
    return "\n".join([where, "", how, "", *lines, ""])


def _line(cells: list[str], widths: list[int]) -> str:
    numeric = (False, False, False, True, True, False, False)
    padded = (
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(cells, widths, numeric, strict=True)
    )
    return "| " + " | ".join(padded) + " |"


def _cells(row: Row) -> list[str]:
    ratio = ""
    if row.ratio is not None:
        low, middle, high = row.ratio
        ratio = f"{middle:.2f}" if low == high else f"{middle:.2f} ({low:.2f} to {high:.2f})"
    numbers = [_number(value) for value in (row.octants, row.quadrants)]
    return [row.group, row.measure, row.unit, *numbers, ratio, row.note]


def _number(value: float | str | None) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:.4g}"
