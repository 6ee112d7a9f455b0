"""What kernels that update several ndarrays cost: ``python bench/ndarray_updates.py NAME=SRC ...``.

Each contender is a system and where Python finds it: ``before=/path/octants/src``; that of
``quadrants`` is the Python that has it. A kernel may be passed one array twice, so that its updates
may have to be atomic. Processes take turns, and a number is the least processor time of a call in
any round, on one thread. The table goes to the screen, and to the file of ``--output``.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ITEMS, FEW, SECONDS = 1000, 4, 0.2
KINDS = "ndarrays", "numpy", "torch"


def main() -> None:
    """Measure, or be what is measured: ``ndarray_updates.py --measure MODULE``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("contenders", nargs="*")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    found: dict[str, dict[str, float]] = {}
    contenders = dict(each.split("=", 1) for each in options.contenders)
    for _ in range(options.rounds):
        for name, place in contenders.items():
            least = found.setdefault(name, {})
            for case, seconds in run(name, place).items():
                least[case] = min(seconds, least.get(case, seconds))
    text = table(found)
    print(text)
    if options.output:
        options.output.write_text(text)


def run(name: str, place: str) -> dict[str, float]:
    """One round of a contender, in a process of its own."""
    is_peer = name == "quadrants"
    python = place if is_peer else sys.executable
    module = name if is_peer else "octants"
    environment = {**os.environ, "PYTHONPATH": "" if is_peer else place}
    command = [python, __file__, "--measure", module]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def table(found: dict[str, dict[str, float]]) -> str:
    """Microseconds of a call, milliseconds of first calls."""
    names = list(found)
    lines = ["| call | " + " | ".join(names) + " |", "| --- |" + " --- |" * len(names)]
    cases = dict.fromkeys(case for each in found.values() for case in each)
    for case in cases:
        scale = 1e3 if case.startswith("first") else 1e6
        cells = [f"{found[n][case] * scale:.2f}" if case in found[n] else "-" for n in names]
        lines.append(f"| {case} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def measure(name: str) -> dict[str, float]:
    """The least processor time of a call of each kernel, and that of its first call."""
    qd = __import__(name)
    system: dict[str, Any] = {"offline_cache": False}
    qd.init(arch=qd.cpu, cpu_max_num_threads=1, **system)
    sources = {kind: made for kind in KINDS if (made := arrays(qd, kind)) is not None}
    least = {}
    for case, (kernel, count) in kernels(qd).items():
        for kind, given in sources.items():
            start = time.process_time()
            kernel(*given[:count], ITEMS)
            if kind == "ndarrays":
                least[f"first call: {case}"] = time.process_time() - start
            for items in (ITEMS, FEW):
                call = functools.partial(kernel, *given[:count], items)
                least[f"{case}, {kind}, {items} items"] = timed(call, qd.sync)
    return least


def timed(call: Callable[[], Any], sync: Callable[[], Any]) -> float:
    best, end = float("inf"), time.process_time() + SECONDS
    while time.process_time() < end:
        start = time.process_time()
        for _ in range(200):
            call()
        sync()
        best = min(best, (time.process_time() - start) / 200)
    return best


def arrays(qd: Any, kind: str) -> list[Any] | None:
    """Four arrays; None where the library is missing."""
    import numpy as np

    values = [np.linspace(1.0, 2.0, ITEMS, dtype=np.float32) for _ in range(4)]
    if kind == "numpy":
        return values
    if kind == "torch":
        try:
            import torch
        except ImportError:
            return None
        return [torch.from_numpy(each) for each in values]
    made = [qd.ndarray(qd.f32, shape=(ITEMS,)) for _ in range(4)]
    for array, each in zip(made, values, strict=True):
        array.from_numpy(each)
    return made


def kernels(qd: Any) -> dict[str, tuple[Any, int]]:
    """Kernels, each with how many arrays it takes."""
    array = qd.types.ndarray(qd.f32, ndim=1)

    def kernel(function: Any) -> Any:
        # Quadrants does not read annotations that are text.
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        function.__annotations__ = {**dict.fromkeys(names[:-1], array), names[-1]: qd.i32}
        return qd.kernel(function)

    def updates(v, q, n):  # type: ignore[no-untyped-def]
        for i in range(n):
            v[i] += 0.001
            q[i] += 0.001 * v[i]

    def particles(v, x, f, m, n):  # type: ignore[no-untyped-def]
        for i in range(n):
            v[i] += 0.001 * f[i] / m[i]
            x[i] += 0.001 * v[i]

    def scaled_sum(y, x, n):  # type: ignore[no-untyped-def]
        for i in range(n):
            y[i] += 0.001 * x[i]

    def stencil(y, x, n):  # type: ignore[no-untyped-def]
        for i in range(1, n - 1):
            y[i] = 0.25 * (x[i - 1] + 2.0 * x[i] + x[i + 1])

    def bands(y, x, n):  # type: ignore[no-untyped-def]
        for i in range(n):
            for j in range(16):
                y[i] += 0.001 * x[j]

    def mixed(y, z, w, x, n):  # type: ignore[no-untyped-def]
        for i in range(n):
            y[i] = x[i] * 2.0
            z[i] = x[i] + y[i]
            w[i] += 0.001 * z[i]

    return {
        "two updates": (kernel(updates), 2),
        "a step of particles": (kernel(particles), 4),
        "y += a x": (kernel(scaled_sum), 2),
        "a stencil": (kernel(stencil), 2),
        "a sum in a loop": (kernel(bands), 2),
        "stores and an update": (kernel(mixed), 4),
    }


if __name__ == "__main__":
    main()
