"""Times compilation: ``python bench/compile_time.py [CASE ...]``.

Each program is compiled in a process of its own, by Octants for single work items and in lanes, and
by Quadrants, Taichi and Warp where they are installed. A number is seconds of the processor until
the first launch has returned, less those of a second launch; Warp compiles both ways at once. The
table goes to the screen and to bench/results.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

from compile_cases import CASES, IN_WARP

HERE = Path(__file__).parent
SYSTEMS = (
    ("octants", "scalar"),
    ("octants", "lanes"),
    ("quadrants", "scalar"),
    ("taichi", "scalar"),
    ("warp", "scalar"),
)


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"some of {', '.join(CASES)} (all)")
    parser.add_argument("--peer-python", default=sys.executable, help="a Python with the others")
    parser.add_argument("--systems", nargs="+", default=[name for name, _ in SYSTEMS])
    parser.add_argument("--patience", type=float, default=60, help="seconds for one program")
    parser.add_argument("--largest", type=int, default=10_000, help="sizes up to this one")
    parser.add_argument("--output", type=Path, default=HERE / "results", help="a folder")
    options = parser.parse_args()
    systems = [each for each in SYSTEMS if each[0] in options.systems and has(each[0], options)]
    rows = []
    for case in options.cases or CASES:
        for size in CASES[case][1]:
            if size <= options.largest:
                rows.append([case, str(size), *measure(case, size, systems, options)])
                print(" | ".join(rows[-1]), flush=True)
    text = table(rows, systems)
    print(text)
    stamp = time.strftime("%Y-%m-%d-%H%M%S")
    (options.output / f"compile_time-{stamp}.md").write_text(text)


def python_of(system: str, options: argparse.Namespace) -> str:
    """The Python that has a system."""
    return sys.executable if system == "octants" else str(options.peer_python)


def has(system: str, options: argparse.Namespace) -> bool:
    """Whether a system is installed."""
    code = f"import importlib.util, sys; sys.exit(not importlib.util.find_spec({system!r}))"
    return not subprocess.run([python_of(system, options), "-c", code], check=False).returncode


def measure(
    case: str, size: int, systems: list[tuple[str, str]], options: argparse.Namespace
) -> list[str]:
    """Forward and backward of each system."""
    found = []
    for system, mode in systems:
        worker = [str(HERE / "compile_worker.py"), system, case, str(size), mode]
        if system == "warp" and case not in IN_WARP:
            found += ["-", "-"]
        else:
            found += run([python_of(system, options), *worker], options.patience)
    return found


def run(command: list[str], patience: float) -> list[str]:
    """The seconds of the processor for both directions, or why there are none."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=patience, check=False
        )
    except subprocess.TimeoutExpired:
        return [f"> {patience:.0f}"] * 2
    if done.returncode:
        return ["error"] * 2
    answer = json.loads(done.stdout)
    return [f"{answer[name][1]:.2f}" for name in ("forward", "backward")]


def table(rows: list[list[str]], systems: list[tuple[str, str]]) -> str:
    """The rows as Markdown."""
    names = [f"{system}, {mode}" for system, mode in systems]
    head = ["program", "size", *(f"{name}: {way}" for name in names for way in ("fwd", "bwd"))]
    lines = [head, ["---"] * len(head), *rows]
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    title = f"Seconds of the processor to compile; Python {platform.python_version()}, {machine}"
    return "\n".join([title, "", *("| " + " | ".join(line) + " |" for line in lines), ""])


if __name__ == "__main__":
    main()
