"""Times of reverse mode over times of the program: ``python bench/reverse_ratios.py``.

Each program of `tutorial_programs` runs in a process for each system and number of threads: with
and without a tape, again and again; minima count. Gradients are compared with finite differences in
f64. The table goes to the screen.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
import time
from typing import Any

import numpy as np

from tutorial_programs import PROGRAMS
from workers import outcome, report


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", nargs="+", default=list(PROGRAMS), choices=PROGRAMS)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--scale", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--python", nargs="+", default=[], help="SYSTEM=INTERPRETER")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        report(measure(options.worker, options.programs[0], options))
        return
    pythons = dict(pair.split("=") for pair in options.python) or {"octants": sys.executable}
    print("| program | system | threads | us a step | gradient | reverse / forward | error |")
    print("|---|---|---|---|---|---|---|")
    for name in options.programs:
        for threads in options.threads:
            for system, python in pythons.items():
                command = [python, __file__, "--worker", system, "--programs", name]
                command += ["--threads", str(threads), "--rounds", str(options.rounds)]
                found = outcome([*command, "--scale", str(options.scale)], 300)
                print(row(name, system, threads, found), flush=True)


def row(name: str, system: str, threads: int, found: dict[str, Any]) -> str:
    """One line of the table."""
    if "error" in found:
        return f"| {name} | {system} | {threads} | {found['error']} | | | |"
    forward, gradient = found["forward"], found["gradient"]
    numbers = f"{forward:.1f} | {gradient:.1f} | {gradient / forward - 1:.1f}"
    return f"| {name} | {system} | {threads} | {numbers} | {found['difference']:.0e} |"


def measure(system: str, name: str, options: argparse.Namespace) -> dict[str, Any]:
    """The times of a step in microseconds, without and with a gradient, and the gradient's error.

    They are the least of some rounds, in f32; the error is relative, in f64.
    """
    qd = importlib.import_module(system)

    def begin(real: str) -> Any:
        given = {"cpu_max_num_threads": options.threads[0], "default_fp": getattr(qd, real)}
        qd.init(arch=qd.cpu, log_level="error", offline_cache=False, **given)
        return PROGRAMS[name](qd, getattr(qd, real), options.scale if real == "f32" else 1)

    program = begin("f64")
    difference = error(qd, program)
    program = begin("f32")

    def taped() -> None:
        with qd.ad.Tape(program.loss):
            program.run()

    found = {}
    for kind, function in (("forward", program.run), ("gradient", taped)):
        for _ in range(3):
            function()
        found[kind] = least(qd, function, options.rounds) / program.steps * 1e6
    return {**found, "difference": difference}


def least(qd: Any, function: Any, rounds: int) -> float:
    """The least time of a call, of several rounds of about 50 ms."""
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < rounds or time.perf_counter() - begin < 0.05 * rounds:
        start = time.perf_counter()
        function()
        qd.sync()
        times.append(time.perf_counter() - start)
    return min(times)


def error(qd: Any, program: Any) -> float:
    """The relative error of the derivative in a random direction, beside a finite difference."""
    program.loss[None] = 0.0
    with qd.ad.Tape(program.loss):
        program.run()
    gradients = [each.grad.to_numpy() for each in program.inputs]
    starts = [each.to_numpy() for each in program.inputs]
    rng = np.random.default_rng(5)
    directions = [rng.normal(size=start.shape) for start in starts]
    slope = sum(float((g * d).sum()) for g, d in zip(gradients, directions, strict=True))
    losses = []
    for sign in (1, -1):
        for each, start, direction in zip(program.inputs, starts, directions, strict=True):
            each.from_numpy(start + sign * 1e-6 * direction)
        program.loss[None] = 0.0
        program.run()
        losses.append(program.loss[None])
    for each, start in zip(program.inputs, starts, strict=True):
        each.from_numpy(start)
    return float(abs(slope - (losses[0] - losses[1]) / 2e-6) / abs(slope))


if __name__ == "__main__":
    main()
