"""Simulators with an axis for time, beside Quadrants and Taichi: ``python bench/time_indexed.py``.

A gradient through all steps, again and again, on one thread. Each system runs in processes of its
own, which take turns; a ratio is the median of those of the rounds. The time is that of the
processor, forward and backward, after the first gradient, which compiles. Losses and gradients are
compared. The table goes to the screen and to bench/results.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from machine import describe_machine
from simulators import SIMULATORS
from workers import outcome, report

HERE = Path(__file__).parent
SYSTEMS = ("octants", "quadrants", "taichi")
HEADER = (
    "",
    "system",
    "first gradient / s",
    "a gradient / ms",
    "us a launch",
    "ratio",
    "copied / bytes",
    "largest difference",
)


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=680)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=4, help="gradients in a process")
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=SYSTEMS)
    parser.add_argument("--simulators", nargs="+", default=list(SIMULATORS), choices=SIMULATORS)
    parser.add_argument("--output", type=Path, default=HERE / "results", help="a folder")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        report(measure(options.worker, options.simulators[0], options))
        return
    text = table(options)
    print(text)
    stamp = time.strftime("%Y-%m-%d-%H%M%S")
    (options.output / f"time_indexed-{stamp}.md").write_text(text)


def measure(system: str, name: str, options: argparse.Namespace) -> dict[str, Any]:
    """The times of some gradients in this process, and what came out."""
    qd = importlib.import_module(system)
    qd.init(arch=qd.cpu, cpu_max_num_threads=1, offline_cache=False, log_level="error")
    run, results = SIMULATORS[name](qd, options.steps)
    times, tape = [], None
    for _ in range(1 + options.repeats):
        begin = time.process_time()
        tape = run()
        qd.sync()
        times.append(time.process_time() - begin)
    return {
        "first": times[0],
        "time": min(times[1:]),
        "copied": getattr(tape, "snapshot_bytes", None),
        "results": [float(number) for number in results()],
    }


def in_process(system: str, name: str, options: argparse.Namespace) -> dict[str, Any]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--worker", system, "--simulators", name]
    command += ["--steps", str(options.steps), "--repeats", str(options.repeats)]
    return outcome(command)


def table(options: argparse.Namespace) -> str:
    """The measurements as text."""
    systems = [name for name in options.systems if importlib.util.find_spec(name) is not None]
    lines = [HEADER, ("---",) * len(HEADER)]
    for name in options.simulators:
        rounds: dict[str, list[dict[str, Any]]] = {system: [] for system in systems}
        for _ in range(options.rounds):
            for system in systems:
                rounds[system].append(in_process(system, name, options))
        lines += [row(name, system, rounds, options.steps) for system in systems]
    machine = "; ".join(f"{key}: {value}" for key, value in describe_machine().items())
    title = f"{options.steps} steps, one thread, {options.rounds} rounds: medians; {machine}"
    return "\n".join([title, "", *("| " + " | ".join(line) + " |" for line in lines), ""])


LAUNCHES = {"robot": 5, "material points": 3, "billiards": 2}


def row(
    name: str, system: str, rounds: dict[str, list[dict[str, Any]]], steps: int
) -> tuple[str, ...]:
    """What a system needed for a simulator, beside the first system."""
    found, baseline = rounds[system], next(iter(rounds.values()))
    failed = next((one["error"] for one in found if "error" in one), None)
    if failed is not None:
        return name, system, failed, "", "", "", "", ""
    seconds = statistics.median(one["time"] for one in found)
    ratios = [
        one["time"] / other["time"]
        for one, other in zip(found, baseline, strict=True)
        if "error" not in other
    ]
    expected, results = (np.array(each[0].get("results", [])) for each in (baseline, found))
    apart = "-"
    if expected.shape == results.shape:
        apart = f"{np.abs(expected - results).max() / np.abs(expected).max():.1e}"
    copied = found[0]["copied"]
    return (
        name,
        system,
        f"{statistics.median(one['first'] for one in found):.1f}",
        f"{seconds * 1e3:.0f}",
        f"{seconds * 1e6 / (2 * steps * LAUNCHES[name]):.1f}",
        f"{statistics.median(ratios):.2f}" if ratios else "-",
        "-" if copied is None else str(copied),
        apart,
    )


if __name__ == "__main__":
    main()
