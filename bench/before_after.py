"""Compare two checkouts of Octants: ``python bench/before_after.py BEFORE AFTER``.

Both run the same programs, those beside this file, in processes that take turns; only PYTHONPATH
differs. Numbers are seconds of the processes, the least of all rounds, so that a busy machine
disturbs them little. The bytecode instructions that Python executes (`bytecodes.py`) are exact on
any machine. The other rows are the import, a script to its first gradient, the compilation of long
programs and deep nests, that of examples and their gradients, launches on tapes, the workloads of
the benchmark pages, and the calls of tiny kernels.
A row beyond its bound is marked: 10 % for what is compiled or imported, 5 % for the rest. The table
goes to the screen and to bench/results.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import problems
from machine import describe_machine
from processes import Contender, Failed, first_gradient
from workers import outcome

HERE = Path(__file__).parent
EXAMPLES = ("billiard", "mpm", "seir", "sph")
COMPILED = (("loops", 6), ("while_loops", 6), ("straight", 1000), ("chain", 1000), ("layers", 2))
PARTS = ("bytecodes", "import", "start", "compile", "examples", "tapes", "rows", "launches")
SLOW, RUNS = 1.10, 1.05
"""How far the ratio of a row may go: of what is done once, and of what is repeated."""
LAUNCHES = 2_000
Found = dict[str, float]


class Version(Contender):
    """A checkout as a process of the benchmarks."""

    def __init__(self, label: str, root: Path, options: argparse.Namespace) -> None:
        super().__init__("octants", options)
        self.key = label
        self.source = str(root.resolve() / "src")

    def start(self) -> None:
        """Start a fresh process, which imports this checkout."""
        os.environ["PYTHONPATH"] = self.source
        super().start()

    def environment(self) -> dict[str, str]:
        """The environment of a script that imports this checkout."""
        return {**os.environ, "PYTHONPATH": self.source, "OMP_NUM_THREADS": "1"}


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path, help="the root of a checkout")
    parser.add_argument("after", type=Path, help="the root of another")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--arch", default="cpu", help="of the rows and launches")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="for repeated calls, each")
    parser.add_argument("--output", type=Path, default=HERE / "results", help="a folder")
    options = parser.parse_args()
    options.clock = "cpu" if options.arch == "cpu" else "wall"
    options.patience, options.verbose = 900.0, False
    options.peer_python = sys.executable
    versions = [Version(x, getattr(options, x), options) for x in ("before", "after")]
    lines = ["| what | before | after | ratio | |", "|---|---:|---:|---:|---|"]
    for part in options.parts:
        for name, bound, numbers in MEASURES[part](versions, options):
            lines.append(row(name, bound, numbers))
            print(lines[-1], flush=True)
    text = f"{' '.join(sys.argv)}\n\n{describe_machine()}\n\n" + "\n".join(lines) + "\n"
    path = options.output / f"before_after-{time.strftime('%Y-%m-%d-%H%M%S')}.md"
    path.write_text(text)


def row(name: str, bound: float, numbers: dict[str, float]) -> str:
    """A line of the table: of counts, which are whole, or of seconds."""
    before, after = numbers["before"], numbers["after"]
    ratio = after / max(before, 1e-12)
    mark = "slower" if ratio > bound else "faster" if ratio < 1 / bound else ""
    return f"| {name} | {seconds(before)} | {seconds(after)} | {ratio:.2f} | {mark} |"


def seconds(number: float) -> str:
    """Text with three digits; a count as it is."""
    if isinstance(number, int):
        return f"{number:,}"
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if number * scale >= 1:
            return f"{number * scale:.3g} {unit}"
    return f"{number * 1e9:.3g} ns"


Rows = list[tuple[str, float, dict[str, float]]]


def least(
    versions: list[Version], rounds: int, measure: Callable[[Version], Found]
) -> dict[str, dict[str, float]]:
    """For each number the least of each version, in rounds that take turns."""
    found: dict[str, dict[str, float]] = {}
    for number in range(rounds):
        for version in versions if number % 2 == 0 else reversed(versions):
            try:
                measured = measure(version)
            except Failed as failure:
                print(f"  {version.key}: {failure}", file=sys.stderr)
                continue
            for name, value in measured.items():
                best = found.setdefault(name, {})
                best[version.key] = min(value, best.get(version.key, value))
    return {name: best for name, best in found.items() if len(best) == len(versions)}


def bytecodes(versions: list[Version], _: argparse.Namespace) -> Rows:
    """The bytecode instructions of Python."""

    def measure(version: Version) -> Found:
        command = [sys.executable, str(HERE / "bytecodes.py")]
        done = subprocess.run(
            command, env=version.environment(), check=True, capture_output=True, text=True
        )
        found: Found = json.loads(done.stdout)
        return found

    best = least(versions, 1, measure)
    return [(f"bytecodes: {n}", RUNS if "warm" in n else SLOW, x) for n, x in best.items()]


def imports(versions: list[Version], options: argparse.Namespace) -> Rows:
    """The import, after that of numpy."""
    clock = "from time import process_time as now"
    code = f"import numpy\n{clock}\nt = now()\nimport octants\nprint(now() - t)"

    def measure(version: Version) -> Found:
        command = [sys.executable, "-c", code]
        done = subprocess.run(
            command, env=version.environment(), check=True, capture_output=True, text=True
        )
        return {"import, after numpy": float(done.stdout)}

    return [(n, SLOW, x) for n, x in least(versions, 4 * options.rounds, measure).items()]


def starts(versions: list[Version], options: argparse.Namespace) -> Rows:
    """A script to its first gradient, with nothing in the cache and then from the cache."""

    def measure(version: Version) -> Found:
        os.environ["PYTHONPATH"] = version.source
        with tempfile.TemporaryDirectory() as cache:
            cold, warm = (first_gradient(version, Path(cache)) for _ in range(2))
        return {"script to its first gradient": cold, "the same, from the cache": warm}

    return [(n, SLOW, x) for n, x in least(versions, options.rounds, measure).items()]


def compilations(versions: list[Version], options: argparse.Namespace) -> Rows:
    """The compilation of long programs and deep nests, and of their gradients."""
    rows: Rows = []
    for case, size in COMPILED:

        def measure(version: Version, case: str = case, size: int = size) -> Found:
            worker = [str(HERE / "compile_worker.py"), "octants", case, str(size), "lanes"]
            answer = answer_of(version, worker, options)
            return {f"{case} {size}: {way}": seconds for way, (_, seconds) in answer.items()}

        rows += [(n, SLOW, x) for n, x in least(versions, options.rounds, measure).items()]
    return rows


def tapes(versions: list[Version], options: argparse.Namespace) -> Rows:
    """Launches on a tape, and their gradient."""

    def measure(version: Version) -> Found:
        answer = answer_of(version, [str(HERE / "tapes.py")], options)
        return {
            f"64 steps on {kind}: {what}": seconds
            for kind, times in answer.items()
            for what, seconds in times.items()
        }

    return [(n, RUNS, x) for n, x in least(versions, options.rounds, measure).items()]


def answer_of(version: Version, script: list[str], options: argparse.Namespace) -> Any:
    """What a script prints as JSON."""
    done = subprocess.run(
        [sys.executable, *script],
        env=version.environment(),
        timeout=options.patience,
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise Failed(done.stderr.strip().splitlines()[-1])
    return json.loads(done.stdout.splitlines()[-1])


def examples(versions: list[Version], options: argparse.Namespace) -> Rows:
    """Compilation and repeated runs of examples, and of their gradients."""
    rows: Rows = []
    for name in EXAMPLES:

        def measure(version: Version, name: str = name) -> Found:
            command = [sys.executable, str(HERE / "examples.py"), name, "--worker", "octants"]
            command += ["--clock", "cpu", "--seconds", str(options.seconds)]
            found = outcome(command, options.patience, version.environment())
            if "error" in found:
                raise Failed(found["error"])
            return {
                f"{name}: compile": found["first"] - found["steady"],
                f"{name}: compile the gradient": found["first gradient"] - found["gradient"],
                f"{name}: run": found["steady"],
                f"{name}: gradient": found["gradient"],
            }

        best = least(versions, max(2, options.rounds // 2), measure)
        rows += [(n, SLOW if "compile" in n else RUNS, x) for n, x in best.items()]
    return rows


def workloads(versions: list[Version], options: argparse.Namespace) -> Rows:
    """The workloads of docs/benchmarks.md, on a CPU in the small sizes."""
    rows: Rows = []
    sizes = problems.QUICK if options.arch == "cpu" else problems.GPU
    for name, size in sizes.items():
        with tempfile.TemporaryDirectory() as folder:
            for version in versions:
                results = str(Path(folder) / version.key)
                version.ask("prepare", name=name, size=size, results=results)
            best = least(versions, 3 * options.rounds, lambda version: version.ask("run"))
        rows += [(f"{name}: {way}", RUNS, x) for way, x in best.items()]
    return rows


def launches(versions: list[Version], options: argparse.Namespace) -> Rows:
    """Calls of kernels that do next to nothing."""

    def measure(version: Version) -> Found:
        found: dict[str, Any] = version.ask("launches", count=LAUNCHES)
        return {f"launch: {name}": value for name, value in found.items()}

    return [(n, RUNS, x) for n, x in least(versions, 2 * options.rounds, measure).items()]


MEASURES = {
    "bytecodes": bytecodes,
    "import": imports,
    "start": starts,
    "compile": compilations,
    "examples": examples,
    "tapes": tapes,
    "rows": workloads,
    "launches": launches,
}


if __name__ == "__main__":
    main()
