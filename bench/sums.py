"""Gradients of what many work items read: pairs, stencils, a convolution, a table.

``python bench/sums.py [--peer-python PATH] [--save FOLDER]`` times forward and backward runs, with
one thread and with two, in a process for each way: with plain additions in turns and to parts, with
atomic ones instead, and Quadrants, if it is installed. The time of one thread is that of the CPU,
so that other programs on the machine do not matter much; that of two is of the clock on the wall.
It is the least of several rounds that alternate between the processes.
"""
# mypy: ignore-errors

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from machine import describe_machine

WAYS = ("octants", "atomic", "quadrants")
BODIES, SIDE, ITEMS = 2048, 1024, 1 << 20
REPEATS = {"pairs": 3, "stencil": 10, "convolution": 3, "table": 5, "network": 5}


# -- in a process of its own ------------------------------------------------------------------


def workloads(qd):
    """Kernels without arguments, with the arrays whose gradients are set before a backward run."""

    def field(*shape):
        array = qd.field(qd.f32, shape=shape, needs_grad=True)
        values = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
        array.from_numpy(values)
        return array

    bodies, forces = field(BODIES, 3), field(BODIES, 3)
    image, filtered, weights = field(SIDE, SIDE), field(SIDE, SIDE), field(3, 3)
    table, layer, values = field(64), field(16, 8), field(ITEMS)
    index = qd.field(qd.i32, shape=ITEMS)
    index.from_numpy(np.random.default_rng(0).integers(0, 64, ITEMS).astype(np.int32))

    @qd.kernel
    def pairs():
        for i in range(BODIES):
            here = qd.Vector([bodies[i, 0], bodies[i, 1], bodies[i, 2]])
            force = qd.Vector([0.0, 0.0, 0.0])
            for j in range(BODIES):
                d = qd.Vector([bodies[j, 0], bodies[j, 1], bodies[j, 2]]) - here
                r2 = d.dot(d) + 0.01
                force += d / (r2 * qd.sqrt(r2))
            for k in qd.static(range(3)):
                forces[i, k] = force[k] * force[k]

    @qd.kernel
    def stencil():
        for i, j in qd.ndrange((1, SIDE - 1), (1, SIDE - 1)):
            across = image[i - 1, j] + image[i + 1, j]
            along = image[i, j - 1] + image[i, j + 1]
            filtered[i, j] = across + along - 4.0 * image[i, j]

    @qd.kernel
    def convolution():
        for i, j in qd.ndrange((1, SIDE - 1), (1, SIDE - 1)):
            total = 0.0
            for a in qd.static(range(3)):
                for b in qd.static(range(3)):
                    total += weights[a, b] * image[i + a - 1, j + b - 1]
            filtered[i, j] = total

    @qd.kernel
    def look_up():
        for i in range(ITEMS):
            values[i] = table[index[i]] * table[index[i]]

    @qd.kernel
    def network():
        for i in range(ITEMS // 16):
            total = 0.0
            for k in range(16):
                for m in range(8):
                    total += layer[k, m] * values[16 * i + k]
            filtered[i // SIDE, i % SIDE] = total

    return {
        "pairs": (pairs, forces),
        "stencil": (stencil, filtered),
        "convolution": (convolution, filtered),
        "table": (look_up, values),
        "network": (network, filtered),
    }


def work(way, threads):
    """Answer each line of standard input by a line of times: the least of a few, by workload."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    qd = importlib.import_module("quadrants" if way == "quadrants" else "octants")
    more = {"simd": True} if way != "quadrants" else {"ad_stack_experimental_enabled": True}
    qd.init(arch=qd.cpu, cpu_max_num_threads=threads, offline_cache=False, **more)
    if way == "atomic":
        # of the system that was chosen
        from octants.analysis.sums.privatisation import PrivatisedSums
        from octants.codegen.llvm import cpu

        cpu.find_sums = lambda *_: PrivatisedSums()
    kernels, clock = workloads(qd), time.process_time if threads == 1 else time.perf_counter
    for name in sys.stdin:
        kernel, output = kernels[name.strip()]
        least = [float("inf")] * 2
        for _ in range(REPEATS[name.strip()]):
            output.grad.fill(1.0)
            for k, call in enumerate((kernel, kernel.grad)):
                qd.sync()
                start = clock()
                call()
                qd.sync()
                least[k] = min(least[k], clock() - start)
        print(json.dumps(least), file=answers)


# -- all of them ------------------------------------------------------------------------------


def measure(options, threads):
    """By way and workload the least seconds forward and backward."""
    processes = {}
    for way in WAYS:
        python = options.peer_python if way == "quadrants" else sys.executable
        command = [python, __file__, "--work", way, "--threads", str(threads)]
        pipe = subprocess.PIPE
        errors = subprocess.DEVNULL
        processes[way] = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=errors, text=True
        )
    found = {}
    for name in REPEATS:
        for _ in range(options.rounds):
            for way, process in processes.items():
                times = ask(process, name)
                if times is not None:
                    known = found.setdefault((way, name), times)
                    found[way, name] = [min(pair) for pair in zip(known, times, strict=True)]
    for process in processes.values():
        process.kill()
    return found


def ask(process, name):
    """The times of one workload; None from a process that does not answer."""
    try:
        process.stdin.write(name + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())
    except (OSError, ValueError):
        return None


def rows(found, threads):
    """The lines of the table."""
    for name in REPEATS:
        if ("octants", name) not in found:
            continue
        forward, backward = found["octants", name]
        ratios = [backward / forward]
        ratios += [
            found[way, name][1] / backward if (way, name) in found else float("nan")
            for way in WAYS[1:]
        ]
        cells = [f"{1e3 * forward:.2f}", f"{1e3 * backward:.2f}", *(f"{r:.2f}" for r in ratios)]
        yield f"| {name} | {threads} | " + " | ".join(cells) + " |"


def main():
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=0, help="1 or 2; else both")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer-python", default=sys.executable, help="a Python with Quadrants")
    parser.add_argument("--save", type=Path, help="a folder for the table")
    options = parser.parse_args()
    if options.work:
        work(options.work, options.threads)
        return
    heads = ("workload", "threads", "forward, ms", "backward, ms", "backward / forward")
    heads += ("atomic / plain, backward", "Quadrants / Octants, backward")
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for threads in (options.threads,) if options.threads else (1, 2):
        lines += rows(measure(options, threads), threads)
    machine = ", ".join(f"{key} {value}" for key, value in describe_machine().items())
    text = "\n".join(
        [
            machine,
            "",
            "f32, `simd=True`; one thread in CPU time, two by the clock on the wall.",
            "",
            *lines,
            "",
        ]
    )
    print(text)
    if options.save:
        options.save.mkdir(parents=True, exist_ok=True)
        (options.save / f"sums-{time.strftime('%Y-%m-%d-%H%M%S')}.md").write_text(text)


if __name__ == "__main__":
    main()
