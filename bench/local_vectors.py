"""Programs whose local vectors are indexed at run time: forward and gradient, by their length.

``python bench/local_vectors.py [--arch ARCH] [--before PATH] [--save FOLDER]`` times a matrix times
a local vector ("product"), a recurrence ``h = tanh(W h)`` of several steps ("recurrence"), two
layers of tanh ("layers"), a recurrence with four gates ("lstm"), and a loop that reads and replaces
one component in each iteration ("in place"). With ``--before`` it also times the compiler in
another checkout; the processes alternate. Each time is the least of several. On a CPU it is
processor time of the one thread that works: a launch that takes longer than a time slice of the
scheduler would else seem twice as slow whenever the machine is busy.
"""
# mypy: ignore-errors

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from machine import describe_machine

LENGTHS = (8, 16, 32, 64)
PROGRAMS = ("product", "recurrence", "layers", "lstm", "in place")
STEPS, GATES, VISITS = 4, 4, 256
WORK = 1 << 24  # products of all work items in a launch
ROUNDS, REPEATS = 3, 5
FIELDS = ("compile", "compile_gradient", "forward", "gradient")


# -- in a process of its own ------------------------------------------------------------------


def programs(qd, length, items, dtype):
    """The kernels of a length by their names, with the field whose gradient is set before."""
    real = getattr(qd, dtype)
    weights = qd.field(real, (length, length), needs_grad=True)
    gates = qd.field(real, (GATES, length, length), needs_grad=True)
    start = qd.field(real, (items, length), needs_grad=True)
    result = qd.field(real, items, needs_grad=True)
    rng = np.random.default_rng(0)
    for array in (weights, gates, start):
        array.from_numpy(
            (rng.normal(size=array.shape) / length**0.5).astype(array.to_numpy().dtype)
        )

    @qd.kernel
    def product():
        for n in range(items):
            h = qd.Vector.zero(real, length)
            for j in range(length):
                h[j] = start[n, j]
            total = 0.0
            for i in range(length):
                s = 0.0
                for j in range(length):
                    s += weights[i, j] * h[j]
                total += s * s
            result[n] = total

    @qd.kernel
    def recurrence():
        for n in range(items):
            h = qd.Vector.zero(real, length)
            for j in range(length):
                h[j] = start[n, j]
            for _ in range(STEPS):
                o = qd.Vector.zero(real, length)
                for i in range(length):
                    s = 0.0
                    for j in range(length):
                        s += weights[i, j] * h[j]
                    o[i] = qd.tanh(s)
                h = o
            total = 0.0
            for i in range(length):
                total += h[i] * h[i]
            result[n] = total

    @qd.kernel
    def layers():
        for n in range(items):
            h = qd.Vector.zero(real, length)
            for i in range(length):
                s = 0.0
                for j in range(length):
                    s += weights[i, j] * start[n, j]
                h[i] = qd.tanh(s)
            total = 0.0
            for i in range(length):
                s = 0.0
                for j in range(length):
                    s += gates[0, i, j] * h[j]
                o = qd.tanh(s)
                total += o * o
            result[n] = total

    @qd.kernel
    def lstm():
        for n in range(items):
            h = qd.Vector.zero(real, length)
            c = qd.Vector.zero(real, length)
            for j in range(length):
                h[j] = start[n, j]
            for _ in range(STEPS):
                o = qd.Vector.zero(real, length)
                for i in range(length):
                    take, keep, give, new = 0.0, 1.0, 0.0, 0.0
                    for j in range(length):
                        take += gates[0, i, j] * h[j]
                        keep += gates[1, i, j] * h[j]
                        give += gates[2, i, j] * h[j]
                        new += gates[3, i, j] * h[j]
                    taken = qd.tanh(new) / (1.0 + qd.exp(-take))
                    c[i] = c[i] / (1.0 + qd.exp(-keep)) + taken
                    o[i] = qd.tanh(c[i]) / (1.0 + qd.exp(-give))
                h = o
            total = 0.0
            for i in range(length):
                total += h[i] * h[i]
            result[n] = total

    @qd.kernel
    def in_place():
        for n in range(items):
            h = qd.Vector.zero(real, length)
            for j in range(length):
                h[j] = start[n, j]
            for t in range(VISITS):
                h[(3 * t + 1) % length] = qd.sin(h[t % length] + h[(5 * t) % length])
            total = 0.0
            for i in range(length):
                total += h[i]
            result[n] = total

    kernels = (product, recurrence, layers, lstm, in_place)
    return dict(zip(PROGRAMS, kernels, strict=True)), result


