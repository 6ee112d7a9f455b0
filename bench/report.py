"""What `run.py` and `gpu.py` found, as JSON and as a page: ``python bench/report.py RESULT.json``.

The page is made of the stored numbers and nothing else, so that it can be made again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any

import gpu_page
from machine import describe_machine
from page import page
from rows import Row

REPOSITORY = Path(__file__).parent.parent
PAGE = REPOSITORY / "docs" / "benchmarks.md"
GPU_PAGE = REPOSITORY / "docs" / "gpu_benchmarks.md"
PICTURE = REPOSITORY / "docs" / "images" / "benchmarks.svg"
# The options that bear on the numbers; the others are paths of one machine.
MEASURED_WITH = ("arch", "parts", "quick", "rounds", "threads", "patience", "clock")


def write(
    options: argparse.Namespace,
    about: dict[str, dict[str, str]],
    rows: list[Row],
    checks: dict[str, dict[str, Any]],
    gpu: dict[str, str] | None = None,
) -> None:
    """Store the results, print them and, if asked to, renew the page of the documentation."""
    data = {
        "machine": describe_machine() | (gpu or {}),
        "options": {key: getattr(options, key) for key in MEASURED_WITH if key in options},
        "systems": about,
        "checks": checks,
        "rows": [dataclasses.asdict(row) for row in rows],
    }
    options.output.mkdir(parents=True, exist_ok=True)
    prefix = "gpu-" if gpu else ""
    path = options.output / f"{prefix}{time.strftime('%Y-%m-%d-%H%M%S')}.json"
    path.write_text(json.dumps(data, indent=1) + "\n")
    print(gpu_page.page(data, path.name) if gpu else page(data, path.name))
    print(f"stored as {path}")
    if options.docs:
        publish(path)


def publish(path: Path) -> None:
    """Write the page and its picture anew from stored results."""
    data = json.loads(path.read_text())
    if "gpu" in data["machine"]:
        GPU_PAGE.write_text(gpu_page.page(data, path.name))
        print(f"written: {GPU_PAGE}")
        return
    PAGE.write_text(page(data, path.name))
    try:
        import plots
    except ImportError:
        print("no picture: matplotlib is not installed (pip install 'octants[bench]')")
        return
    plots.draw(data, PICTURE)
    print(f"written: {PAGE} and {PICTURE}")


if __name__ == "__main__":
    publish(Path(sys.argv[1]))
