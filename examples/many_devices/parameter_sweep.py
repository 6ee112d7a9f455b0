"""A parameter sweep: a pool of processes runs one kernel for many parameters.

Kernels pickle, so that they are sent like other functions, and the offline cache lets all processes
but the first load what it has compiled. `parameter_sweep_ray` runs the same function on Ray.
Run it: ``python examples/many_devices/parameter_sweep.py``.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np

import octants as qd


@qd.kernel
def range_of(angle: qd.f64, drag: qd.f64) -> qd.f64:
    """How far a ball flies that is thrown at an angle: the last step ends where it lands."""
    x, y, t = 0.0, 0.0, 0
    u, v = 20.0 * qd.cos(angle), 20.0 * qd.sin(angle)
    while y >= 0.0 and t < 10000:
        speed = qd.sqrt(u * u + v * v)
        u -= 0.001 * drag * speed * u
        v -= 0.001 * (9.81 + drag * speed * v)
        x += 0.001 * u
        y += 0.001 * v
        t += 1
    return x - u / v * y


def begin() -> None:
    """Prepare a process; the pool has the parallelism, so each uses one thread."""
    qd.init(arch=qd.cpu, default_fp=qd.f64, cpu_max_num_threads=1, log_level="error")


def at(kernel: Callable[..., float], drag: float, angle: float) -> tuple[float, float]:
    """The result for one set of parameters, and its derivative by the angle."""
    value, gradients = qd.ad.value_and_grad(kernel, by="angle")(angle, drag)
    return value, float(gradients["angle"])


def sweep(
    angles: Sequence[float], drag: float = 0.01, processes: int = 2
) -> list[tuple[float, float]]:
    """The range and its derivative for each angle."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=begin) as pool:
        return list(pool.map(partial(at, range_of, drag), angles))


if __name__ == "__main__":
    angles = np.linspace(0.3, 1.2, 10)
    for angle, (far, slope) in zip(angles, sweep(list(angles)), strict=True):
        print(f"angle {angle:.2f}: {far:6.2f} m, {slope:7.2f} m/rad")
