"""Times Octants on a GPU, beside CUDA by hand and other systems: ``python bench/gpu.py``.

The workloads are those of the benchmarks of CPUs, at the sizes of a GPU, and some more. Each system
runs in a process of its own, one after the other. A number is the least time of a call among a few
runs of several in a row, each run until all is done; with ``--rounds``, for a machine that is busy
at times, those of several rounds in which the systems take turns. Gradients are compared with those
of CUDA in double precision. The table goes to the screen and, as JSON with the name of the GPU, to
bench/results; with ``--docs`` also to docs/gpu_benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import problems
import report
from checks import compare
from processes import HERE, Contender, Failed, first_gradient, is_installed
from rows import Row, Spread
from systems import GPU_REFERENCE, ON_GPUS

PARTS = ("launch", "start")
# The systems whose starts are programs of starts.py.
STARTED = ("octants", "quadrants", "taichi", "warp", "jax", "drjit")
STARTS = 2  # that count, of which the least is taken
LAUNCHES = ("one array", "4 arrays and a scalar", "gradient step")
# What is found for a row, by its section, subject, measure and unit.
Key = tuple[str, str, str, str]
Found = dict[Key, float | str]


def main() -> None:
    """Measure, and write the table."""
    options = parse_arguments()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX would take all memory
    about = {name: {"status": "not installed"} for name in options.systems}
    found: dict[str, Found] = {}
    with tempfile.TemporaryDirectory() as folder:
        contenders = [Contender(name, options) for name in options.systems]
        contenders = [each for each in contenders if is_installed(each.name, options)]
        for contender in contenders * options.rounds:
            measured = measure(contender, options, about, Path(folder))
            keep_best(found.setdefault(contender.name, {}), measured)
            contender.stop()
        if not found.get("octants"):
            sys.exit(f"Octants itself does not start: {about['octants']['status']}")
        reference = Contender(GPU_REFERENCE, options)
        checks = {
            name: compare(Path(folder) / name, name, size, reference)
            for name, size in sizes(options).items()
        }
        reference.stop()
    gpu = {key: about["cuda"][key] for key in ("gpu", "driver") if key in about.get("cuda", {})}
    gpu.setdefault("gpu", about["octants"].get("gpu", "none"))
    report.write(options, about, make_rows(found), checks, gpu)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    choices = (*problems.GPU, *PARTS)
    parser.add_argument("parts", nargs="*", help=f"some of {', '.join(choices)} (all)")
    parser.add_argument("--arch", default="cuda", choices=["cuda", "vulkan", "cpu"])
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that all runs")
    parser.add_argument("--systems", nargs="+", default=list(ON_GPUS), choices=ON_GPUS)
    parser.add_argument("--seconds", type=float, default=1.0, help="for the runs of a workload")
    parser.add_argument("--rounds", type=int, default=1, help="in which the systems take turns")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds for a result")
    parser.add_argument("--peer-python", default=sys.executable, help="a Python with the others")
    parser.add_argument("--output", type=Path, default=HERE / "results", help="a folder")
    parser.add_argument("--docs", action="store_true", help="write docs/gpu_benchmarks.md anew")
    parser.add_argument("--verbose", action="store_true", help="show what the systems print")
    options = parser.parse_args()
    unknown = sorted(set(options.parts) - set(choices))
    if unknown:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(choices)}")
    options.clock = "wall"
    options.parts = options.parts or list(choices)
    options.systems = ["octants", *(name for name in options.systems if name != "octants")]
    return options


def sizes(options: argparse.Namespace) -> dict[str, tuple[int, int]]:
    """The workloads that are asked for."""
    known = problems.GPU_QUICK if options.quick else problems.GPU
    return {name: size for name, size in known.items() if name in options.parts}


def measure(
    contender: Contender,
    options: argparse.Namespace,
    about: dict[str, dict[str, str]],
    folder: Path,
) -> Found:
    """All that is asked of a system; what it says of itself goes to ``about``."""
    found: Found = {}
    try:
        about[contender.name] = contender.ask("describe")
    except Failed as failure:
        about[contender.name] = {"status": str(failure)}
        return found
    for name, size in sizes(options).items():
        (folder / name).mkdir(exist_ok=True)
        path = str(folder / name / contender.name)
        found |= tell(contender, workload(contender, name, size, path, options.seconds))
    if "launch" in options.parts:
        found |= tell(contender, launches(contender, 200 if options.quick else 2000))
    if "start" in options.parts and contender.name in STARTED:
        found |= tell(contender, starts(contender))
    return found


def keep_best(found: Found, measured: Found) -> None:
    """Have the least numbers of several rounds, and words where there are no numbers."""
    for key, value in measured.items():
        known = found.get(key, value)
        both = isinstance(value, float) and isinstance(known, float)
        found[key] = min(known, value) if both else known


def tell(contender: Contender, measured: Iterator[tuple[Key, float | str]]) -> Found:
    """What is measured; printed as it is found."""
    found: Found = {}
    for key, value in measured:
        found[key] = value
        text = value if isinstance(value, str) else f"{value:.4g} {key[3]}"
        print(f"  {contender.name}, {key[1]}, {key[2]}: {text}", flush=True)
    return found


def workload(
    contender: Contender, name: str, size: tuple[int, int], path: str, seconds: float
) -> Iterator[tuple[Key, float | str]]:
    """Milliseconds of runs, those that compiling took, and the tape; or what went wrong."""
    subject = f"{name}, {size[0]} x {size[1]}"
    try:
        prepared = contender.ask("prepare", name=name, size=size, results=path)
        times = contender.ask("queue", seconds=seconds)
    except Failed as failure:
        contender.stop()  # after an illegal address nothing else would run
        for run in ("forward", "backward"):
            yield ("run", subject, run, "ms"), str(failure)
        return
    for run in ("forward", "backward"):
        yield ("run", subject, run, "ms"), 1e3 * times[run]
        yield ("compile", subject, f"compile {run}", "ms"), 1e3 * prepared[f"compile {run}"]
    if prepared["tape"] is not None:
        yield ("tape", subject, "tape", "MB"), prepared["tape"] / 1e6


def launches(contender: Contender, count: int) -> Iterator[tuple[Key, float | str]]:
    """Microseconds of a call of a kernel that does next to nothing."""
    try:
        seconds = contender.ask("launches", count=count)
    except Failed as failure:
        seconds = str(failure)
    for name in LAUNCHES:
        if isinstance(seconds, str):
            yield ("launch", "warm call", name, "us"), seconds
        elif name in seconds:
            yield ("launch", "warm call", name, "us"), 1e6 * seconds[name]


def starts(contender: Contender) -> Iterator[tuple[Key, float | str]]:
    """Milliseconds from the start of a process to its first gradient, cold and then warm.

    A start before those that count leaves Python's bytecode, as an installation does.
    """
    found: dict[str, list[float]] = {"cold": [], "warm cache": []}
    try:
        for _ in range(1 + STARTS):
            with tempfile.TemporaryDirectory() as cache:
                for times in found.values():
                    times.append(1e3 * first_gradient(contender, Path(cache)))
    except Failed as failure:
        yield ("start", "start", "first gradient, cold", "ms"), str(failure)
        return
    for which, times in found.items():
        yield ("start", "start", f"first gradient, {which}", "ms"), min(times[1:])


def make_rows(found: dict[str, Found]) -> list[Row]:
    """A row for each measure, with the numbers of all systems."""
    rows: dict[Key, Row] = {}
    for system, numbers in found.items():
        for key, value in numbers.items():
            row = rows.setdefault(key, Row(*key))
            text = isinstance(value, str)
            row.numbers[system] = value if text else Spread(value, value, value)
    return list(rows.values())


if __name__ == "__main__":
    main()
