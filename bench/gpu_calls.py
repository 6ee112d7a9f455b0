"""What small programs and short loops cost on a GPU: ``python bench/gpu_calls.py cuda vulkan``.

The programs are those of users that the other benchmarks do not have: a tape around one kernel, a
kernel of numpy arrays, a nest of loops, a recurrence of few steps, a histogram. Each API runs in a
process of its own. A number is the least wall time of a call among some runs of several calls in a
row, each run until all is done. The table goes to the screen and to bench/results.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
ITEMS, SUMMED = 1_000_000, 1 << 24
STEPS, MASSES = 64, 64
BUSY = 0.5
Case = tuple[Callable[[], Any], int]
"""A call, and how many of them are in a run."""


def main() -> None:
    """Measure, and write the table; or be what is measured: ``--measure API``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("apis", nargs="*", default=["cuda", "vulkan"])
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--only", nargs="+", default=[""], help="texts in the names of calls")
    parser.add_argument("--rounds", type=int, default=2, help="in which the APIs take turns")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measured(options.measure, options.only)))
        return
    found: dict[str, dict[str, float]] = {api: {} for api in options.apis}
    device = ""
    for api in options.apis * options.rounds:
        command = [sys.executable, __file__, "--measure", api, "--only", *options.only]
        output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        device, times = json.loads(output.splitlines()[-1])
        for name, seconds in times.items():
            found[api][name] = min(seconds, found[api].get(name, seconds))
    report(device, found, options.output)


def report(device: str, found: dict[str, dict[str, float]], folder: Path) -> None:
    """Write the table: microseconds of a call."""
    lines = [
        f"{device}, Python {sys.version.split()[0]}; microseconds of a call",
        "",
        "| call | " + " | ".join(found) + " |",
        "|---|" + "---|" * len(found),
    ]
    for name in next(iter(found.values())):
        lines.append(
            f"| {name} | " + " | ".join(f"{1e6 * t[name]:.4g}" for t in found.values()) + " |"
        )
    text = "\n".join(lines) + "\n"
    print(text)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"gpu_calls-{time.strftime('%Y-%m-%d-%H%M%S')}.md").write_text(text)


def measured(api: str, only: list[str]) -> tuple[str, dict[str, float]]:
    """The device, and the seconds of a call of each case whose name contains one of some texts."""
    import octants as qd

    qd.init(arch=getattr(qd, api), offline_cache=False, log_level="error")
    cases = {**loops(qd), **bodies(qd), **vectors(qd), **sums(qd), **calls(qd), **masses(qd)}
    if api == "cuda" and "JAX" in " ".join(only):
        cases |= functions_of_jax(qd)
    chosen = {name: case for name, case in cases.items() if any(text in name for text in only)}
    return str(qd.driver.state.device), {name: timed(qd, *case) for name, case in chosen.items()}


def timed(qd: Any, call: Callable[[], Any], count: int, *, first: int = 20, runs: int = 8) -> float:
    """The least seconds of a call in any of some runs, after ``first`` calls and `BUSY` seconds.

    The first calls compile, and the driver gets graphs of what repeats. On Vulkan, NVIDIA's driver
    lowers the clock meanwhile, and raises it after 0.3 s of work.
    """
    for _ in range(first):
        call()
    qd.sync()
    end = time.perf_counter() + BUSY
    while time.perf_counter() < end:
        for _ in range(count):
            call()
        qd.sync()
    best = float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        for _ in range(count):
            call()
        qd.sync()
        best = min(best, (time.perf_counter() - start) / count)
    return best


def loops(qd: Any) -> dict[str, Case]:
    """A nest of loops with and without a carried value, and recurrences, over a million items."""
    random = np.random.default_rng(0)
    x, y = (qd.field(qd.f32, ITEMS, needs_grad=True) for _ in range(2))
    n = qd.field(qd.i32, ITEMS)
    x.from_numpy(random.random(ITEMS, np.float32))
    n.from_numpy(random.integers(0, 33, ITEMS).astype(np.int32))
    y.grad.fill(1.0)

    @qd.kernel
    def nest():
        for i in x:
            v = x[i]
            for j in range(n[i]):
                for k in range(j):
                    v = qd.sin(v + 0.01 * k) * 0.9 + 0.05 * x[i]
            y[i] = v

    @qd.kernel
    def sums():
        for i in x:
            s = 0.0
            for j in range(n[i]):
                for k in range(j):
                    s += qd.sin(x[i] + 0.01 * k) * 0.9
            y[i] = s

    @qd.kernel
    def recurrence(steps: qd.i32):
        for i in x:
            v = x[i]
            for _ in range(steps):
                v = qd.sin(v) * 0.95 + 0.01
            y[i] = v

    return {
        "nest: forward": (nest, 20),
        "nest: backward": (nest.grad, 20),
        "nest of a sum: forward": (sums, 20),
        "nest of a sum: backward": (sums.grad, 20),
        "recurrence of 64 steps: forward": (lambda: recurrence(64), 20),
        "recurrence of 64 steps: backward": (lambda: recurrence.grad(64), 20),
        "recurrence of 1024 steps: forward": (lambda: recurrence(1024), 20),
        "recurrence of 1024 steps: backward": (lambda: recurrence.grad(1024), 20),
    }


