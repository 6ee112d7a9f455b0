"""Sort, scan, reduce and select on the CPU: ``python bench/algorithms.py``.

Compares with numpy, and `parallel_sort` with Quadrants, if that is installed; its other algorithms
run on GPUs only. Rounds alternate; times are process times, the least of all rounds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import octants as qd
from octants import algorithms
from octants.algorithms.radix_sort import BITS

_PEER = """
import json, sys, time, warnings
import numpy as np
import quadrants as qd
warnings.simplefilter("ignore")
qd.init(arch=qd.cpu)
count, rounds = map(int, sys.argv[1:])
keys, given = qd.field(qd.f32, count), np.random.default_rng(0).random(count).astype(np.float32)
times = []
for _ in range(rounds):
    keys.from_numpy(given)
    qd.sync()
    start = time.process_time()
    qd.algorithms.parallel_sort(keys)
    qd.sync()
    times.append(1e3 * (time.process_time() - start))
print(json.dumps(min(times[1:])))
"""


class Arrays:
    """What the algorithms work on, and kernels that call them."""

    def __init__(self, dtype: Any, count: int) -> None:
        self.dtype, self.count, self.bits = dtype, count, BITS[dtype]
        self.given = (np.random.default_rng(0).random(count) * 1e9).astype(dtype.numpy)
        self.x, self.y = (qd.field(dtype, count) for _ in range(2))
        self.one, self.number = qd.field(dtype, 1), qd.field(qd.i32, 1)
        self.flags = qd.field(qd.i32, count)
        self.flags.from_numpy((np.arange(count) % 2).astype(np.int32))
        self.scratch = qd.field(qd.u32, algorithms.sort_scratch_slots(count))
        self.n = qd.field(qd.i32, ())
        self.n[None] = count

    def fill(self) -> None:
        self.x.from_numpy(self.given)

    @qd.kernel
    def sort(self):  # type: ignore[no-untyped-def]
        algorithms.sort(
            self.x, self.y, self.x, self.y, self.scratch, self.n, self.dtype, False, self.bits
        )

    @qd.kernel
    def scan(self):  # type: ignore[no-untyped-def]
        algorithms.exclusive_scan_add(self.x, self.y, self.scratch, self.count, self.dtype)

    @qd.kernel
    def add(self):  # type: ignore[no-untyped-def]
        algorithms.reduce_add(self.x, self.one, self.scratch, self.count, self.dtype)

    @qd.kernel
    def select(self):  # type: ignore[no-untyped-def]
        algorithms.select(self.x, self.flags, self.y, self.number, self.scratch, self.count)


def least_time(run: Callable[[], Any], prepare: Callable[[], Any], rounds: int) -> float:
    """Milliseconds of process time of the fastest of some rounds, after one that is not timed."""
    times = []
    for _ in range(rounds + 1):
        prepare()
        qd.sync()
        start = time.process_time()
        run()
        qd.sync()
        times.append(1e3 * (time.process_time() - start))
    return min(times[1:])


def compare(dtype: Any, count: int, rounds: int) -> None:
    """Print a row for each algorithm."""
    arrays = Arrays(dtype, count)
    given, flags = arrays.given, arrays.flags.to_numpy() != 0
    rows: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "sort": (arrays.sort, lambda: np.sort(given, kind="stable")),
        "scan": (arrays.scan, lambda: np.cumsum(given)),
        "reduce": (arrays.add, lambda: np.sum(given)),
        "select": (arrays.select, lambda: given[flags]),
    }
    for name, (ours, numpys) in rows.items():
        a, b = (least_time(run, arrays.fill, rounds) for run in (ours, numpys))
        print(f"| {name} | {dtype} | {count} | {a:.2f} | {b:.2f} | {a / b:.2f} |")


def compare_sorts(count: int, rounds: int) -> None:
    """Print a row for `parallel_sort` beside Quadrants."""
    keys, given = qd.field(qd.f32, count), np.random.default_rng(0).random(count)
    ours = least_time(
        lambda: algorithms.parallel_sort(keys),
        lambda: keys.from_numpy(given.astype(np.float32)),
        rounds,
    )
    command = [sys.executable, "-c", _PEER, str(count), str(rounds + 1)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode:
        print("Quadrants cannot run here")
        return
    theirs = json.loads(found.stdout.splitlines()[-1])
    print(f"| parallel_sort | f32 | {count} | {ours:.2f} | {theirs:.2f} | {ours / theirs:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    qd.init(arch=qd.cpu, log_level="error")
    print("| algorithm | type | elements | Octants / ms | numpy / ms | ratio |\n|" + "---|" * 6)
    for dtype in (qd.f32, qd.u64):
        compare(dtype, chosen.count, chosen.rounds)
    print(
        "\n| algorithm | type | elements | Octants / ms | Quadrants / ms | ratio |\n|" + "---|" * 6
    )
    for count in (chosen.count // 100, chosen.count):
        compare_sorts(count, chosen.rounds)


if __name__ == "__main__":
    main()
