"""What programs call on the host, beside Quadrants and Taichi, on one thread of the CPU.

    python bench/host_calls.py                         # Octants
    python bench/host_calls.py --with PYTHON           # also Quadrants and Taichi, run by PYTHON
    python bench/host_calls.py --rows gradients,solver

Each system runs in processes of its own, in turn. A row is the least microseconds of the processor
of many calls. `gradients` is an MPM of 64 steps with custom gradients; `solver` assembles and
solves a system of 3,200 rows, as implicit time steps do.
"""
# mypy: ignore-errors
# ruff: noqa: I002  # Quadrants evaluates annotations as they are, also those of local names

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROUNDS = 2
SIZES = {"8": 8, "10^4": 10_000, "10^6": 1_000_000}


class Rows:
    """Measures rows; a system that lacks something leaves its row out."""

    def __init__(self, qd):
        self.qd, self.found = qd, {}

    def row(self, name, call, count=1, seconds=0.02):
        """The least time of a call, which does its work `count` times."""
        try:
            call()
            begin = time.process_time()
            call()
            calls = max(1, min(2000, int(seconds / max(time.process_time() - begin, 1e-7))))
            least = float("inf")
            for _ in range(7):
                begin = time.process_time()
                for _ in range(calls):
                    call()
                least = min(least, time.process_time() - begin)
            self.found[name] = least / calls / count * 1e6
        except (AttributeError, RuntimeError) as error:
            print(name, repr(error)[:200], file=sys.stderr)

    def each(self, name, call):
        """A row of a call that takes less than a microsecond."""

        def calls():
            for _ in range(100):
                call()

        self.row(name, calls, 100)


def arrays(rows):
    """Copies of whole arrays."""
    qd = rows.qd
    vector = qd.types.vector(3, qd.f32)
    makers = {
        "field": lambda n: qd.field(qd.f32, n),
        "matrix field": lambda n: qd.Matrix.field(3, 3, qd.f32, n),
        "struct field": lambda n: qd.Struct.field({"a": qd.f32, "b": vector}, shape=n),
        "ndarray": lambda n: qd.ndarray(qd.f32, n),
    }
    for kind, make in makers.items():
        for label, size in SIZES.items():
            x, y = make(size), make(size)
            values = x.to_numpy()
            name = f"{kind} of {label}"
            rows.row(f"{name}: to_numpy", x.to_numpy)
            rows.row(f"{name}: from_numpy", lambda x=x, values=values: x.from_numpy(values))
            rows.row(f"{name}: fill", lambda x=x: x.fill(1.0))
            rows.row(f"{name}: copy_from", lambda x=x, y=y: y.copy_from(x))


def elements(rows):
    """Reads and writes of elements, and vectors on the host."""
    qd = rows.qd
    x, y = qd.field(qd.f32, 8), qd.field(qd.f32, (8, 8))
    v, s = qd.Vector.field(3, qd.f32, 8), qd.field(qd.f32)
    qd.root.pointer(qd.ij, 32).dense(qd.ij, 4).place(s)
    one, number = qd.Vector([1.0, 2.0, 3.0]), np.float32(1.5)
    rows.each("x[i]", lambda: x[3])
    rows.each("x[i] = number", lambda: x.__setitem__(3, 1.5))
    rows.each("x[i] = np.float32", lambda: x.__setitem__(3, number))
    rows.each("x[i, j]", lambda: y[3, 4])
    rows.each("x[i, j] = number", lambda: y.__setitem__((3, 4), 1.5))
    rows.each("v[i] = list", lambda: v.__setitem__(3, [1.0, 2.0, 3.0]))
    rows.each("v[i][k]", lambda: v[3][1])
    rows.each("sparse x[i, j]", lambda: s[5, 5])
    rows.each("sparse x[i, j] = number", lambda: s.__setitem__((5, 5), 1.5))
    rows.each("Vector([a, b, c])", lambda: qd.Vector([1.0, 2.0, 3.0]))
    rows.each("v + v", lambda: one + one)
    rows.each("v[k]", lambda: one[1])
    rows.each("v.norm()", one.norm)


def solver(rows):
    """Assembly, symmetric factors and a solution."""
    qd, n = rows.qd, 40
    size = 2 * n * n
    builder = qd.linalg.SparseMatrixBuilder(size, size, 40 * size, dtype=qd.f32)
    b = qd.ndarray(qd.f32, size)
    b.from_numpy(np.cos(np.arange(size, dtype=np.float32)))

    @qd.kernel
    def assemble(A: qd.types.sparse_matrix_builder()):
        for i in range(n * n):
            for p in range(2):
                A[2 * i + p, 2 * i + p] += 1.0
            for dx in range(2):
                for dy in range(-1, 2):
                    near = dx * n + dy
                    inside = i % n + dy >= 0 and i % n + dy < n and i + near < n * n
                    if near > 0 and inside:
                        for p in range(2):
                            for q in range(2):
                                k = 0.5 if p == q else 0.1
                                A[2 * i + p, 2 * i + q] += k
                                A[2 * (i + near) + p, 2 * (i + near) + q] += k
                                A[2 * i + p, 2 * (i + near) + q] -= k
                                A[2 * (i + near) + p, 2 * i + q] -= k

    def step(kind):
        assemble(builder)
        A = builder.build()
        made = qd.linalg.SparseSolver(dtype=qd.f32, solver_type=kind)
        made.analyze_pattern(A)
        made.factorize(A)
        return made.solve(b)

    for kind in ("LLT", "LDLT", "LU"):
        rows.row(f"solver: a step, {kind}", lambda kind=kind: step(kind))


def gradients(rows):
    """An MPM of 64 steps, the grid of which each custom gradient computes again."""
    mpm = importlib.import_module("bench.custom_gradients")
    for name, call in mpm.programs(rows.qd).items():
        rows.row(f"MPM, 64 steps, {name}", call)


GROUPS = {each.__name__: each for each in (arrays, elements, solver, gradients)}


def measure(system, chosen):
    """Measure the rows of a system in this process, and print them."""
    rows = Rows(importlib.import_module(system))
    rows.qd.init(arch=rows.qd.cpu, cpu_max_num_threads=1)
    for name in chosen:
        GROUPS[name](rows)
    print("RESULT " + json.dumps(rows.found))


def main():
    """Measure systems in turn, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--with", dest="peers", help="a Python with Quadrants and Taichi")
    parser.add_argument("--rows", default=",".join(GROUPS), help="groups of rows")
    parser.add_argument("--system", help="measure this one here")
    given = parser.parse_args()
    if given.system:
        measure(given.system, given.rows.split(","))
        return
    systems = {"octants": sys.executable}
    if given.peers:
        systems |= dict.fromkeys(("quadrants", "taichi"), given.peers)
    least = {}
    for _ in range(ROUNDS):
        for system, python in systems.items():
            command = [python, __file__, "--system", system, "--rows", given.rows]
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
            for name, value in (
                json.loads(lines[-1].removeprefix("RESULT ")).items() if lines else ()
            ):
                row = least.setdefault(name, {})
                row[system] = min(value, row.get(system, value))
    print(f"| microseconds | {' | '.join(systems)} |\n|---|{'---|' * len(systems)}")
    for name, row in least.items():
        print(f"| {name} | {' | '.join(f'{row[s]:.4g}' if s in row else '' for s in systems)} |")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    os.environ.setdefault("TI_LOG_LEVEL", "warn")
    main()
