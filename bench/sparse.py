"""MPM on a grid of sparse blocks: Octants beside Quadrants, on the CPU, by process time.

    python bench/sparse.py                      # both, in processes of their own, alternating
    python bench/sparse.py octants --steps 50   # one of them

A cube of particles falls in a grid of 128^3 nodes: blocks of 4^3 nodes in 32^3 sparse cells, of
which some hundred are active. A step deactivates all cells, scatters particles, updates the active
nodes and gathers. It prints the time of a step and a checksum of the particles.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import time
from typing import Any

SYSTEMS = ("octants", "quadrants")


class Simulation:
    """Particles, a sparse grid, and the kernels of a step."""

    def __init__(self, qd: Any, count: int) -> None:
        self.qd, self.count = qd, count
        self.x, self.v = (qd.Vector.field(3, qd.f32, shape=count) for _ in range(2))
        self.c = qd.Matrix.field(3, 3, qd.f32, shape=count)
        self.j = qd.field(qd.f32, shape=count)
        self.grid_v, self.grid_m = qd.Vector.field(3, qd.f32), qd.field(qd.f32)
        self.block = qd.root.pointer(qd.ijk, 32)
        self.block.dense(qd.ijk, 4).place(self.grid_v, self.grid_m)
        self.make_kernels()

    def make_kernels(self) -> None:
        qd, x, v, c, j = self.qd, self.x, self.v, self.c, self.j
        grid_v, grid_m = self.grid_v, self.grid_m
        dx, dt, size = 1.0 / 128, 2e-4, 128
        volume = (dx * 0.5) ** 3

        @qd.kernel
        def fill():
            for p in x:
                k = p // 4096
                rest = p % 4096
                x[p] = [
                    0.3 + 0.1 * (rest % 16) / 16,
                    0.3 + 0.1 * ((rest // 16) % 16) / 16,
                    0.3 + 0.1 * ((rest // 256) + 16 * (k % 2)) / 32 + 0.001 * k,
                ]
                v[p] = [0.0, -1.0, 0.0]
                c[p] = qd.Matrix.zero(qd.f32, 3, 3)
                j[p] = 1.0

        @qd.func
        def weights(position):
            base = qd.cast(position / dx - 0.5, qd.i32)
            fx = position / dx - qd.cast(base, qd.f32)
            return base, fx, [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]

        @qd.kernel
        def scatter():
            for p in x:
                base, fx, w = weights(x[p])
                stress = -dt * 4 * 400.0 * volume * (j[p] - 1) / dx**2
                affine = qd.Matrix.identity(qd.f32, 3) * stress + volume * c[p]
                for offset in qd.static(qd.grouped(qd.ndrange(3, 3, 3))):
                    dpos = (qd.cast(offset, qd.f32) - fx) * dx
                    weight = w[offset[0]][0] * w[offset[1]][1] * w[offset[2]][2]
                    grid_v[base + offset] += weight * (volume * v[p] + affine @ dpos)
                    grid_m[base + offset] += weight * volume

        @qd.kernel
        def update():
            for a, b, d in grid_m:
                if grid_m[a, b, d] > 0:
                    new = grid_v[a, b, d] / grid_m[a, b, d]
                    new[1] -= dt * 9.8
                    if b < 3 and new[1] < 0:
                        new[1] = 0.0
                    if b > size - 3 and new[1] > 0:
                        new[1] = 0.0
                    grid_v[a, b, d] = new

        @qd.kernel
        def gather():
            for p in x:
                base, fx, w = weights(x[p])
                new_v = qd.Vector.zero(qd.f32, 3)
                new_c = qd.Matrix.zero(qd.f32, 3, 3)
                for offset in qd.static(qd.grouped(qd.ndrange(3, 3, 3))):
                    dpos = (qd.cast(offset, qd.f32) - fx) * dx
                    weight = w[offset[0]][0] * w[offset[1]][1] * w[offset[2]][2]
                    g = grid_v[base + offset]
                    new_v += weight * g
                    new_c += 4 * weight * g.outer_product(dpos) / dx**2
                v[p] = new_v
                x[p] += dt * new_v
                j[p] *= 1 + dt * new_c.trace()
                c[p] = new_c

        self.fill, self.scatter, self.update, self.gather = fill, scatter, update, gather

    def step(self) -> None:
        """One step; its parts are launches of their own."""
        self.block.deactivate_all()
        self.scatter()
        self.update()
        self.gather()


def measure(name: str, count: int, steps: int) -> None:
    """Print the process time of a step of one system, in milliseconds, and a checksum."""
    qd = importlib.import_module(name)
    qd.init(arch=qd.cpu, log_level="error", cpu_max_num_threads=1)
    simulation = Simulation(qd, count)
    simulation.fill()
    for _ in range(3):
        simulation.step()
    qd.sync()
    parts = {}
    names = ("scatter", "update", "gather")
    for part in ("deactivate", *names):
        parts[part] = 0.0
    for _ in range(steps):
        for part, run in (
            ("deactivate", simulation.block.deactivate_all),
            *((each, getattr(simulation, each)) for each in names),
        ):
            start = time.process_time()
            run()
            qd.sync()
            parts[part] += time.process_time() - start
    shown = ", ".join(f"{part} {1e3 * spent / steps:.2f}" for part, spent in parts.items())
    total = 1e3 * sum(parts.values()) / steps
    print(f"{name:10} {total:8.2f} ms a step ({shown}); mean x {simulation.x.to_numpy().mean(0)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("system", nargs="?", choices=SYSTEMS)
    parser.add_argument("--particles", type=int, default=16 * 4096)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if given.system is not None:
        measure(given.system, given.particles, given.steps)
        return
    options = ["--particles", str(given.particles), "--steps", str(given.steps)]
    for _ in range(given.rounds):
        for system in SYSTEMS:
            subprocess.run([sys.executable, __file__, system, *options], check=True)


if __name__ == "__main__":
    main()
