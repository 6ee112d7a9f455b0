"""A parameter sweep on Ray: a pool of actors runs one kernel for many parameters.

An actor is a process that begins Octants once, and then takes one set of parameters after the
other. The offline cache lets the other actors load what one has compiled, if they share a disk. Run
it: ``python examples/many_devices/parameter_sweep_ray.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import parameter_sweep
import ray
from ray.util import ActorPool


@ray.remote(num_cpus=1)
class Worker:
    """A process of the pool."""

    def __init__(self) -> None:
        parameter_sweep.begin()

    def at(self, drag: float, angle: float) -> tuple[float, float]:
        """The range of a throw, and its derivative by the angle."""
        return parameter_sweep.at(parameter_sweep.range_of, drag, angle)


def sweep(
    angles: Sequence[float], drag: float = 0.01, processes: int = 2
) -> list[tuple[float, float]]:
    """The range and its derivative for each angle."""
    pool = ActorPool([Worker.remote() for _ in range(processes)])
    return list(pool.map(lambda worker, angle: worker.at.remote(drag, angle), angles))


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False)
    angles = np.linspace(0.3, 1.2, 10)
    for angle, (far, slope) in zip(angles, sweep(list(angles)), strict=True):
        print(f"angle {angle:.2f}: {far:6.2f} m, {slope:7.2f} m/rad")
    ray.shutdown()
