"""A program as users write them, for strict type checkers: funcs, matrices, sparse fields."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

import octants as qd

qd.init(arch=qd.cpu, log_level="error")

GRID = 32


@qd.dataclass
class Particle:
    x: qd.f32
    y: qd.f32
    mass: qd.f32


@qd.func
def smooth_root(x: qd.f32) -> qd.f32:
    return qd.sqrt(x * x + 1e-6)


@smooth_root.adjoint
def smooth_root_adjoint(x: qd.f32, g: qd.f32) -> qd.f32:
    return g * x / smooth_root(x)


@qd.real_func
def kinetic(v: Any, mass: qd.f32) -> Any:
    return 0.5 * mass * v.dot(v)


@qd.pyfunc
def clamp(x: float, low: float, high: float) -> float:
    return min(max(x, low), high)


grid = qd.field(qd.f32)
block = qd.root.pointer(qd.ij, GRID // 8)
block.dense(qd.ij, 8).place(grid)
particles = qd.field(Particle, shape=64)
frames = qd.Matrix.field(2, 2, qd.f32, shape=64, needs_grad=True)
loss = qd.field(qd.f32, shape=(), needs_grad=True)


@qd.kernel
def scatter() -> None:
    for p in particles:
        i, j = qd.cast(qd.Vector([particles[p].x, particles[p].y]) * GRID, qd.i32)
        grid[i, j] += particles[p].mass


@qd.kernel
def count_active() -> qd.i32:
    total = 0
    for _i, _j in grid:
        total += 1
    return total


@qd.kernel
def straighten(target: qd.Template, weight: qd.f32) -> None:
    for p in frames:
        turn = frames[p] @ frames[p].transpose()
        error = turn - qd.Matrix.identity(qd.f32, 2)
        for a, b in qd.static(qd.ndrange(2, 2)):
            target[None] += weight * smooth_root(error[a, b])


@qd.kernel
def speeds(velocities: qd.types.NDArray[Any, Any], out: qd.types.NDArray[Any, Any]) -> None:
    for i in velocities:
        out[i] = kinetic(velocities[i], 1.0)


@qd.data_oriented
class Wheel:
    """Methods that are funcs and kernels."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.angles = qd.ndarray(qd.f32, count, needs_grad=True)

    @qd.func
    def height(self, angle: qd.f32) -> qd.f32:
        return qd.sin(angle) * self.count

    @qd.kernel
    def top(self, angles: qd.types.NDArray[qd.f32, Literal[1]]) -> qd.f32:
        best = -1e9
        for i in range(angles.shape[0]):
            qd.atomic_max(best, self.height(angles[i]))
        return best

    @staticmethod
    @qd.func
    def spokes(count: qd.i32) -> qd.i32:
        return 2 * count


def to_list(values: npt.NDArray[Any]) -> list[float]:
    return [float(value) for value in values]


def main() -> None:
    for p in range(64):
        particles[p] = Particle(x=p / 64, y=0.5, mass=1.0)
        frames[p] = qd.Matrix([[1.0, 0.1], [0.0, 1.0]])
    scatter()
    with qd.ad.Tape(loss=loss):
        straighten(loss, 1 / 64)
    velocities = qd.Vector.ndarray(2, qd.f32, 3)
    velocities.fill(2.0)
    out = qd.ndarray(qd.f32, 3)
    speeds(velocities, out)
    wheel = Wheel(5)
    wheel.angles.from_numpy(np.linspace(0, 1, 5, dtype=np.float32))
    best: float = wheel.top(wheel.angles)
    total: int = count_active()
    energies: list[float] = to_list(out.to_numpy())
    root: float = smooth_root(3.0)
    print(total, f"{loss[None]:.4f}", energies, f"{best:.3f}", clamp(2.0, 0.0, 1.0))
    print(frames.grad[0][0, 1], math.isclose(root, 3.0, rel_tol=1e-3), Wheel.spokes(3))


if __name__ == "__main__":
    main()
