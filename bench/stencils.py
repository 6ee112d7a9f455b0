"""Times of launches of stencils and of their reverse launches: ``python bench/stencils.py``.

The programs are those of `tutorial_programs`, in f32, on one thread. Each number is the least time
of a launch, in microseconds, of all steps of some rounds: with other programs on the machine, least
times of single launches repeat better than those of whole gradients (`reverse_ratios`). To compare
two versions, run each in turns. `stencils.c` has the reverse launches by hand.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import octants as qd
from tutorial_programs import PROGRAMS

STENCILS = ["wave", "shallow water", "heat", "advection", "lattice"]


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", nargs="+", default=STENCILS, choices=STENCILS)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--scale", type=int, default=2)
    options = parser.parse_args()
    print("| program | forward | reverse | reverse / forward |\n|---|---|---|---|")
    for name in options.programs:
        forward, reverse = measure(name, options.scale, options.rounds)
        print(f"| {name} | {forward:.1f} | {reverse:.1f} | {reverse / forward:.1f} |", flush=True)


def measure(name: str, scale: int, rounds: int) -> tuple[float, float]:
    """The least times of a launch of the first kernel of a program, and of its reverse launch."""
    qd.init(arch=qd.cpu, cpu_max_num_threads=1, default_fp=qd.f32, log_level="error")
    program = PROGRAMS[name](qd, qd.f32, scale)
    with qd.ad.Tape(program.loss):
        program.run()
    step = _step(program.run)
    reverse = step.grad.using(on_overwrite="trust")
    rng = np.random.default_rng(0)
    adjoints = [rng.uniform(-1.0, 1.0, x.grad.to_numpy().shape) for x in program.inputs]
    least = [float("inf")] * 2
    for _ in range(rounds):
        for x, content in zip(program.inputs, adjoints, strict=True):
            x.grad.from_numpy(content.astype(np.float32))
        for t in range(program.steps):
            begin = time.perf_counter()
            reverse(program.steps - 1 - t)
            middle = time.perf_counter()
            step(t)
            end = time.perf_counter()
            least = [min(least[0], end - middle), min(least[1], middle - begin)]
    return least[0] * 1e6, least[1] * 1e6


def _step(run: Any) -> Any:
    """The kernel that takes a step."""
    cells = (cell.cell_contents for cell in run.__closure__)
    return next(each for each in cells if hasattr(each, "grad"))


if __name__ == "__main__":
    main()