def bodies(qd: Any) -> dict[str, Case]:
    """Softened gravity between all pairs of bodies."""
    random = np.random.default_rng(0)
    cases: dict[str, Case] = {}
    for count in (4096, 16384):
        x, y = (qd.Vector.field(3, qd.f32, count, needs_grad=True) for _ in range(2))
        x.from_numpy(random.random((count, 3), np.float32))
        y.grad.fill(1.0)

        @qd.kernel
        def pairwise(x: qd.Template, y: qd.Template):
            for i in x:
                force = qd.Vector([0.0, 0.0, 0.0])
                for j in range(x.shape[0]):
                    d = x[j] - x[i]
                    r2 = d.dot(d) + 0.01
                    force += d / (r2 * qd.sqrt(r2))
                y[i] = force * force

        cases[f"pairs of {count} bodies: forward"] = (partial(pairwise, x, y), 20)
        cases[f"pairs of {count} bodies: backward"] = (partial(pairwise.grad, x, y), 20)
    return cases


def vectors(qd: Any) -> dict[str, Case]:
    """A linear recurrence, and Lorenz 96 with six variables by Runge and Kutta's method."""
    random = np.random.default_rng(0)
    a, b, c = (qd.field(qd.f32, ITEMS, needs_grad=True) for _ in range(3))
    x, y = (qd.Vector.field(6, qd.f32, ITEMS, needs_grad=True) for _ in range(2))
    for array in (a, b, x):
        array.from_numpy(random.random(array.to_numpy().shape, np.float32))
    for array in (c, y):
        array.grad.fill(1.0)

    @qd.kernel
    def linear():
        for i in a:
            v = a[i]
            for _ in range(1024):
                v = v * b[i] + 0.01
            c[i] = v

    @qd.func
    def slope(v):
        rates = qd.Vector([0.0] * 6, dt=qd.f32)
        for k in qd.static(range(6)):
            neighbours = v[(k + 1) % 6] - v[(k + 4) % 6]
            rates[k] = neighbours * v[(k + 5) % 6] - v[k] + 2.0
        return rates

    @qd.kernel
    def ode():
        for i in x:
            v = x[i]
            for _ in range(64):
                k1 = slope(v)
                k2 = slope(v + 0.005 * k1)
                k3 = slope(v + 0.005 * k2)
                k4 = slope(v + 0.01 * k3)
                v = v + (0.01 / 6.0) * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
            y[i] = v

    return {
        "linear recurrence: forward": (linear, 20),
        "linear recurrence: backward": (linear.grad, 20),
        "ode of six variables: forward": (ode, 20),
        "ode of six variables: backward": (ode.grad, 20),
    }


def sums(qd: Any) -> dict[str, Case]:
    """Sums of sixteen million work items into few elements, at random indices."""
    random = np.random.default_rng(0)
    cases: dict[str, Case] = {}
    for places in (256, 4096, 8192, 65536):
        at = qd.field(qd.i32, SUMMED)
        at.from_numpy(random.integers(0, places, SUMMED).astype(np.int32))
        field, array = qd.field(qd.f32, places), qd.ndarray(qd.f32, places)

        def into(y, at=at):
            for i in at:
                y[at[i]] += 1.0

        into.__annotations__ = {"y": qd.types.ndarray(qd.f32, 1), "at": qd.Template}
        into_array = qd.kernel(into)

        @qd.kernel
        def into_field(at: qd.Template, field: qd.Template):
            for i in at:
                field[at[i]] += 1.0

        cases[f"sums into {places} elements of a field"] = (partial(into_field, at, field), 5)
        if places <= 4096:
            into_this = partial(into_array, array, at)
            cases[f"sums into {places} elements of an ndarray"] = (into_this, 5)
    return cases


