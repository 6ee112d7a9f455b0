"""Makes code of the texts in a folder, in processes that a compiler may end.

    python -m tests.cross_compile.child gfx1100 LOG FILE...

Each process writes the name of what it is about to compile to its log, so that the last one there
is what ended it; the next process goes on behind that.
"""

from __future__ import annotations

import subprocess
import sys
import traceback
from dataclasses import dataclass, field
from pathlib import Path

_BATCH = 200
"""How many texts a process compiles: enough that its start does not count."""
_SECONDS = 600


@dataclass
class Outcome:
    """How many texts became code, how many kernels were refused, and what failed."""

    compiled: int = 0
    refused: int = 0
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.compiled} kernels, {self.refused} refused, {len(self.failures)} failed"


def compile_all(folder: Path, name: str) -> Outcome:
    """Compile all texts for a target."""
    place = folder / name
    found = Outcome(refused=len(list(place.glob("*.refused"))))
    for path in sorted(place.glob("*.failed")):
        found.failures.append(f"{_title(path)}\n{path.read_text()}")
    left = sorted(place.glob("*.text"))
    log = place / "log"
    while left:
        batch = left[:_BATCH]
        log.write_text("")
        command = [sys.executable, "-m", "tests.cross_compile.child", name, str(log)]
        try:
            ran = subprocess.run(
                [*command, *map(str, batch)], capture_output=True, text=True, timeout=_SECONDS
            )
            ending = f"ended with {ran.returncode}: {ran.stderr[-2000:]}"
        except subprocess.TimeoutExpired:
            ending = f"did not end within {_SECONDS} s"
        done = _read(log, found)
        if done < len(batch):  # the process ended in the middle of one
            found.failures.append(f"{_title(batch[done])}\nthe compiler {ending}")
            done += 1
        left = left[done:]
    return found


def _read(log: Path, found: Outcome) -> int:
    """Add what a process has done; gives how many texts that were."""
    parts = log.read_text().split("\0")[1:]
    for part in parts:
        if part:
            found.failures.append(part)
        else:
            found.compiled += 1
    return len(parts)


def _title(path: Path) -> str:
    test = path.with_suffix(".test")
    return f"{path} of {test.read_text() if test.exists() else 'an unknown test'}"


def main(name: str, log: str, *paths: str) -> None:
    """Compile files, and write of each one whether that went well."""
    from tests.cross_compile.targets import TARGETS

    finish = TARGETS[name].finish
    for path in map(Path, paths):
        try:
            finish(path.read_text())
            said = ""
        except Exception:
            said = f"{_title(path)}\n{traceback.format_exc()}"
        with Path(log).open("a") as file:
            file.write("\0" + said)


if __name__ == "__main__":
    main(*sys.argv[1:])
