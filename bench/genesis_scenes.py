"""Scenes of Genesis on Octants and on Quadrants: the same numbers, and the times of both.

    python bench/genesis_scenes.py                     times and numbers of all scenes with times
    python bench/genesis_scenes.py --only boxes mpm    of some of them
    python bench/genesis_scenes.py --numbers           numbers alone, of all scenes
    python bench/genesis_scenes.py --docs              also into bench/results and docs/genesis.md

Nothing of Genesis is changed. A scene gives positions, contact counts or gradients, which have to
agree. For its times it runs in a process of each system with an empty cache, and then in one of
each with a warm cache; these two take turns at short runs of steps (or backward passes), of which
the shortest counts. Each row of the results says when it was measured, of which commit and on
which machine; a run that was interrupted goes on with the scenes that are missing.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import genesis_features  # noqa: F401
from genesis_programs import SCENES
from genesis_table import KEYS, SYSTEMS, cell, replace_table, seconds
from machine import describe_machine
from processes import with_bytecode

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results" / "genesis.json"
ROUND_SECONDS = 0.4
"""How long a run of steps takes, about; and no fewer steps than one."""


class Failed(Exception):
    """A scene did not run; the text says why."""


class Process:
    """A scene on a system, with the caches of both systems in a folder."""

    def __init__(self, name: str, system: str, cache: Path, patience: float) -> None:
        environment = with_bytecode()
        for prefix in ("OCTANTS_", "QD_"):
            environment[f"{prefix}OFFLINE_CACHE_FILE_PATH"] = str(cache / prefix.strip("_"))
        command = [sys.executable, str(Path(__file__).with_name("genesis_worker.py")), name, system]
        self.patience = patience
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )

    def answer(self) -> dict[str, Any]:
        """The next line that the process answers."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], self.patience)[0]:
            raise Failed(f"no answer within {self.patience:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            self.log.seek(0)
            raise Failed(f"ended with {self.process.wait()}: {self.log.read()[-2000:].strip()}")
        result: dict[str, Any] = json.loads(line)
        if "error" in result:
            raise Failed(result["error"])
        return result

    def repeat(self, count: int) -> dict[str, float]:
        """The mean time of ``count`` further steps."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self) -> None:
        """End the process; in its own way, since Quadrants keeps its kernels only then."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.log.close()


# -- numbers ---------------------------------------------------------------------------------------


def difference(key: str, ours: Any, theirs: Any) -> float:
    """The largest difference of two arrays.

    It is relative to numbers above 1, and for gradients to the largest element.
    """
    a, b = np.asarray(ours), np.asarray(theirs)
    if a.shape != b.shape or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return float("inf")
    scale: Any = np.maximum(1.0, np.abs(b))
    if key.startswith("gradient") and b.any():
        scale = np.max(np.abs(b))
    return float(np.max(np.abs(a - b) / scale, initial=0.0))


def compare(name: str, ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> dict[str, Any]:
    """How far the numbers of runs are from those of Quadrants' first run, by name."""
    reference, tolerance = theirs[0]["numbers"], SCENES[name].tolerance
    apart = {
        key: max(difference(key, run["numbers"][key], expected) for run in (*ours, *theirs[1:]))
        for key, expected in reference.items()
    }
    return {
        "tolerance": tolerance,
        "largest": {
            key: float(np.max(np.abs(np.asarray(value)), initial=0.0))
            for key, value in reference.items()
        },
        "differences": apart,
        "agrees": all(value <= tolerance for value in apart.values()),
    }


def measure_numbers(name: str, cache: Path, patience: float) -> dict[str, Any]:
    """Run a scene on both systems at the same time, and compare."""
    running = {}
    try:
        for system in SYSTEMS:
            running[system] = Process(name, system, cache, patience)
        found = {system: running[system].answer() for system in SYSTEMS}
    finally:
        for process in running.values():
            process.end()
    return {"numbers": compare(name, [found["octants"]], [found["quadrants"]])}


# -- times -----------------------------------------------------------------------------------------


def run_once(name: str, system: str, cache: Path, patience: float) -> dict[str, Any]:
    """A run with whatever the cache holds; its times and numbers."""
    process = Process(name, system, cache, patience)
    try:
        return process.answer()
    finally:
        process.end()


def take_turns(running: dict[str, Process], rounds: int) -> dict[str, Any]:
    """Time steps of both systems in turn; as many in each run, as many runs of each."""
    once = {system: process.repeat(1) for system, process in running.items()}
    slowest = max(times["wall"] for times in once.values())
    count = max(1, min(1000, int(ROUND_SECONDS / slowest)))
    turns: dict[str, Any] = {system: [] for system in running}
    for _ in range(rounds):
        for system, process in running.items():
            turns[system].append(process.repeat(count))
    return {"count": count, "turns": turns}


def least(runs: list[dict[str, float]]) -> dict[str, float]:
    """The shortest of runs, by each clock."""
    return {clock: min(run[clock] for run in runs) for clock in runs[0]}


def measure_times(name: str, rounds: int, patience: float) -> dict[str, Any]:
    """Run a scene on both systems with an empty and with a warm cache; times and numbers."""
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        cold = {system: run_once(name, system, cache, patience) for system in SYSTEMS}
        warm: dict[str, dict[str, Any]] = {}
        running: dict[str, Process] = {}
        try:
            for system in SYSTEMS:
                running[system] = Process(name, system, cache, patience)
                warm[system] = running[system].answer()
            again = take_turns(running, rounds)
        finally:
            for process in running.values():
                process.end()
    times: dict[str, Any] = {"steps in a turn": again["count"]}
    for system in SYSTEMS:
        times[system] = {
            "cold": cold[system]["times"],
            "warm": warm[system]["times"],
            "again": least(again["turns"][system]),
            "turns": again["turns"][system],
        }
    runs = {system: [cold[system], warm[system]] for system in SYSTEMS}
    return {"numbers": compare(name, runs["octants"], runs["quadrants"]), "times": times}


# -- results ---------------------------------------------------------------------------------------


def stamp(started: str, load: float) -> dict[str, Any]:
    """What a row was measured with."""
    machine = {key: value for key, value in describe_machine().items() if key != "date"}
    packages = ("genesis-world", "quadrants", "torch", "llvmlite", "numpy")
    return {
        "started": started,
        "commit": source_commit(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "load at the start": round(load, 1),
        "machine": machine,
        "packages": {name: package_version(name) for name in packages},
    }


def package_version(name: str) -> str:
    """The version of a package; "-" where it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "-"


def source_commit() -> str:
    """The last commit that changed Octants or the scenes; with a + where there are changes."""
    paths = ["src/octants", "bench/genesis_programs.py"]
    git = ["git", "-C", str(ROOT)]
    try:
        found = subprocess.run(
            [*git, "log", "-1", "--format=%h", "--", *paths],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--", *paths],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found + ("+" if changed else "")


def load_rows(path: Path) -> dict[str, dict[str, Any]]:
    """The rows that a file has, by scene."""
    if not path.exists():
        return {}
    return {row["scene"]: row for row in json.loads(path.read_text())["rows"]}


def store(path: Path, row: dict[str, Any]) -> list[dict[str, Any]]:
    """Store what was measured of a scene in place of what was stored of it; all rows."""
    rows = load_rows(path)
    rows[row["scene"]] = {**rows.get(row["scene"], {}), **row}
    ordered = [rows[name] for name in SCENES if name in rows]
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps({"rows": ordered}, indent=1) + "\n")
    partial.replace(path)
    return ordered


def is_measured(row: dict[str, Any] | None, key: str) -> bool:
    """Whether a row has been measured of this commit on a machine like this one, today."""
    if row is None or key not in row or row.get("error"):
        return False
    measured, now = row[key]["measured"], stamp("", 0.0)
    is_new = measured["started"][:10] == time.strftime("%Y-%m-%d")
    same = ("commit", "cores", "packages")
    return is_new and all(measured[name] == now[name] for name in same)


def line(row: dict[str, Any]) -> str:
    """A row as a line of text."""
    if row.get("error"):
        return f"{row['scene']:20} FAILED: {row['error'].strip().splitlines()[-1]}"
    numbers = row["numbers"]
    apart = ", ".join(f"{key} {value:.0e}" for key, value in numbers["differences"].items())
    words = "agrees " if numbers["agrees"] else "DIFFERS"
    cells = [f"{row['scene']:20}", words, f"{apart} (within {numbers['tolerance']:.0e})"]
    if "times" in row:
        for name, path in KEYS.items():
            ours, theirs = (seconds(row["times"], system, path) for system in SYSTEMS)
            slower = " SLOWER" if ours > theirs else ""
            cells.append(f"\n    {name:12} {cell(ours)} (Quadrants {cell(theirs)}){slower}")
    return "  ".join(cells)


def measure(name: str, given: argparse.Namespace, cache: Path) -> dict[str, Any]:
    """Measure a scene; a row, with what was measured or the error."""
    started, load = time.strftime("%Y-%m-%d %H:%M"), os.getloadavg()[0]
    try:
        if given.numbers:
            parts = measure_numbers(name, cache, given.patience)
        else:
            parts = measure_times(name, given.rounds, given.patience)
    except Failed as failure:
        return {"scene": name, "error": str(failure)}
    measured = stamp(started, load)
    return {
        "scene": name,
        "error": "",
        **{key: {"measured": measured, **part} for key, part in parts.items()},
    }


def parse() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="*", choices=SCENES, help="some scenes")
    parser.add_argument("--numbers", action="store_true", help="compare numbers alone")
    parser.add_argument("--rounds", type=int, default=8, help="runs of steps of each system")
    parser.add_argument("--patience", type=float, default=1800, help="seconds for an answer")
    parser.add_argument("--cache", type=Path, help="with --numbers: where to keep compiled kernels")
    parser.add_argument("--again", action="store_true", help="measure what is measured already")
    parser.add_argument("--output", type=Path, help="a file for the results")
    parser.add_argument("--docs", action="store_true", help="put them into docs/genesis.md")
    given = parser.parse_args()
    if given.docs and given.output is None:
        given.output = RESULTS
    if not given.only:
        given.only = [name for name in SCENES if given.numbers or SCENES[name].is_timed]
    return given


def main() -> int:
    """Compare scenes; 1 if some differ or fail."""
    given = parse()
    missing = [name for name in ("genesis", "quadrants") if not importlib.util.find_spec(name)]
    if missing:
        print(f"skipped: {', '.join(missing)} is not installed; `make test-genesis` installs all")
        return 0
    have = load_rows(given.output) if given.output and not given.again else {}
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        for name in given.only:
            if is_measured(have.get(name), "numbers" if given.numbers else "times"):
                print(f"{name:20} is measured already (--again measures it again)", flush=True)
                continue
            row = measure(name, given, given.cache or Path(folder))
            print(line(row), flush=True)
            if row["error"] or not row["numbers"]["agrees"]:
                failed.append(name)
            if given.output:
                rows = store(given.output, row)
                if given.docs:
                    replace_table(rows, given.output)
    if failed:
        print(f"differ or failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
