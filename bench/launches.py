"""What calls from Python cost: ``python bench/launches.py --peer-python PYTHON``.

Kernels that do next to nothing, gradients of them, and accesses of the host to one element, beside
other systems and a bare call through ctypes. Each system runs in a process of its own; rounds
alternate, and a number is the least processor time of a call in any of many short runs of any
round, since a busy machine makes every other one larger. The table goes to the screen and to
bench/results.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PACKAGES = {
    "octants": "octants",
    "quadrants": "quadrants",
    "taichi": "taichi",
    "warp": "warp",
    "jax": "jax",
    "numba": "numba",
    "ctypes": "ctypes",
}
CASES = {
    "kernel of two arrays that it names": "fields",
    "kernel with 4 arrays and a number": "arrays",
    "kernel with 4 numpy arrays and a number": "numpy",
    "kernel that returns a number": "returned",
    "reverse of a kernel": "grad",
    "gradient step: forward, clear, backward": "tape",
    "read one element": "read",
    "write one element": "write",
    "fill an array": "fill",
    "copy an array to numpy": "to_numpy",
}
ITEMS, CALLS, RUNS = 4, 100, 60
Calls = dict[str, Callable[[], Any]]


def main() -> None:
    """Measure, or be what is measured: ``launches.py --measure SYSTEM``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", choices=list(PACKAGES), help=argparse.SUPPRESS)
    parser.add_argument("--peer-python", default=sys.executable, help="the Python of the others")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(SYSTEMS[options.measure]())))
    else:
        report(compare(options), options)