def calls(qd: Any) -> dict[str, Case]:
    """Calls of kernels that do next to nothing."""
    a, b = (qd.field(qd.f32, 4, needs_grad=True) for _ in range(2))
    loss = qd.field(qd.f32, (), needs_grad=True)
    n = qd.field(qd.i32, 4)
    n.fill(3)

    @qd.kernel
    def double():
        for i in a:
            b[i] = a[i] * 2.0

    @qd.kernel
    def squares():
        for i in a:
            loss[None] += a[i] * a[i]

    @qd.kernel
    def looped():
        for i in a:
            v = a[i]
            for _ in range(n[i]):
                v = qd.sin(v) * 0.9
            b[i] = v

    def add(p, q):
        for i in p:
            p[i] += q[i]

    add.__annotations__ = dict.fromkeys("pq", qd.types.ndarray(qd.f32, ndim=1))
    add = qd.kernel(add)
    numbers = [np.zeros(64, np.float32) for _ in range(2)]
    arrays = [qd.ndarray(qd.f32, 64) for _ in range(2)]

    def tape() -> None:
        with qd.ad.Tape(loss=loss):
            squares()

    return {
        "a launch": (double, 1000),
        "its gradient": (double.grad, 1000),
        "the gradient of a recorded loop": (looped.grad, 500),
        "a tape around one kernel": (tape, 300),
        "a kernel of two numpy arrays": (lambda: add(*numbers), 300),
        "a kernel of two ndarrays": (lambda: add(*arrays), 1000),
        "an array from numpy": (lambda: arrays[0].from_numpy(numbers[0]), 300),
        "an array to numpy": (arrays[0].to_numpy, 300),
    }


def functions_of_jax(qd: Any) -> dict[str, Case]:
    """A kernel of a million floats as a function of JAX, and the same function in JAX alone."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax
    import jax.numpy as jnp

    def waves(x, y):
        for i in x:
            y[i] = qd.sin(x[i]) * x[i]

    waves.__annotations__ = dict.fromkeys("xy", qd.types.ndarray(qd.f32, ndim=1))
    ours = qd.jax.function(qd.kernel(waves), out={"y": "x"})
    x = jnp.linspace(0.0, 1.0, ITEMS)
    cases: dict[str, Case] = {}
    for name, function in {"a kernel": ours, "none": lambda x: jnp.sin(x) * x}.items():
        value = jax.jit(function)
        gradient = jax.jit(jax.grad(lambda x, function=function: function(x).sum()))
        calls = {"value": value, "gradient": gradient, "value, not compiled": function}
        for what, call in calls.items():
            cases[f"JAX, {name}: {what}"] = (partial(_wait, call, x), 20)
    return cases


def _wait(function: Callable[[Any], Any], x: Any) -> None:
    function(x).block_until_ready()


def masses(qd: Any) -> dict[str, Case]:
    """A chain of masses and springs: a launch for each of 64 steps, on a tape."""
    x, v = (qd.field(qd.f32, (STEPS + 1, MASSES), needs_grad=True) for _ in range(2))
    loss = qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def step(t: qd.i32):
        for i in range(MASSES):
            left = x[t, i - 1] if i > 0 else 0.0
            right = x[t, i + 1] if i < MASSES - 1 else 0.0
            force = (left + right - 2 * x[t, i]) * 10.0 - 0.1 * v[t, i]
            v[t + 1, i] = v[t, i] + 0.01 * force
            x[t + 1, i] = x[t, i] + 0.01 * v[t + 1, i]

    @qd.kernel
    def total():
        for i in range(MASSES):
            loss[None] += x[STEPS, i] * x[STEPS, i]

    def difference(given):
        for i in range(MASSES):
            loss[None] += (x[STEPS, i] - given[i]) ** 2

    difference.__annotations__ = {"given": qd.types.ndarray(qd.f32, ndim=1)}
    difference = qd.kernel(difference)
    numbers = np.zeros(MASSES, np.float32)

    def forward() -> None:
        for t in range(STEPS):
            step(t)
        total()

    def whole() -> None:
        with qd.ad.Tape(loss=loss):
            forward()

    def with_numpy() -> None:
        with qd.ad.Tape(loss=loss):
            for t in range(STEPS):
                step(t)
            difference(numbers)

    return {
        "64 steps of masses: forward": (forward, 10),
        "with the tape": (whole, 10),
        "with the tape, the last kernel of a numpy array": (with_numpy, 10),
    }


if __name__ == "__main__":
    main()
