"""What kernels and gradients take on this machine's GPU: ``python bench/gpu.py --arch cuda``.

The workloads are those of the benchmarks of CPUs, at the sizes of a GPU. A number is the least time
of a call among a few runs of several, each run until all is done. Gradients are those of the sum of
all outputs; each recorded loop is run forward again in them. The table goes to the screen and to
bench/results, with the name of the GPU.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE)]
os.environ.setdefault("BENCH_SYSTEM", "octants")

import octants as qd  # noqa: E402
from systems import fields as programs  # noqa: E402  # it reads the variable

ITEMS = 1_000_000
PAIRS = 16_384
RUNS = 4


@dataclass
class Problem:
    """How many work items there are, the trips of their loops, inputs, the shape of the output."""

    name: str
    items: int
    steps: int
    inputs: list[np.ndarray[Any, Any]]
    shape: tuple[int, ...]


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", default="cuda", help="cuda or vulkan")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    qd.init(arch=getattr(qd, options.arch), offline_cache=False, log_level="error")
    rows = {name: measure(*workload(name)) for name in PROGRAMS}
    launch = warm_launch()
    for name, row in rows.items():
        print(
            f"{name:12} forward {row['forward_ms']:8.3f} ms  backward {row['backward_ms']:8.3f} ms"
        )
    print(f"warm launch  {launch:.1f} us")
    found = {"gpu": gpu_name(), "arch": options.arch, "rows": rows, "warm_launch_us": launch}
    now = dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%d-%H%M%S")
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / f"gpu-{now}.json").write_text(json.dumps(found, indent=1) + "\n")


PROGRAMS = {
    "recurrence": (programs.Recurrence, 1024, [(ITEMS,)]),
    "affine": (programs.Affine, 1024, [(ITEMS,), (ITEMS,)]),
    "ode": (programs.Ode, 64, [(ITEMS, 6)]),
    "pairwise": (programs.Pairwise, PAIRS, [(PAIRS, 3)]),
}


def workload(name: str) -> tuple[Any, Problem]:
    """The program of a workload, and its problem."""
    program, steps, shapes = PROGRAMS[name]
    rng = np.random.default_rng(0)
    inputs = [rng.uniform(0.1, 1, shape).astype(np.float32) for shape in shapes]
    return program, Problem(name, shapes[0][0], steps, inputs, shapes[0])


def measure(program: Any, problem: Problem) -> dict[str, float]:
    """Milliseconds of a call forward, and of one backward."""
    made = program(problem)
    made.forward()
    made.seed()
    return {
        "forward_ms": 1e3 * least(made.forward, 10),
        "backward_ms": 1e3 * least(made.backward, 5),
    }


def least(call: Callable[[], Any], count: int) -> float:
    """The seconds of a call, of ``count`` in a row until all is done; the least of a few runs."""
    call()
    qd.sync()
    best = float("inf")
    for _ in range(RUNS):
        start = time.perf_counter()
        for _ in range(count):
            call()
        qd.sync()
        best = min(best, (time.perf_counter() - start) / count)
    return best


def warm_launch() -> float:
    """The microseconds of Python's thread for a launch of a tiny kernel."""

    @qd.kernel
    def tiny(a: qd.types.NDArray[qd.f32, 1]):
        for i in a:
            a[i] += 1.0

    a = qd.ndarray(qd.f32, 64)
    tiny(a)
    best = float("inf")
    for _ in range(RUNS):
        qd.sync()
        start = time.perf_counter()
        for _ in range(1000):
            tiny(a)
        best = min(best, (time.perf_counter() - start) / 1000)
    qd.sync()
    return 1e6 * best


def gpu_name() -> str:
    """What the device calls itself."""
    device: Any = qd.driver.state.device
    return str(device)


if __name__ == "__main__":
    main()
