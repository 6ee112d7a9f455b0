"""Times Octants beside other systems and C: ``python bench/run.py``, or ``make bench``.

Each system runs in a process of its own; rounds alternate between them, and a ratio is the median
of the ratios of the rounds. Results are compared before anything is timed. A system that is not
installed is left out, and named. The table goes to the screen and, as JSON, to bench/results; with
``--docs`` also to docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import problems
import report
from checks import compare
from processes import (
    HERE,
    Contender,
    Failed,
    alternate,
    first_gradient,
    is_installed,
    with_bytecode,
)
from rows import Row, make_rows
from systems import ON_CPUS, REFERENCE, SYSTEMS

# How long a loop the tape is measured on: long enough to be seen in the size of the process.
TAPE_STEPS = {
    "recurrence": 4_000_000,
    "affine": 4_000_000,
    "ode": 100_000,
    "rotation": 100_000,
}
# The systems of which the tape is measured, and those that run on several threads as well.
TAPED, THREADED = ("octants", "quadrants"), ("octants", "c-simd")
LAUNCHES = ("one array", "4 arrays and a scalar", "gradient step")
PARTS = ("start", "launch", "chain")
CLOCKS = "cpu: the time of the processes, for a busy machine and one thread"


def main() -> None:
    """Run what the command line asks for."""
    options = parse_arguments()
    about = {name: {"status": "not installed"} for name in options.systems}
    contenders = [Contender(n, options) for n in options.systems if is_installed(n, options)]
    contenders = [one for one in contenders if starts(one, about)]
    if not contenders or contenders[0].name != "octants":
        sys.exit("Octants itself does not start: see --verbose")
    rows, checks = measure_all(contenders, options)
    for contender in contenders:
        contender.stop()
    report.write(options, about, rows, checks)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    choices = (*problems.NAMES, *PARTS)
    parser.add_argument("parts", nargs="*", help=f"some of {', '.join(choices)} (all)")
    parser.add_argument("--quick", action="store_true", help="small sizes, about a minute")
    parser.add_argument("--systems", nargs="+", default=list(ON_CPUS), choices=ON_CPUS)
    parser.add_argument("--rounds", type=int, help="7, or 2 with --quick")
    parser.add_argument("--threads", type=int, default=2, help="for the rows of several threads")
    parser.add_argument("--patience", type=float, help="seconds to wait for a result: 40, or 8")
    parser.add_argument("--peer-python", default=sys.executable, help="a Python with the others")
    parser.add_argument("--output", type=Path, default=HERE / "results", help="a folder")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help=CLOCKS)
    parser.add_argument("--docs", action="store_true", help="write docs/benchmarks.md anew")
    parser.add_argument("--verbose", action="store_true", help="show what the systems print")
    options = parser.parse_args()
    unknown = sorted(set(options.parts) - set(choices))
    if unknown:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(choices)}")
    options.arch = "cpu"
    options.parts = options.parts or list(choices)
    options.systems = ["octants", *(name for name in options.systems if name != "octants")]
    options.rounds = options.rounds or (2 if options.quick else 7)
    options.patience = options.patience or (8.0 if options.quick else 40.0)
    return options


def starts(contender: Contender, about: dict[str, dict[str, str]]) -> bool:
    """Whether a system comes up; what it says of itself goes to ``about``."""
    try:
        about[contender.name] = contender.ask("describe")
    except Failed as failure:
        about[contender.name] = {"status": str(failure)}
        return False
    return True


def measure_all(
    contenders: list[Contender], options: argparse.Namespace
) -> tuple[list[Row], dict[str, dict[str, Any]]]:
    """All rows, and for each workload how far results are off."""
    rows: list[Row] = []
    checks: dict[str, dict[str, Any]] = {}
    several = [
        Contender(one.name, options, options.threads)
        for one in contenders
        if one.name in THREADED
        and options.threads > 1
        and not options.quick
        and options.clock == "wall"
    ]
    for part, measure in (("start", start_rows), ("launch", launch_rows), ("chain", chain_rows)):
        if part in options.parts:
            print(f"  {part} ...", flush=True)
            rows += measure(contenders, options)
    for name in (name for name in problems.NAMES if name in options.parts):
        print(f"  {name} ...", flush=True)
        found, checks[name] = workload_rows(name, contenders + several, options)
        rows += found
        if name in TAPE_STEPS and not options.quick:
            rows += tape_rows(name, contenders)
    for contender in several:
        contender.stop()
    return rows, checks


def start_rows(contenders: list[Contender], options: argparse.Namespace) -> list[Row]:
    """The time of ``import``, without numpy's, and of a script to its first gradient."""
    installed = [one for one in contenders if not one.name.startswith("c-")]

    def importing(contender: Contender) -> dict[str, float]:
        return {"import, beyond numpy": import_seconds(contender, options.clock)}

    def program(contender: Contender) -> dict[str, float]:
        if contender.name == "numba":
            raise Failed("no gradients")
        with tempfile.TemporaryDirectory() as cache:
            cold, warm = (first_gradient(contender, Path(cache)) for _ in range(2))
        return {"first gradient, cold": cold, "first gradient, warm cache": warm}

    rounds = 1 if options.quick else 5
    milliseconds = dict.fromkeys(
        ("first gradient, cold", "first gradient, warm cache"), ("ms", 1e3)
    )
    rows = make_rows(
        "start", "start", installed, rounds, importing, {"import, beyond numpy": ("ms", 1e3)}
    )
    return rows + make_rows("start", "start", installed, rounds, program, milliseconds)


