"""Times Octants against Quadrants, side by side: ``python bench/run.py``, or ``make bench``.

Each system runs in a process of its own; rounds alternate between them, and a ratio is the median
of the ratios of the rounds. The table goes to the screen and to bench/results.
"""

from __future__ import annotations

import argparse
import json
import select
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tables import Row, write_results

HERE = Path(__file__).parent
NAMES = ("recurrence", "affine", "ode", "rotation", "ragged", "pairwise")
# (items, steps) of runs that take seconds, and of long ones.
SIZES = {
    "recurrence": ((20_000, 256), (100_000, 256)),
    "affine": ((20_000, 256), (100_000, 256)),
    "ode": ((2_000, 256), (10_000, 256)),
    "rotation": ((1_000, 100), (10_000, 256)),
    "ragged": ((5_000, 32), (10_000, 32)),
    "pairwise": ((1_024, 1), (4_096, 1)),
}
# How long a loop the tape is measured on: long enough to be seen in the size of the process.
TAPE_STEPS = {
    "recurrence": 4_000_000,
    "affine": 4_000_000,
    "ode": 100_000,
    "rotation": 100_000,
}


class Failed(Exception):
    """A system could not do what it was asked for; the text says why."""


class System:
    """A worker process, started anew when it has failed."""

    def __init__(self, name: str, python: str, options: argparse.Namespace) -> None:
        self.name = name
        self.python = python
        self.options = options
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start a fresh process."""
        self.stop()
        command = [self.python, str(HERE / "worker.py"), self.name, str(self.options.threads)]
        errors = None if self.options.verbose else subprocess.DEVNULL
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True)
        self._answer()

    def stop(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
        self.process = None

    def ask(self, command: str, **arguments: Any) -> Any:
        """The result of a command; `Failed` if there is none in time."""
        if self.process is None or self.process.stdin is None:
            raise Failed("not running")
        self.process.stdin.write(json.dumps([command, arguments]) + "\n")
        self.process.stdin.flush()
        answer = self._answer()
        if "error" in answer:
            raise Failed(answer["error"])
        return answer["result"]

    def _answer(self) -> dict[str, Any]:
        assert self.process is not None
        assert self.process.stdout is not None
        patience = self.options.patience
        if not select.select([self.process.stdout], [], [], patience)[0]:
            self.stop()
            raise Failed(f"nothing in {patience} s")
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            self.process = None
            raise Failed(f"process ended with {code}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def main() -> None:
    """Run what the command line asks for."""
    options = parse_arguments()
    systems = [System("octants", sys.executable, options)]
    peer = System("quadrants", options.peer_python, options)
    if can_import(peer):
        systems.append(peer)
    else:
        print("Quadrants is not installed (pip install 'octants[bench]'): our times only")
    rows = import_rows(systems)
    rows += launch_rows(systems, options)
    for name in options.workloads:
        print(f"  {name} ...", flush=True)
        rows += workload_rows(name, systems, options)
    write_results(options.output, rows, versions(systems), vars(options))


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*", help=f"some of {', '.join(NAMES)} (all)")
    parser.add_argument("--long", action="store_true", help="the large sizes")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--patience", type=float, default=90.0, help="seconds to wait for a result")
    parser.add_argument("--peer-python", default=sys.executable, help="a Python with Quadrants")
    parser.add_argument("--output", type=Path, default=HERE / "results", help="a folder")
    parser.add_argument("--verbose", action="store_true", help="show what the systems print")
    options = parser.parse_args()
    unknown = sorted(set(options.workloads) - set(NAMES))
    if unknown:
        parser.error(f"no workload {', '.join(unknown)}; there are {', '.join(NAMES)}")
    options.workloads = options.workloads or list(NAMES)
    return options


def can_import(system: System) -> bool:
    """Whether the package of a system is there."""
    code = f"import importlib.util, sys; sys.exit(not importlib.util.find_spec({system.name!r}))"
    return subprocess.run([system.python, "-c", code], check=False).returncode == 0


def alternate(
    systems: list[System], rounds: int, measure: Callable[[System], dict[str, float]]
) -> tuple[dict[str, dict[str, list[float]]], dict[str, str]]:
    """Per system and measure the numbers of all rounds; and the words of those that failed."""
    numbers: dict[str, dict[str, list[float]]] = {system.name: {} for system in systems}
    failures: dict[str, str] = {}
    for _ in range(rounds):
        for system in systems:
            if system.name in failures:
                continue
            try:
                for key, value in measure(system).items():
                    numbers[system.name].setdefault(key, []).append(value)
            except Failed as failure:
                failures[system.name] = str(failure)
    return numbers, failures


def make_rows(
    group: str,
    systems: list[System],
    rounds: int,
    measure: Callable[[System], dict[str, float]],
    keys: dict[str, tuple[str, float]],
    note: str = "",
) -> list[Row]:
    """A row per key: ``keys`` gives the unit and what to multiply the numbers with.

    The note belongs to the last key.
    """
    numbers, failures = alternate(systems, rounds, measure)
    rows = []
    for key, (unit, scale) in keys.items():
        ours, theirs = (numbers.get(name, {}).get(key, []) for name in ("octants", "quadrants"))
        ratios = [theirs[k] / ours[k] for k in range(min(len(ours), len(theirs))) if ours[k]]
        rows.append(
            Row(
                group,
                key,
                unit,
                *(
                    statistics.median(values) * scale if values else failures.get(name)
                    for name, values in (("octants", ours), ("quadrants", theirs))
                ),
                (min(ratios), statistics.median(ratios), max(ratios)) if ratios else None,
                note if key == list(keys)[-1] else "",
            )
        )
    return rows


def import_rows(systems: list[System]) -> list[Row]:
    """The time of ``import``, without numpy's."""

    def measure(system: System) -> dict[str, float]:
        code = (
            "import time, numpy; start = time.perf_counter()\n"
            f"import {system.name}\n"
            "import sys; print(time.perf_counter() - start, file=sys.stderr)"
        )
        command = [system.python, "-c", code]
        output = subprocess.run(command, capture_output=True, text=True, check=False)
        if output.returncode:
            raise Failed("cannot be imported")
        return {"import, beyond numpy": float(output.stderr.split()[-1])}

    keys = {"import, beyond numpy": ("ms", 1e3)}
    return make_rows("start", systems, 5, measure, keys)


