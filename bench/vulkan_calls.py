"""What calls cost on Vulkan beside Quadrants: ``python bench/vulkan_calls.py --peer-python P``.

Both systems run the same kernels on the driver that is there, each in a process of its own. Rounds
alternate between them; a number is the least wall time of a call in any of many short runs, until
all is done, since a busy machine makes every other one larger. The table goes to the screen and to
bench/results.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SYSTEMS = ("octants", "quadrants")
CASES = {
    "a launch": "launch",
    "a launch, and waiting for it": "wait",
    "a launch, and reading one element": "read",
    "gradient step: forward, clear, backward": "step",
}
ITEMS, CALLS, RUNS = 64, 60, 6


def main() -> None:
    """Measure, or be what is measured: ``vulkan_calls.py --measure SYSTEM``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", choices=SYSTEMS, help=argparse.SUPPRESS)
    parser.add_argument("--peer-python", default=sys.executable, help="a Python with Quadrants")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    if options.measure:
        answer(options.measure)
    else:
        report(compare(options), options)


def compare(options: argparse.Namespace) -> dict[str, list[float]]:
    """The microseconds of a call of each case, by system."""
    pythons = {"octants": sys.executable, "quadrants": options.peer_python}
    workers = {name: start(name, pythons[name]) for name in SYSTEMS}
    best = {name: [float("inf")] * len(CASES) for name in SYSTEMS}
    for _ in range(options.rounds):
        for name, worker in workers.items():
            best[name] = [min(pair) for pair in zip(best[name], ask(worker), strict=True)]
    for worker in workers.values():
        worker.stdin.close()
        worker.wait()
    return best


def start(name: str, python: str) -> Any:
    """A process that measures a system whenever it is asked."""
    command = [python, __file__, "--measure", name]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    worker = subprocess.Popen(command, stderr=subprocess.DEVNULL, text=True, **pipes)
    while (line := worker.stdout.readline()) != "ready\n":
        if not line:
            sys.exit(f"{name} does not start with {python}")
    return worker


def ask(worker: Any) -> list[float]:
    """What a process measures now."""
    print("again", file=worker.stdin, flush=True)
    return [float(word) for word in worker.stdout.readline().split()]


def report(best: dict[str, list[float]], options: argparse.Namespace) -> None:
    """Write the table."""
    rows = zip(CASES, *(best[name] for name in SYSTEMS), strict=True)
    lines = [
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {options.rounds} rounds",
        "",
        "| microseconds of | Octants | Quadrants | Quadrants / Octants |",
        "| --- | --- | --- | --- |",
        *(f"| {case} | {ours:.1f} | {peer:.1f} | {peer / ours:.2f} |" for case, ours, peer in rows),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    options.output.mkdir(parents=True, exist_ok=True)
    stamp = time.strftime("%Y-%m-%d-%H%M%S")
    (options.output / f"vulkan_calls-{stamp}.md").write_text(text)


# -- what is measured -----------------------------------------------------------------------------


def answer(name: str) -> None:
    """Measure a system once for each line that is read."""
    qd, calls = make_calls(name)
    for call in calls:
        call()
        call()
    qd.sync()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(*(1e6 * least(qd, call) for call in calls), flush=True)


def least(qd: Any, call: Callable[[], Any], count: int = CALLS, runs: int = RUNS) -> float:
    """The least seconds of a call in any of some runs, each of calls in a row until all is done."""
    best = float("inf")
    for _ in range(runs):
        qd.sync()
        begin = time.perf_counter()
        for _ in range(count):
            call()
        qd.sync()
        best = min(best, (time.perf_counter() - begin) / count)
    return best


def make_calls(name: str) -> tuple[Any, list[Callable[[], Any]]]:
    """A system, and the calls of `CASES`."""
    if name == "octants":
        import octants as qd
    else:
        import quadrants as qd  # type: ignore[no-redef]
    qd.init(arch=qd.vulkan, log_level="error")
    x, loss = qd.field(qd.f32, ITEMS, needs_grad=True), qd.field(qd.f32, (), needs_grad=True)
    y = qd.field(qd.f32, ITEMS)

    @qd.kernel
    def double():
        for i in x:
            y[i] = x[i] * 2.0

    @qd.kernel
    def squares():
        for i in x:
            loss[None] += x[i] * x[i]

    def wait() -> None:
        double()
        qd.sync()

    def read() -> None:
        double()
        y[0]

    def step() -> None:
        with qd.ad.Tape(loss=loss):
            squares()

    return qd, [double, wait, read, step]


if __name__ == "__main__":
    main()