def compare(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """The seconds of a call, by system and case."""
    found: dict[str, dict[str, float]] = {}
    for _ in range(options.rounds):
        for system in PACKAGES:
            python = sys.executable if system in ("octants", "ctypes") else options.peer_python
            command = [python, __file__, "--measure", system]
            output = subprocess.run(command, capture_output=True, text=True, check=False)
            if output.returncode:
                reason = (output.stderr.strip().splitlines() or ["?"])[-1]
                print(f"{system} is left out: {reason[:90]}", file=sys.stderr)
                continue
            known = found.setdefault(system, {})
            for case, seconds in json.loads(output.stdout.splitlines()[-1]).items():
                known[case] = min(seconds, known.get(case, seconds))
    return found


def measure(calls: Calls) -> dict[str, float]:
    """The least processor time of a call of each."""
    least = {}
    for case, call in calls.items():
        call()
        least[case] = min(timed(call) for _ in range(RUNS))
    return least


def timed(call: Callable[[], Any]) -> float:
    start = time.process_time()
    for _ in range(CALLS):
        call()
    return (time.process_time() - start) / CALLS


def report(found: dict[str, dict[str, float]], options: argparse.Namespace) -> None:
    """Write the table: microseconds of Octants, and how often others take that."""
    others = [system for system in found if system != "octants"]
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    lines = [
        f"{machine}, Python {platform.python_version()}; {options.rounds} rounds",
        "",
        "| call | Octants / us | " + " | ".join(f"{name} / Octants" for name in others) + " |",
        "| --- |" + " --- |" * (len(others) + 1),
    ]
    for title, case in CASES.items():
        ours = found["octants"][case]
        ratios = [f"{found[s][case] / ours:.2f}" if case in found[s] else "-" for s in others]
        lines.append(f"| {title} | {ours * 1e6:.2f} | " + " | ".join(ratios) + " |")
    text = "\n".join(lines) + "\n"
    print(text)
    options.output.mkdir(parents=True, exist_ok=True)
    stamp = time.strftime("%Y-%m-%d-%H%M%S")
    (options.output / f"launches-{stamp}.md").write_text(text)


# -- the systems ----------------------------------------------------------------------------------


def with_fields(qd: Any, **options: Any) -> Calls:
    """Octants, and the systems that it is named like."""
    import numpy as np

    qd.init(arch=qd.cpu, cpu_max_num_threads=1, log_level="error", **options)
    x, y = (qd.field(qd.f32, shape=ITEMS, needs_grad=True) for _ in range(2))
    loss = qd.field(qd.f32, shape=(), needs_grad=True)
    arrays = [qd.ndarray(qd.f32, shape=(ITEMS,)) for _ in range(4)]
    numbers = [np.zeros(ITEMS, np.float32) for _ in range(4)]

    @qd.kernel
    def fields():
        for i in x:
            y[i] = x[i] * 2.0

    def combine(a, b, c, d, s):
        for i in range(4):
            a[i] = b[i] + s * c[i] * d[i]

    # Taichi does not read annotations that are text.
    array = qd.types.ndarray(qd.f32, ndim=1)
    combine.__annotations__ = {**dict.fromkeys("abcd", array), "s": qd.f32}
    combine = qd.kernel(combine)

    @qd.kernel
    def squares():
        for i in x:
            loss[None] += x[i] * x[i]

    def tape() -> None:
        with qd.ad.Tape(loss=loss):
            squares()

    def grad() -> None:
        squares.grad()

    def write() -> None:
        x[0] = 1.0

    return {
        "fields": fields,
        "arrays": lambda: combine(*arrays, 0.5),  # type: ignore[call-arg]
        "numpy": lambda: combine(*numbers, 0.5),  # type: ignore[call-arg]
        "grad": grad,
        "tape": tape,
        "read": lambda: x[0],
        "write": write,
        "fill": lambda: x.fill(1.0),
        "to_numpy": x.to_numpy,
    }


def octants() -> Calls:
    import octants as qd

    calls = with_fields(qd, offline_cache=False)
    x = qd.field(qd.f32, shape=ITEMS)

    @qd.kernel
    def returned() -> qd.f32:  # Taichi and Quadrants end the process where this is text
        return x[0] + 1.0

    return {**calls, "returned": returned}


def quadrants() -> Calls:
    import quadrants as qd

    return with_fields(qd)


def taichi() -> Calls:
    import taichi as ti

    return with_fields(ti)


def warp() -> Calls:
    import numpy as np
    import warp as wp

    wp.config.quiet = True  # type: ignore[attr-defined]
    wp.init()
    device = "cpu"
    x, y = (wp.zeros(ITEMS, dtype=float, device=device, requires_grad=True) for _ in range(2))
    loss = wp.zeros(1, dtype=float, device=device, requires_grad=True)
    arrays = [wp.zeros(ITEMS, dtype=float, device=device) for _ in range(4)]

    @wp.kernel
    def double(x: wp.array(dtype=float), y: wp.array(dtype=float)):
        i = wp.tid()
        y[i] = x[i] * 2.0

    @wp.kernel
    def combine(
        a: wp.array(dtype=float),
        b: wp.array(dtype=float),
        c: wp.array(dtype=float),
        d: wp.array(dtype=float),
        s: float,
    ):
        i = wp.tid()
        a[i] = b[i] + s * c[i] * d[i]

    @wp.kernel
    def squares(x: wp.array(dtype=float), loss: wp.array(dtype=float)):
        i = wp.tid()
        wp.atomic_add(loss, 0, x[i] * x[i])

    def tape() -> None:
        loss.zero_()
        tape = wp.Tape()
        with tape:
            wp.launch(squares, dim=ITEMS, inputs=[x, loss], device=device)
        tape.backward(loss=loss)
        tape.zero()

    def launch(kernel: Any, inputs: list[Any]) -> None:
        wp.launch(kernel, dim=ITEMS, inputs=inputs, device=device)

    assert np.all(x.numpy() == 0)
    return {
        "fields": lambda: launch(double, [x, y]),
        "arrays": lambda: launch(combine, [*arrays, 0.5]),
        "tape": tape,
        "fill": lambda: x.fill_(1.0),
        "to_numpy": x.numpy,
    }


def jax() -> Calls:
    import jax
    import numpy as np

    x = jax.numpy.zeros(ITEMS)
    arrays = [jax.numpy.zeros(ITEMS) for _ in range(4)]
    double = jax.jit(lambda x: x * 2.0)
    combine = jax.jit(lambda b, c, d, s: b + s * c * d)
    first = jax.jit(lambda x: x[0] + 1.0)
    step = jax.jit(jax.value_and_grad(lambda x: (x * x).sum()))

    def tape() -> None:
        step(x)[1].block_until_ready()

    return {
        "fields": lambda: double(x).block_until_ready(),
        "arrays": lambda: combine(*arrays[1:], 0.5).block_until_ready(),
        "returned": lambda: float(first(x)),
        "tape": tape,
        "read": lambda: float(x[0]),
        "to_numpy": lambda: np.asarray(x).copy(),
    }


def numba() -> Calls:
    import numba
    import numpy as np

    x, y = np.zeros(ITEMS, np.float32), np.zeros(ITEMS, np.float32)
    arrays = [np.zeros(ITEMS, np.float32) for _ in range(4)]

    @numba.njit
    def double(x, y):
        for i in range(len(x)):
            y[i] = x[i] * 2.0

    @numba.njit
    def combine(a, b, c, d, s):
        for i in range(len(a)):
            a[i] = b[i] + s * c[i] * d[i]

    @numba.njit
    def first(x):
        return x[0] + 1.0

    return {
        "fields": lambda: double(x, y),
        "numpy": lambda: combine(*arrays, 0.5),  # type: ignore[call-arg]
        "returned": lambda: first(x),
    }


def bare() -> Calls:
    import ctypes

    function = ctypes.CDLL(None).abs
    function.argtypes = [ctypes.c_int]
    return {"fields": lambda: function(1), "arrays": lambda: function(1)}


SYSTEMS = {
    "octants": octants,
    "quadrants": quadrants,
    "taichi": taichi,
    "warp": warp,
    "jax": jax,
    "numba": numba,
    "ctypes": bare,
}

if __name__ == "__main__":
    main()
