"""Products with Jacobians and Hessians: ``python bench/jacobians.py``.

How long a tangent and an adjoint take if a launch propagates 1, 2, 4, 8 or 16 of them, and a
product with the Hessian: relative to a call of the function, and to a gradient. Rounds alternate.
The least time counts, and it is that of the process: a busy machine does not change it. The tables
go to the screen and to bench/results.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import octants as qd
from octants.ad.array_libraries.numpy_array_library import NumpyArrays
from octants.ad.functions import batched_directions
from octants.ad.functions.array_function import ArrayFunction

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "examples"))
AT_ONCE = 1, 2, 4, 8, 16
COUNTS = 1, 8, 64
vec, grid = qd.types.ndarray(qd.f64, 1), qd.types.ndarray(qd.f64, 2)


@qd.kernel
def springs(x: vec, force: vec):
    """A long chain: two reads and two atomic additions for each spring."""
    for i in range(x.shape[0] - 1):
        stretch = x[i + 1] - x[i] - 1.0
        pull = stretch + stretch**3
        force[i] += pull
        force[i + 1] -= pull


@qd.kernel
def pairs(x: vec, y: vec):
    """All pairs: a loop over the others for each point."""
    for i in x:
        total = 0.0
        for j in range(x.shape[0]):
            total += qd.exp(-((x[i] - x[j]) ** 2))
        y[i] = total


@qd.kernel
def diffuse(u: grid, after: grid):
    """A step of a nonlinear diffusion."""
    for i, j in after:
        up, down = qd.max(i - 1, 0), qd.min(i + 1, u.shape[0] - 1)
        left, right = qd.max(j - 1, 0), qd.min(j + 1, u.shape[1] - 1)
        around = u[up, j] + u[down, j] + u[i, left] + u[i, right]
        after[i, j] = u[i, j] + 0.2 * (1.0 + 0.1 * u[i, j] ** 2) * (around - 4.0 * u[i, j])


@qd.kernel
def energy(x: vec) -> qd.f64:
    """The loss of the chain."""
    total = 0.0
    for i in range(x.shape[0] - 1):
        stretch = x[i + 1] - x[i] - 1.0
        total += 0.5 * stretch**2 + 0.25 * stretch**4
    return total


@qd.kernel
def add_squares(y: vec, loss: qd.types.ndarray(qd.f64, 0)):
    for i in y:
        loss[None] += y[i] ** 2


@qd.kernel
def add_squares_2(y: grid, loss: qd.types.ndarray(qd.f64, 0)):
    for i, j in y:
        loss[None] += y[i, j] ** 2


@dataclass
class Case:
    """A program: a function with one active argument, and a loss of its result."""

    name: str
    function: Callable[..., Any]
    out: dict[str, Any]
    point: Any
    loss: Callable[..., Any]
    constants: tuple[Any, ...] = ()


def cases(scale: float) -> list[Case]:
    """The programs, with sizes that are `scale` times as large."""
    from ode_jax import integrate

    rng = np.random.default_rng(0)
    side = int(128 * scale**0.5)
    scratch = [qd.ndarray(qd.f64, (side, side), needs_grad=True) for _ in range(20)]

    def steps(u: Any, after: Any) -> None:
        for last, this in zip([u, *scratch[:-1]], scratch, strict=True):
            diffuse(last, this)
        diffuse(scratch[-1], after)

    def loss_of(function: Callable[..., Any], shape: Any, add: Any) -> Callable[..., Any]:
        def loss_of_case(x: Any, loss: Any) -> None:
            y = qd.ndarray(qd.f64, shape, needs_grad=True)
            function(x, y)
            add(y, loss)

        return loss_of_case

    def pendulums(start: Any, last: Any) -> None:
        integrate(start, constants, last)

    constants = np.array([0.1, 0.8])
    count = int(1000 * scale)
    chain, points = np.linspace(0.0, 1.2, int(200_000 * scale)), rng.normal(size=count)
    start, image = rng.normal(size=(count, 2)), rng.normal(size=(side, side))
    return [
        Case("springs", springs, {"force": "x"}, chain, loss_of(springs, chain.shape, add_squares)),
        Case("all pairs", pairs, {"y": "x"}, points, loss_of(pairs, points.shape, add_squares)),
        Case(
            "21 steps of diffusion",
            steps,
            {"after": "u"},
            image,
            loss_of(steps, image.shape, add_squares_2),
        ),
        Case(
            "pendulums, 400 steps",
            pendulums,
            {"last": "start"},
            start,
            loss_of(pendulums, start.shape, add_squares_2),
        ),
    ]


def timed(run: Callable[[], Any]) -> float:
    begin = time.process_time()
    run()
    return time.process_time() - begin


def least(runs: dict[Any, Callable[[], Any]], rounds: int) -> tuple[dict[Any, float], ...]:
    """The seconds of the first call of each, and the least of some rounds that alternate."""
    first = {key: timed(run) for key, run in runs.items()}
    found = [{key: timed(run) for key, run in runs.items()} for _ in range(rounds)]
    return first, {key: min(each[key] for each in found) for key in runs}


def with_at_once(most: int, run: Callable[[], Any]) -> Callable[[], Any]:
    def changed() -> None:
        batched_directions.AT_ONCE = most
        run()

    return changed


def measure(case: Case, rounds: int, most: int) -> tuple[list[str], list[str]]:
    """The rows of a case in both tables."""
    (argument,) = set(case.out.values())
    modes = "tangents", "adjoints"
    rng = np.random.default_rng(1)
    forward, backward = (each(case.function, out=case.out) for each in (qd.ad.jvp, qd.ad.vjp))
    directions = rng.normal(size=(most, *case.point.shape))
    made = ArrayFunction(case.function, case.out, (), NumpyArrays())
    runs: dict[Any, Callable[[], Any]] = {"value": lambda: made.value({argument: case.point})}

    def along(mode: str, count: int) -> Callable[[], Any]:
        given = directions[0] if count == 1 else directions[:count]
        if mode == "adjoints":
            return lambda: backward(case.point, adjoints=given)
        return lambda: forward(case.point, tangents={argument: given})

    sizes = [(n, size) for n in COUNTS if n <= most for size in AT_ONCE if size <= n]
    runs |= {
        (mode, count, size): with_at_once(size, along(mode, count))
        for count, size in sizes
        for mode in modes
    }
    gradient = qd.ad.value_and_grad(case.loss, out={"loss": ()}, by="x")
    product = qd.ad.hvp(case.loss, out={"loss": ()}, by="x")
    runs |= {"gradient": lambda: gradient(case.point)}
    runs |= {"product": lambda: product(case.point, direction={"x": directions[0]})}
    first, found = least(runs, rounds)
    unit = found["value"]
    table = []
    for mode in modes:
        for count, size in sizes:
            key = mode, count, size
            each, alone = found[key] / count, found[mode, 1, 1]
            table.append(
                f"| {case.name} | {mode} | {count} | {size} | {each * 1e3:.3f} |"
                f" {each / unit:.2f} | {each / alone:.2f} | {first[key] - found[key]:.2f} |"
            )
    second = (
        f"| {case.name} | {unit * 1e3:.3f} | {found['gradient'] * 1e3:.3f} |"
        f" {found['product'] / found['gradient']:.2f} |"
    )
    return table, [second]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", default="cpu")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--directions", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    arch = getattr(qd, options.arch)
    qd.init(
        arch=arch,
        default_fp=qd.f64,
        cpu_max_num_threads=options.threads,
        log_level="error",
        offline_cache=False,
    )
    one = [
        "| program | of | number | at once | ms each | / value | / alone | compile / s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    two = [
        "| program | value / ms | gradient / ms | hvp / gradient |",
        "|---|---|---|---|",
    ]
    for case in cases(options.scale):
        rows, more = measure(case, options.rounds, options.directions)
        one += rows
        two += more
        print("\n".join([*rows, *more]), flush=True)
    head = f"`{options.arch}`, {platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    text = "\n".join([f"# Products with Jacobians and Hessians\n\n{head}\n", *one, "", *two, ""])
    path = HERE / "results" / f"jacobians-{options.arch}-{time.strftime('%Y-%m-%d-%H%M%S')}.md"
    path.write_text(text)
    print(text, path)


if __name__ == "__main__":
    main()
