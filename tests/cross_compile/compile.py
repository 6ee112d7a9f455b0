"""Compiles the kernels that tests have recorded, for GPUs that are not at hand.

    python -m pytest -p tests.cross_compile.plugin --record-kernels=FOLDER tests
    python -m tests.cross_compile.compile FOLDER --for gfx942,gfx1100,metal

Each kernel is compiled by a process that may end: what ended it has failed, and another process
goes on behind it. A kernel that takes too long for a target is `SLOW`, which is printed and is no
failure. With ``--seconds`` what is not compiled in this time is left out. The order is another one
for each ``--turn``, so that such runs see other kernels each time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.cross_compile.child import COMPILED, FAILED, REFUSED, UNREADABLE
from tests.cross_compile.recorded_kernels import in_order, read
from tests.cross_compile.targets import TARGETS

_BATCH = 100
"""How many jobs a process has: enough that its start does not count."""
SLOW = "slow"
_MOST_SECONDS = 120  # for a kernel on a target
_SECONDS_OF_CHECK = 600  # for all texts of a process, at its end
_PERIOD = 0.1  # seconds between two looks at a process
_SHOWN, _MOST_SAID = 20, 3000  # failures with their text, and the characters of that

Job = tuple[str, str]
"""A target, and the path of a kernel."""


@dataclass
class Found:
    """What came of the jobs, by target; each failure is a text."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)
    left: int = 0

    def add(self, name: str, path: str, outcome: str, said: str) -> None:
        """Add what came of a job; a failure that is found later takes the place of a success."""
        self.counts[name, outcome] += 1
        if outcome == FAILED:
            self.failures.append(f"{name}: {path} of {read(Path(path)).test}\n{said}")
        elif outcome == SLOW:
            self.slow.append(f"{name}: {path} of {read(Path(path)).test}: {said}")

    def merge(self, other: Found) -> None:
        self.counts += other.counts
        self.failures += other.failures
        self.slow += other.slow
        self.left += other.left

    def line(self, name: str) -> str:
        """The numbers of a target."""
        counts = {each: self.counts[name, each] for each in (REFUSED, UNREADABLE, SLOW, FAILED)}
        others = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
        return f"{name}: {self.counts[name, COMPILED]} kernels compiled, {others}"


def compile_kernels(
    paths: Sequence[Path], names: Sequence[str], processes: int = 1, seconds: float = 0.0
) -> Found:
    """Compile kernels for targets, as many as there is time for; 0 is all the time there is."""
    jobs = [(name, str(path)) for path in paths for name in names]
    batches = [jobs[first : first + _BATCH] for first in range(0, len(jobs), _BATCH)]
    end = time.monotonic() + seconds if seconds else float("inf")
    total = Found()

    def run(batch: list[Job]) -> Found:
        return _compile(batch, end)

    with ThreadPoolExecutor(processes) as pool:
        for found in pool.map(run, batches):
            total.merge(found)
    return total


def _compile(jobs: list[Job], end: float) -> Found:
    """Compile in a process, and what is left when it ends in another one, until ``end``."""
    found = Found()
    while jobs and time.monotonic() < end:
        with tempfile.TemporaryDirectory(prefix="octants-cross-compile-") as folder:
            list_, log = Path(folder, "jobs"), Path(folder, "log")
            list_.write_text("".join(f"{name} {path}\n" for name, path in jobs))
            log.touch()
            ending = _run(list_, log, len(jobs), end)
            lines = [json.loads(line) for line in log.read_text().splitlines()]
        is_checked = len(lines) >= len(jobs)
        again = [line for line in lines if not is_checked and _is_to_be_checked(*line[::2])]
        for line in lines:
            if line not in again:
                found.add(*line)
        for name, _, outcome, _ in lines[len(jobs) :]:  # found when all had been compiled
            assert outcome == FAILED
            found.counts[name, COMPILED] -= 1
        if is_checked and ending:
            found.add(*jobs[-1], FAILED, f"the check of all texts {ending}")
        elif not is_checked and ending is not None:
            outcome = SLOW if ending == _TOO_LONG else FAILED
            found.add(*jobs[len(lines)], outcome, f"the compiler {ending}")
        rest = jobs[len(lines) + (ending is not None) :]
        jobs = [(name, path) for name, path, *_ in again] + rest
    found.left = len(jobs)
    return found


def _is_to_be_checked(name: str, outcome: str) -> bool:
    """Whether a process checks a text when it has compiled all others."""
    return outcome == COMPILED and TARGETS[name].check_all is not None


_TOO_LONG = f"did not end within {_MOST_SECONDS} s"


def _run(jobs: Path, log: Path, count: int, end: float) -> str | None:
    """Run a process; gives how it ended, "" if it ended well, and None if the time is over."""
    command = [sys.executable, "-m", "tests.cross_compile.child", str(jobs), str(log)]
    with tempfile.TemporaryFile("w+") as said:
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
        done, since = 0, time.monotonic()
        try:
            while child.poll() is None:
                time.sleep(_PERIOD)
                now, lines = time.monotonic(), log.read_bytes().count(b"\n")
                if lines != done:
                    done, since = lines, now
                if now >= end and done < count:
                    return None
                if now - since > (_MOST_SECONDS if done < count else _SECONDS_OF_CHECK):
                    return _TOO_LONG
        finally:
            child.kill()
            child.wait()
        said.seek(0)
        return f"ended with {child.returncode}: {said.read()[-2000:]}" if child.returncode else ""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--for", dest="names", required=True)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--turn", default="")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    names = given.names.split(",")
    begun, paths = time.monotonic(), in_order(given.folder, given.turn)
    if not paths:
        print(f"no kernels are in {given.folder}")
        return 1
    found = compile_kernels(paths, names, given.processes, given.seconds)
    for number, text in enumerate(found.failures):
        head, _, said = text.partition("\n")
        print(head, said[-_MOST_SAID:] if number < _SHOWN else "", sep="\n")
    for text in found.slow:
        print(text)
    print(f"{len(paths)} kernels were recorded; {time.monotonic() - begun:.0f} s")
    for name in names:
        print(found.line(name))
    if found.left:
        print(f"{found.left // len(names)} kernels were left out for want of time")
    return 1 if found.failures else 0


if __name__ == "__main__":
    sys.exit(main())
