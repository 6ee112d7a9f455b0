"""A loop of launches, recorded and checkpointed: ``python bench/host_checkpoints.py``.

The gradient of a cloth through all its time steps: with each step recorded on the tape, and by
`ad.checkpointed` with several numbers of snapshots, where the number of steps is known and where it
is not. Rounds alternate. The table goes to the screen and to bench/results.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import octants as qd
from octants.ad.checkpoints.checkpointed_loops import CheckpointedLoop, Statistics
from octants.demos.cloth import TARGET, Cloth

HERE = Path(__file__).parent
Way = Callable[[], CheckpointedLoop | None]
HEADER = ("", "time / s", "ratio", "step runs", "snapshots taken", "state kept / bytes", "gradient")


class Bench:
    """One cloth, and ways to run it."""

    def __init__(self, side: int, steps: int) -> None:
        self.cloth = Cloth(side)
        self.steps = steps
        self.kept = 0

    def recorded(self) -> None:
        for i in range(self.steps):
            self.cloth.step(i)

    def checkpointed(self, slots: int) -> Way:
        return lambda: qd.ad.checkpointed(self.cloth.step, self.steps, slots=slots)

    def until_false(self, slots: int) -> Way:
        def step(i: int) -> bool:
            self.cloth.step(i)
            return i < self.steps - 1

        return lambda: qd.ad.checkpointed(step, slots=slots)

    def measure(self, run: Way) -> tuple[float, Statistics, list[float]]:
        """The seconds of forward and backward, what the loop has cost, and the gradient."""
        self.cloth.wind.from_numpy(np.array([1.0, 6.0, 3.0]))
        begin = time.perf_counter()
        with qd.ad.Tape(loss=self.cloth.loss) as tape:
            self.cloth.start()
            loop = run()
            self.cloth.miss(*TARGET)
        seconds = time.perf_counter() - begin
        self.kept = tape.snapshot_bytes
        gradient = [*self.cloth.wind.grad.to_numpy(), self.cloth.stiffness.grad[None]]
        cost = loop.statistics if loop is not None else Statistics(self.steps, self.steps)
        return seconds, cost, [float(number) for number in gradient]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=16)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--slots", type=int, nargs="*", default=[10, 20, 100])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=HERE / "results", help="a folder")
    options = parser.parse_args()
    qd.init(arch=qd.cpu, cpu_max_num_threads=1, log_level="error")
    text = table(options.side, options.steps, options.slots, options.rounds)
    print(text)
    stamp = time.strftime("%Y-%m-%d-%H%M%S")
    (options.output / f"host_checkpoints-{stamp}.md").write_text(text)


def table(side: int, steps: int, slots: list[int], rounds: int) -> str:
    """The measurements as text."""
    bench = Bench(side, min(steps, 20))
    ways: dict[str, Way] = {"all steps recorded": bench.recorded}
    for number in slots:
        ways[f"{number} slots"] = bench.checkpointed(number)
        ways[f"{number} slots, unknown length"] = bench.until_false(number)
    for run in ways.values():  # compiles
        bench.measure(run)
    bench.steps = steps
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    notes: dict[str, list[str]] = {}
    expected: list[float] = []
    for _ in range(rounds):
        for name, run in ways.items():
            took, cost, gradient = bench.measure(run)
            seconds[name].append(took)
            expected = expected or gradient
            notes[name] = note(bench.kept, cost, gradient, expected)
    baseline = seconds["all steps recorded"]
    lines = [HEADER, ("---",) * len(HEADER)]
    for name, times in seconds.items():
        ratios = [one / other for one, other in zip(times, baseline, strict=True)]
        middle = f"{statistics.median(times):.2f}", f"{statistics.median(ratios):.2f}"
        lines.append((name, *middle, *notes[name]))
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    title = (
        f"cloth of {side} x {side}, {steps} steps, one thread, {rounds} rounds: medians; {machine}"
    )
    return "\n".join([title, "", *("| " + " | ".join(line) + " |" for line in lines), ""])


def note(kept: int, cost: Statistics, gradient: list[float], expected: list[float]) -> list[str]:
    """What a run has cost, and whether its gradient is right."""
    same = "equal" if gradient == expected else f"off by {np.subtract(gradient, expected)}"
    return [f"{cost.runs}", f"{cost.snapshots}", f"{kept}", same]


if __name__ == "__main__":
    main()
