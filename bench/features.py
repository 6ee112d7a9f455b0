"""Parts of the library on the CPU, Octants beside Quadrants, by process time on one thread.

    python bench/features.py                 # both, in processes of their own, alternating
    python bench/features.py octants lists   # one system and one case

`cg` solves Poisson's equation on 256^2 points to 1e-6 by `linalg.MatrixFreeCG`; `pickle` and `load`
store an ndarray of 10^6 numbers and read it; `lists` loops over dynamic lists in cells of
two nested pointer blocks. Each prints the least time of some runs, in milliseconds, and a checksum.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

SYSTEMS = ("octants", "quadrants")
Case = Callable[[], Any]


def cg(qd: Any, size: int = 256) -> Case:
    """A solve of a symmetric system, matrix-free."""
    x, b = (qd.field(qd.f64, shape=(size, size)) for _ in range(2))

    @qd.kernel
    def apply(v: qd.template(), mv: qd.template()):
        for i, j in v:
            left = v[i - 1, j] if i > 0 else 0.0
            right = v[i + 1, j] if i + 1 < size else 0.0
            lower = v[i, j - 1] if j > 0 else 0.0
            upper = v[i, j + 1] if j + 1 < size else 0.0
            mv[i, j] = 4 * v[i, j] - left - right - lower - upper

    b.fill(1.0)
    operator = qd.linalg.LinearOperator(apply)

    def run() -> Any:
        x.fill(0.0)
        qd.linalg.MatrixFreeCG(operator, b, x, maxiter=2000, tol=1e-6, quiet=True)
        return x.to_numpy().sum()

    return run


def store(qd: Any, loads: bool, count: int = 1_000_000) -> Case:
    """Pickling of an ndarray: storing it, or reading it again."""
    x = qd.ndarray(qd.f32, count)
    x.fill(0.5)
    text = pickle.dumps(x)
    if loads:
        return lambda: pickle.loads(text).to_numpy().sum()
    return lambda: len(pickle.dumps(x))


def lists(qd: Any) -> Case:
    """A loop over lists in nested sparse blocks: 64 of 1024 outer cells, 8 lists of 16 in each."""
    x = qd.field(qd.f32)
    total = qd.field(qd.f32, shape=())
    qd.root.pointer(qd.i, 1024).pointer(qd.i, 32).dynamic(qd.j, 64, chunk_size=16).place(x)

    @qd.kernel
    def fill():
        for i in range(64 * 8):
            qd.loop_config(serialize=True)
            row = i // 8 * 16 * 32 + i % 8 * 4
            for k in range(16):
                qd.append(x.parent(), [row], 1.0 * k)

    @qd.kernel
    def add():
        for i, j in x:
            total[None] += x[i, j]

    fill()

    def run() -> Any:
        total[None] = 0.0
        for _ in range(10):
            add()
        return total[None]

    return run


CASES: dict[str, Callable[[Any], Case]] = {
    "cg": cg,
    "pickle": functools.partial(store, loads=False),
    "load": functools.partial(store, loads=True),
    "lists": lists,
}


def measure(name: str, case: str, runs: int) -> None:
    """Print the least process time of a case in one system, in milliseconds, and a checksum."""
    qd = importlib.import_module(name)
    globals()["qd"] = qd  # where Quadrants looks up the names of annotations
    qd.init(arch=qd.cpu, log_level="error", cpu_max_num_threads=1)
    try:
        run = CASES[case](qd)
        found = run()
        qd.sync()
    except Exception as error:
        print(f"{name:10} {case:8} fails: {type(error).__name__}: {str(error)[:60]}")
        return
    best = float("inf")
    for _ in range(runs):
        start = time.process_time()
        run()
        qd.sync()
        best = min(best, time.process_time() - start)
    print(f"{name:10} {case:8} {1e3 * best:9.3f} ms; checksum {found}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("system", nargs="?", choices=SYSTEMS)
    parser.add_argument("case", nargs="?", choices=CASES)
    parser.add_argument("--runs", type=int, default=10)
    given = parser.parse_args()
    if given.system is not None and given.case is not None:
        measure(given.system, given.case, given.runs)
        return
    for case in [given.case] if given.case else CASES:
        for system in [given.system] if given.system else SYSTEMS:
            options = [system, case, "--runs", str(given.runs)]
            subprocess.run([sys.executable, __file__, *options], check=True)


if __name__ == "__main__":
    main()
