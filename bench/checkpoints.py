"""What bounded tapes cost: ``python bench/checkpoints.py``; the table also goes to bench/results.

Gradients of long loops within a budget, against the forward run and against records kept whole;
what blocks cost where loops are short; what they add to compile times. Variants alternate in one
process, and the best time of each counts.
"""
# mypy: ignore-errors

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np

os.environ.setdefault("BENCH_SYSTEM", "octants")

import octants as qd
import problems
from machine import describe_machine
from octants import driver
from octants.autodiff.plan import recording_plan as planning
from systems import fields

RESULTS = Path(__file__).parent / "results"
SHORT = {
    "affine": ((20_000, 4), (2_000, 100)),
    "ode": ((5_000, 4), (500, 100)),
    "rotation": ((5_000, 4), (500, 100)),
    "ragged": ((3_000, 4), (1_000, 9), (300, 32)),
}


def six_variables(items: int):
    """A recurrence of six doubles in each work item, and its input and output."""
    x = qd.field(qd.f64, shape=6, needs_grad=True)
    y = qd.field(qd.f64, shape=(), needs_grad=True)

    @qd.kernel
    def recurrence(n: qd.i32):
        for i in range(items):
            a, b, c, d, e, f = x[0], x[1], x[2], x[3], x[4], x[5] + 1e-5 * i
            for _ in range(n):
                a += 0.001 * (b * c - a)
                b -= 0.001 * (a * c - 0.1)
                c += 0.001 * (a * b - c + 0.2)
                d += 0.001 * (e * f - d)
                e -= 0.001 * (d * f * a - 0.1)
                f += 0.001 * (1.0 - f * f)
            y[None] += a + b + c + d + e + f

    x.from_numpy(np.linspace(0.1, 0.6, 6))
    return recurrence, x, y


def start(threads: int, budget: int) -> None:
    qd.init(
        arch=qd.cpu,
        default_fp=qd.f64,
        log_level="error",
        offline_cache=False,
        cpu_max_num_threads=threads,
        ad_stack_budget_bytes=budget,
    )


def timed(call) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def long_loop(threads: int, items: int, steps: int, budget: int, rounds: int):
    """Seconds of forward runs and gradients, the bytes of the tapes, and the gradient."""
    start(threads, budget)
    recurrence, x, y = six_variables(items)
    recurrence(1)
    recurrence.grad(1)
    forward = min(timed(lambda: recurrence(steps)) for _ in range(rounds))
    backward = []
    for _ in range(rounds):
        x.grad.fill(0)
        y.grad.fill(1)
        backward.append(timed(lambda: recurrence.grad(steps)))
    return (
        forward,
        backward[0],
        min(backward),
        driver.state.device.record_buffer_bytes,
        x.grad.to_numpy(),
    )


def long_loops(rounds: int) -> list[str]:
    steps = 10_000_000
    lines = [
        "| six f64 | budget | tape | forward | first gradient | gradient | gradient / forward |",
        "|---|---|---|---|---|---|---|",
    ]
    gradients = []
    cases = [
        ("10 million steps, 1 thread", 1, 1, steps, budget) for budget in (10**6, 10**9, 1 << 14)
    ]
    cases.append(("1e5 steps x 1e4 items, 2 threads", 2, 10_000, 100_000, 10**9))
    cases.append(("1e5 steps x 1e4 items, 2 threads", 2, 10_000, 100_000, 10**6))
    for name, threads, items, count, budget in cases:
        result = long_loop(threads, items, count, budget, rounds if items == 1 else 1)
        forward, first, best, nbytes, gradient = result
        gradients.append(gradient)
        lines.append(
            f"| {name} | {budget:,} | {nbytes:,} | {forward:.3f} s | {first:.3f} s | {best:.3f} s"
            f" | {best / forward:.2f} |"
        )
    same = all(np.array_equal(gradients[0], other) for other in gradients[1:3])
    apart = np.abs(gradients[3] / gradients[4] - 1).max()
    lines.append("")
    lines.append(f"In blocks and whole, the gradient of one item is {'equal' if same else 'NOT'}")
    lines[-1] += (
        f" to the last bit; those of 1e4 items, summed in any order, differ by {apart:.0e}."
    )
    return lines


def variants(name: str, size: tuple[int, int]):
    """A workload whose loops are recorded whole, and one with blocks."""
    chosen, found = planning._in_blocks, {}
    for mode in ("whole", "blocks"):
        planning._in_blocks = chosen if mode == "blocks" else lambda *_: frozenset()
        found[mode] = fields.PROGRAMS[name](problems.make(name, *size), "cpu")
        found[mode].forward()
        found[mode].seed()
        driver._artifacts.clear()
        found[mode].compile_seconds = timed(found[mode].backward)
    planning._in_blocks = chosen
    return found


def short_loops(rounds: int) -> list[str]:
    lines = ["| items x steps | whole | in blocks | ratio |", "|---|---|---|---|"]
    for name, sizes in SHORT.items():
        for size in sizes:
            start(1, 0)
            both = variants(name, size)
            best = dict.fromkeys(both, float("inf"))
            for _ in range(10 * rounds):
                for mode, workload in both.items():
                    best[mode] = min(best[mode], timed(workload.backward))
            whole, blocks = best["whole"] * 1e6, best["blocks"] * 1e6
            row = f"| {name}, {size[0]} x {size[1]} | {whole:.0f} us | {blocks:.0f} us"
            lines.append(f"{row} | {blocks / whole:.2f} |")
    return lines


def compile_times(rounds: int) -> list[str]:
    lines = ["| first gradient | whole | in blocks | ratio |", "|---|---|---|---|"]
    for name in problems.NAMES:
        best = {"whole": float("inf"), "blocks": float("inf")}
        for _ in range(rounds):
            start(1, 0)
            for mode, workload in variants(name, (4, 8)).items():
                best[mode] = min(best[mode], workload.compile_seconds)
        whole, blocks = best["whole"] * 1e3, best["blocks"] * 1e3
        lines.append(f"| {name} | {whole:.0f} ms | {blocks:.0f} ms | {blocks / whole:.2f} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    sections = [
        ", ".join(f"{key} {value}" for key, value in describe_machine().items()),
        "## Long loops",
        *long_loops(options.rounds),
        "## Short loops: the gradient, which needs no blocks, in code that can make them",
        *short_loops(options.rounds),
        "## Compile times",
        *compile_times(options.rounds),
    ]
    text = "\n".join(f"\n{line}\n" if line.startswith("## ") else line for line in sections) + "\n"
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / f"checkpoints-{time.strftime('%Y-%m-%d-%H%M%S')}.md"
    path.write_text(text)
    print(text, f"stored as {path}", file=sys.stdout)


if __name__ == "__main__":
    main()