def items_of(name, length):
    """So many work items that launches of all lengths have the same number of products."""
    each = {
        "product": length**2,
        "recurrence": STEPS * length**2,
        "layers": 2 * length**2,
        "lstm": STEPS * GATES * length**2,
        "in place": VISITS,
    }[name]
    return max(64, WORK // each)


def work(arch, dtype):
    """Answer each line of standard input, a name and a length, by a line of times in ms."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    import octants as qd

    more = {"cpu_max_num_threads": 1} if arch == "cpu" else {}
    real = getattr(qd, dtype)
    qd.init(arch=getattr(qd, arch), offline_cache=False, log_level="error", default_fp=real, **more)
    clock = time.thread_time if arch == "cpu" else time.perf_counter
    made = {}
    for line in sys.stdin:
        name, length = line.strip().rsplit(" ", 1)
        key, times = (name, int(length)), dict.fromkeys(FIELDS, float("inf"))
        is_new = key not in made
        if is_new:
            kernels, result = programs(qd, int(length), items_of(name, int(length)), dtype)
            made[key] = kernels[name], result
        kernel, result = made[key]
        result.grad.fill(1.0)
        for attempt in range(REPEATS + is_new):
            for call, field in ((kernel, "forward"), (kernel.grad, "gradient")):
                qd.sync()
                begin = clock()
                call()
                qd.sync()
                took = 1e3 * (clock() - begin)
                if is_new and not attempt:
                    field = "compile" if field == "forward" else "compile_gradient"
                times[field] = min(times[field], took)
        print(json.dumps(times), file=answers)


# -- the comparison ---------------------------------------------------------------------------


def start(source, options):
    environment = {**os.environ, "PYTHONPATH": str(source)}
    command = [sys.executable, __file__, "--work", "--arch", options.arch, "--dtype", options.dtype]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, **pipes)


def measure(options):
    """The least times by program, length and state of the compiler."""
    sources = {"now": Path(__file__).parents[1] / "src"}
    if options.before:
        sources["before"] = options.before / "src"
    workers = {name: start(source, options) for name, source in sources.items()}
    found = {}
    for _ in range(options.rounds):
        for name in options.programs:
            for length in options.lengths:
                for state, worker in workers.items():
                    print(f"{name} {length}", file=worker.stdin, flush=True)
                    times = json.loads(worker.stdout.readline())
                    known = found.setdefault((name, length, state), times)
                    for field in FIELDS:
                        known[field] = min(known[field], times[field])
    for worker in workers.values():
        worker.stdin.close()
        worker.wait()
    return found


def table(found):
    heads = ("program", "H", "state", "forward, ms", "gradient, ms", "gradient / forward")
    lines = [f"| {' | '.join((*heads, 'compile, s', 'compile gradient, s'))} |"]
    lines.append("|" + "---|" * (len(heads) + 2))
    for (name, length, state), times in found.items():
        ratio = times["gradient"] / times["forward"]
        cells = (f"{times[field]:.2f}" for field in ("forward", "gradient"))
        compiled = (f"{1e-3 * times[field]:.2f}" for field in FIELDS[:2])
        row = (name, str(length), state, *cells, f"{ratio:.1f}", *compiled)
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", default="cpu")
    parser.add_argument("--before", type=Path, help="another checkout, to compare with")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--programs", nargs="+", default=PROGRAMS)
    parser.add_argument("--dtype", default="f32", choices=("f32", "f64"))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--save", type=Path, help="a folder for the table")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.arch, options.dtype)
        return
    machine = ", ".join(f"{key} {value}" for key, value in describe_machine().items())
    text = f"{machine}\n\narch {options.arch}, {options.dtype}\n\n{table(measure(options))}\n"
    print(text)
    if options.save:
        name = f"local_vectors-{options.arch}-{options.dtype}-{time.strftime('%Y-%m-%d-%H%M%S')}.md"
        (options.save / name).write_text(text)


if __name__ == "__main__":
    main()
