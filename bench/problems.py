"""What the workloads compute, and on which numbers: the same for every system."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from compile_cases import STEPS

TITLES = {
    "recurrence": "v = sin(v) * 0.95 + 0.01",
    "affine": "v = v * a + 0.01, with the gradients of v and a",
    "ragged": "the recurrence in a nest, whose bounds depend on the item and on the outer loop",
    "nest": "v = sin(v + 0.01 * k) * 0.9 + 0.05 * x in such a nest, with outer bounds of 0 to 32",
    "pairwise": "softened gravity between all pairs of bodies",
    "ode": "Lorenz 96 with six variables, by the classical Runge-Kutta method",
    "rotation": "a 3x3 rotation matrix, turned by a body rate: R = R + R U",
    "decay": "v = 0.95 * v + 0.01, whose gradient needs nothing of what it computed",
    "harmonics": "v = v + sin(k * x) in step k, whose gradient needs nothing, either",
    "springs": "a sheet of 64 x 64 masses, a launch for each of 64 steps, on a tape",
    "springs-graph": "the same as a graph of launches; the backward one has all of them",
}

# (items, steps) of runs that take seconds, and of those that results are told of.
QUICK = {
    "recurrence": (10_000, 64),
    "affine": (10_000, 64),
    "ragged": (2_000, 16),
    "nest": (2_000, 16),
    "pairwise": (512, 1),
    "ode": (1_000, 64),
    "rotation": (1_000, 64),
}
FULL = {
    "recurrence": (100_000, 256),
    "affine": (100_000, 256),
    "ragged": (10_000, 32),
    "nest": (10_000, 32),
    "pairwise": (4_096, 1),
    "ode": (10_000, 256),
    "rotation": (10_000, 256),
}
NAMES = tuple(FULL)
# The workloads of GPUs, and those sizes at which a test takes them for granted.
GPU = {
    "recurrence": (1_000_000, 1024),
    "affine": (1_000_000, 1024),
    "ode": (1_000_000, 64),
    "pairwise": (16_384, 1),
    "springs": (4_096, 64),
    "springs-graph": (4_096, 64),
    "decay": (1_000_000, 1024),
    "harmonics": (1_000_000, 1024),
}
GPU_QUICK = {
    "recurrence": (1_000, 64),
    "affine": (1_000, 64),
    "ode": (1_000, 32),
    "pairwise": (512, 1),
    "springs": (256, 4),
    "springs-graph": (256, 4),
    "decay": (1_000, 64),
    "harmonics": (1_000, 64),
}
# A gradient further from the reference than this, relative to its largest element, is wrong.
TOLERANCE = 1e-3


@dataclass(frozen=True)
class Problem:
    """A workload of some size.

    Inputs, of which gradients are asked for, and the output are f32 with a row for each item, of
    one number or of several. In `ragged` and `nest` the outer loop of item i makes ``count[i]``
    steps. The gradients are those of the sum of all outputs.
    """

    name: str
    items: int
    steps: int
    inputs: tuple[Any, ...]
    width: int
    count: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the output."""
        return (self.items,) if self.width == 1 else (self.items, self.width)

    @property
    def side(self) -> int:
        """The masses in a row of `springs`."""
        return math.isqrt(self.items)


def make(name: str, items: int, steps: int) -> Problem:
    """The workload of that name and size; its numbers are the same each time."""
    width = {"ode": 6, "rotation": 3, "pairwise": 3}.get(name, 1)
    shape = (items,) if width == 1 else (items, width)
    if name.startswith("springs"):
        return Problem(name, items, steps, _sheet(math.isqrt(items)), 6, None)
    inputs = [_uniform(shape, -1.0 if name in ("rotation", "pairwise") else 0.0, 1.0)]
    if name == "affine":
        inputs.append(_uniform(shape, 0.98, 0.99))
    if name == "harmonics":
        inputs[0] /= 20
    trips = items if name == "pairwise" else steps
    count = (steps - np.arange(items) % 9).astype(np.int32)
    if name == "nest":
        count = np.random.default_rng(1).integers(0, steps + 1, items).astype(np.int32)
    return Problem(name, items, trips, tuple(inputs), width, count)


def _sheet(side: int) -> tuple[Any, Any]:
    """The positions and the velocities of side x side masses, about one apart."""
    places = np.stack(np.meshgrid(np.arange(side), np.arange(side), indexing="ij"), axis=-1)
    positions = _uniform((side, side, 3), -0.2, 0.2)
    positions[..., :2] += places
    return positions, _uniform((side, side, 3), -1.0, 1.0)


def _uniform(shape: tuple[int, ...], low: float, high: float) -> Any:
    return np.random.default_rng(0).uniform(low, high, shape).astype(np.float32)


def chain(statements: int, module: str) -> list[str]:
    """The lines of a chain of nonlinear statements on v and w; a module has its functions."""
    steps = [step.replace("qd.", f"{module}.") for step in STEPS]
    return [steps[k % len(steps)] for k in range(statements)]


CHAIN_ITEMS, CHAIN_STEPS = 64, 2
