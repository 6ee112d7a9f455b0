"""Parts of the library on the CPU, Octants beside Quadrants, by process time on one thread.

    python bench/features.py                 # both, in processes of their own, alternating
    python bench/features.py octants lists   # one system and one case

`cg` solves Poisson's equation on 256^2 points to 1e-6 by `linalg.MatrixFreeCG`; `pickle` and `load`
store an ndarray of 10^6 numbers and read it; `lists` loops over dynamic lists in cells of
two nested pointer blocks. `words` stores three quantised numbers in each of 10^6 words,
`word_sums` adds to them; `word_rows` adds to the 8 elements of each of 10^5 words of a
`quant_array`, `word_cells` to the same elements, each a work item of its own. Each prints the
least time of some runs, in milliseconds, and a checksum.
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


def words(qd: Any, adds: bool, count: int = 1_000_000) -> Case:
    """Three numbers in each word: an integer, a fixed-point number, a float."""
    x = qd.field(qd.types.quant.int(bits=7))
    y = qd.field(qd.types.quant.fixed(bits=10, max_value=4.0))
    z = qd.field(qd.types.quant.float(exp=5, frac=10))
    word = qd.BitpackedFields(max_num_bits=32)
    word.place(x, y, z)
    qd.root.dense(qd.i, count).place(word)

    @qd.kernel
    def put():
        for i in x:
            x[i] = i % 50
            y[i] = 0.015625 * (i % 100)
            z[i] = 0.5 * (i % 100)

    @qd.kernel
    def add():
        for i in x:
            x[i] += 1
            y[i] += 0.0078125
            z[i] += 0.5

    @qd.kernel
    def total() -> qd.f64:
        result = qd.f64(0.0)
        for i in x:
            result += x[i] + y[i] + z[i]
        return result

    def run() -> Any:
        (add if adds else put)()

    def check() -> Any:
        put()
        run()
        return total()

    return check_first(check, run)


def word_array(qd: Any, by_rows: bool, count: int = 100_000) -> Case:
    """Sums in the elements of words: by a work item for each word, or for each element."""
    x = qd.field(qd.types.quant.int(bits=4, signed=False))
    qd.root.dense(qd.i, count).quant_array(qd.j, 8, max_num_bits=32).place(x)

    @qd.kernel
    def rows():
        for i in range(count):
            for j in range(8):
                x[i, j] += i + j

    @qd.kernel
    def cells():
        for i, j in x:
            x[i, j] += i + j

    @qd.kernel
    def total() -> qd.i32:
        result = 0
        for i, j in x:
            result += x[i, j] * (j + 1)
        return result

    run = rows if by_rows else cells

    def check() -> Any:
        run()
        return total()

    return check_first(check, run)


def check_first(check: Case, run: Case) -> Case:
    """What runs a check the first time, then only what is measured."""
    pending = [check]
    return lambda: pending.pop()() if pending else run()


CASES: dict[str, Callable[[Any], Case]] = {
    "cg": cg,
    "pickle": functools.partial(store, loads=False),
    "load": functools.partial(store, loads=True),
    "lists": lists,
    "words": functools.partial(words, adds=False),
    "word_sums": functools.partial(words, adds=True),
    "word_rows": functools.partial(word_array, by_rows=True),
    "word_cells": functools.partial(word_array, by_rows=False),
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
        print(f"{name:10} {case:10} fails: {type(error).__name__}: {str(error)[:60]}")
        return
    best = float("inf")
    for _ in range(runs):
        start = time.process_time()
        run()
        qd.sync()
        best = min(best, time.process_time() - start)
    print(f"{name:10} {case:10} {1e3 * best:9.3f} ms; checksum {found}", flush=True)


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