def import_seconds(contender: Contender, clock: str) -> float:
    """The seconds that a system's import takes after numpy's."""
    package = SYSTEMS[contender.name].package
    function = {"wall": "perf_counter", "cpu": "process_time"}[clock]
    code = (
        f"import numpy\nfrom time import {function} as now\nstart = now()\n"
        f"import {package}\n"
        "import sys; print(now() - start, file=sys.stderr)"
    )
    command = [contender.python, "-c", code]
    for _ in range(2):  # the first one leaves bytecode, where there is none
        output = subprocess.run(
            command, env=with_bytecode(), capture_output=True, text=True, check=False
        )
    if output.returncode:
        raise Failed("cannot be imported")
    return float(output.stderr.split()[-1])


def launch_rows(contenders: list[Contender], options: argparse.Namespace) -> list[Row]:
    """The time of a call of a kernel that does next to nothing."""
    units = dict.fromkeys(LAUNCHES, ("us", 1e6))
    count = 200 if options.quick else 2000

    def measure(contender: Contender) -> dict[str, float]:
        result: dict[str, float] = contender.ask("launches", count=count)
        return result

    return make_rows("launch", "warm call", contenders, options.rounds, measure, units)


def chain_rows(contenders: list[Contender], options: argparse.Namespace) -> list[Row]:
    """The time to compile a chain of statements in a dynamic loop; who fails is asked no more."""
    rows: list[Row] = []
    left = [one for one in contenders if not one.name.startswith("c-") and one.name != "numba"]
    for contender in left:
        with contextlib.suppress(Failed):
            contender.ask("chain", statements=4)  # what a process does once is not counted
    for statements in (10, 50) if options.quick else (50, 100, 200, 1000):

        def measure(contender: Contender, statements: int = statements) -> dict[str, float]:
            seconds: dict[str, float] = contender.ask("chain", statements=statements)
            return {"forward": seconds["forward"], "gradient": seconds["gradient"]}

        units = {"forward": ("s", 1.0), "gradient": ("s", 1.0)}
        rows += make_rows("chain", f"{statements} statements", left, 1, measure, units)
        left = [one for one in left if not isinstance(rows[-1].numbers[one.key], str)]
    return rows


def workload_rows(
    name: str, contenders: list[Contender], options: argparse.Namespace
) -> tuple[list[Row], dict[str, Any]]:
    """Run times and compile times of a workload, and how far results are off the reference."""
    size = (problems.QUICK if options.quick else problems.FULL)[name]
    subject = f"{name}, {size[0]} x {size[1]}"
    with tempfile.TemporaryDirectory() as folder:

        def prepare(contender: Contender) -> dict[str, float]:
            path = str(Path(folder) / contender.key)
            prepared: dict[str, float] = contender.ask(
                "prepare", name=name, size=size, results=path
            )
            return prepared

        compiling = {"compile forward": ("ms", 1e3), "compile backward": ("ms", 1e3)}
        one_thread = [one for one in contenders if one.threads == 1]
        rows = make_rows("compile", subject, one_thread, 1, prepare, compiling)
        failed = {key for key, value in rows[0].numbers.items() if isinstance(value, str)}
        several = [one for one in contenders if one.threads > 1]
        alternate(several, 1, prepare)
        reference = Contender(REFERENCE, options)
        checks = compare(Path(folder), name, size, reference)
        reference.stop()
    running = [one for one in contenders if one.key not in failed]
    units = {"forward": ("ms", 1e3), "backward": ("ms", 1e3)}
    found = make_rows("run", subject, running, options.rounds, lambda one: one.ask("run"), units)
    for row in found:
        row.numbers.update({key: rows[0].numbers[key] for key in failed})
    return found + [row for row in rows if row.section == "compile"], checks


def tape_rows(name: str, contenders: list[Contender]) -> list[Row]:
    """The bytes per step of the tape, from the growth of a process over one long loop.

    What a process grows by with a short loop, which compiles the same, is subtracted.
    """
    steps = TAPE_STEPS[name]

    def measure(contender: Contender) -> dict[str, float]:
        growths = []
        for count in (64, steps):
            contender.start()
            growths.append(float(contender.ask("grow", name=name, steps=count)))
        return {"tape": max(0.0, growths[1] - growths[0]) / steps}

    taped = [one for one in contenders if one.name in TAPED]
    return make_rows("tape", name, taped, 1, measure, {"tape": ("B/step", 1.0)})


if __name__ == "__main__":
    main()