LAUNCHES = (
    "kernel of a field",
    "kernel of 4 ndarrays and a scalar",
    "Tape step: clear, forward, backward",
)


def launch_rows(systems: list[System], options: argparse.Namespace) -> list[Row]:
    """The time of a call of a kernel that does next to nothing."""
    restart(systems)
    keys = dict.fromkeys(LAUNCHES, ("us", 1e6))
    return make_rows(
        "launch", systems, options.rounds, lambda system: system.ask("launches", count=500), keys
    )


def restart(systems: list[System]) -> None:
    """Fresh processes; one that does not start fails at its first question."""
    for system in systems:
        try:
            system.start()
        except Failed as failure:
            print(f"  {system.name} does not start: {failure}")


def workload_rows(name: str, systems: list[System], options: argparse.Namespace) -> list[Row]:
    """Run times, compile times and tape of a workload, in fresh processes."""
    size = SIZES[name][1 if options.long else 0]
    group = f"{name}, {size[0]} x {size[1]}"
    growth: dict[str, float] = {}
    errors: dict[str, float] = {}
    restart(systems)
    with tempfile.TemporaryDirectory() as folder:

        def prepare(system: System) -> dict[str, float]:
            path = str(Path(folder) / f"{system.name}.npy")
            prepared: dict[str, float] = system.ask("prepare", name=name, size=size, gradient=path)
            growth[system.name] = prepared.pop("growth")
            errors[system.name] = prepared.pop("error")
            return prepared

        compiling = {"compile forward": ("ms", 1e3), "compile backward": ("ms", 1e3)}
        once = make_rows(group, systems, 1, prepare, compiling)
        note = compare_gradients(Path(folder), errors)
    running = {"forward": ("ms", 1e3), "backward": ("ms", 1e3)}
    rows = make_rows(
        group, systems, options.rounds, lambda system: system.ask("run"), running, note
    )
    return rows + once + (tape_rows(name, group, systems, growth) if name in TAPE_STEPS else [])


def tape_rows(name: str, group: str, systems: list[System], growth: dict[str, float]) -> list[Row]:
    """The bytes per step of the tape, from the growth of a process over one long loop.

    ``growth`` is that of a process with a short loop, which has compiled the same.
    """
    steps = TAPE_STEPS[name]

    def measure(system: System) -> dict[str, float]:
        if system.name not in growth:
            raise Failed("not running")
        grown = float(system.ask("grow", name=name, steps=steps))
        return {"tape": max(0.0, grown - growth[system.name]) / steps}

    restart(systems)
    note = f"growth of the process, one item of {steps} steps"
    return make_rows(group, systems, 1, measure, {"tape": ("B/step", 1.0)}, note)


def compare_gradients(folder: Path, errors: dict[str, float]) -> str:
    """How far the gradients are apart; if they are, how far each is from a difference quotient."""
    paths = [folder / f"{name}.npy" for name in ("octants", "quadrants")]
    if not all(path.exists() for path in paths):
        return ""
    ours, theirs = (np.load(path).astype(np.float64) for path in paths)
    scale = max(float(np.abs(ours).max()), float(np.abs(theirs).max()), 1e-30)
    difference = float(np.abs(ours - theirs).max()) / scale
    if difference < 1e-3:
        return f"gradients agree to {difference:.0e}"
    off = ", ".join(f"{name} by {error:.0e}" for name, error in errors.items())
    return f"gradients differ; off a difference quotient: {off}"


def versions(systems: list[System]) -> dict[str, str]:
    """The version of each system that answers."""
    result = {}
    restart(systems)
    for system in systems:
        try:
            result[system.name] = system.ask("version")
        except Failed as failure:
            result[system.name] = str(failure)
        system.stop()
    return result


if __name__ == "__main__":
    main()
