"""Particles that attract and repel their neighbours, found by a hash grid.

The Lennard-Jones fluid with a cutoff: particles are counted into cells, sorted by cell, and each
looks at the 27 cells around it. The gradient of the energy by the positions is minus the force, so
the forces come from reverse mode as well as by hand. Run it: ``python examples/hash_grid.py``.
"""

from __future__ import annotations

import argparse

import numpy as np

import octants as qd

CUTOFF = 2.5
SHIFT = 4.0 * (CUTOFF**-12 - CUTOFF**-6)  # so that the energy is continuous at the cutoff


@qd.data_oriented
class Fluid:
    """Particles in a periodic cube, in the units of Lennard and Jones.

    Args:
        per_side: Particles along each side at the start.
        density: Particles in a unit of volume.
        dt: The time step.
    """

    def __init__(self, per_side: int, density: float = 0.6, dt: float = 0.004) -> None:
        self.count, self.dt = per_side**3, dt
        self.side = (self.count / density) ** (1 / 3)
        self.cells = int(self.side / CUTOFF)
        if self.cells < 3:
            raise ValueError("the cube has to be three cutoffs wide: take more particles")
        self.x = qd.Vector.field(3, float, shape=self.count, needs_grad=True)
        self.v = qd.Vector.field(3, float, shape=self.count)
        self.force = qd.Vector.field(3, float, shape=self.count)
        self.energy = qd.field(float, shape=(), needs_grad=True)
        self.cell_of = qd.field(int, shape=self.count)
        self.begin = qd.field(int, shape=self.cells**3 + 1)
        self.filled = qd.field(int, shape=self.cells**3)
        self.sorted = qd.field(int, shape=self.count)
        line = (np.arange(per_side) + 0.5) * self.side / per_side
        lattice = np.stack(np.meshgrid(line, line, line, indexing="ij"), -1).reshape(-1, 3)
        generator = np.random.default_rng(7)
        self.x.from_numpy(lattice + 0.05 * generator.standard_normal(lattice.shape))
        v = generator.standard_normal(lattice.shape)
        self.v.from_numpy(v - v.mean(0))

    @qd.kernel
    def sort(self):
        for c in self.filled:
            self.filled[c] = 0
        for p in self.x:
            c = qd.Vector([0, 0, 0])
            for k in qd.static(range(3)):
                c[k] = int(qd.floor(self.x[p][k] / self.side * self.cells)) % self.cells
            self.cell_of[p] = (c[0] * self.cells + c[1]) * self.cells + c[2]
            self.filled[self.cell_of[p]] += 1
        for _ in range(1):
            total = 0
            for c in range(self.cells**3):
                self.begin[c] = total
                total += self.filled[c]
            self.begin[self.cells**3] = total
        for c in self.filled:
            self.filled[c] = 0
        for p in self.x:
            c = self.cell_of[p]
            self.sorted[self.begin[c] + qd.atomic_add(self.filled[c], 1)] = p

    @qd.func
    def nearest(self, away):
        """The shortest of all ways between two particles and their periodic images."""
        return away - self.side * qd.round(away / self.side)

    @qd.kernel
    def interact(self):
        for p in self.x:
            here, cell = self.x[p], self.cell_of[p]
            at = qd.Vector(
                [
                    cell // (self.cells * self.cells),
                    cell // self.cells % self.cells,
                    cell % self.cells,
                ]
            )
            force = qd.Vector([0.0, 0.0, 0.0])
            energy = 0.0
            for o in qd.grouped(qd.ndrange((-1, 2), (-1, 2), (-1, 2))):
                c = (at + o + self.cells) % self.cells
                number = (c[0] * self.cells + c[1]) * self.cells + c[2]
                for k in range(self.begin[number], self.begin[number + 1]):
                    q = self.sorted[k]
                    away = self.nearest(here - self.x[q])
                    r2 = away.norm_sqr()
                    if q != p and r2 < CUTOFF * CUTOFF:
                        s6 = 1.0 / (r2 * r2 * r2)
                        energy += 0.5 * (4.0 * s6 * (s6 - 1.0) - SHIFT)
                        force += 24.0 * s6 * (2.0 * s6 - 1.0) / r2 * away
            self.force[p] = force
            self.energy[None] += energy

    @qd.kernel
    def kick(self):
        for p in self.x:
            self.v[p] += 0.5 * self.dt * self.force[p]

    @qd.kernel
    def drift(self):
        for p in self.x:
            self.x[p] += self.dt * self.v[p]

    def forces(self) -> float:
        """Compute the forces; returns the potential energy."""
        self.energy[None] = 0.0
        self.sort()
        self.interact()
        return self.energy[None]

    def gradient(self) -> np.ndarray:
        """The gradient of the potential energy by the positions, of shape (count, 3)."""
        self.sort()
        with qd.ad.Tape(loss=self.energy):
            self.interact()
        return self.x.grad.to_numpy()

    def simulate(self, steps: int) -> list[float]:
        """Make steps by velocity Verlet; the total energy after each."""
        self.forces()
        energies = []
        for _ in range(steps):
            self.kick()
            self.drift()
            potential = self.forces()
            self.kick()
            energies.append(potential + 0.5 * float((self.v.to_numpy() ** 2).sum()))
        return energies


def workload():
    """The forward run and the gradient that ``bench/examples.py`` times."""
    fluid = Fluid(20)
    return fluid.forces, fluid.gradient


def draw(fluid: Fluid, energies: list[float], path: str) -> None:
    """The particles, and how well energy is kept."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 2.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    x = fluid.x.to_numpy() % fluid.side
    speed = np.linalg.norm(fluid.v.to_numpy(), axis=1)
    left.scatter(x[:, 0], x[:, 1], c=speed, s=4 + 10 * x[:, 2] / fluid.side, cmap="plasma")
    left.set(aspect="equal", xticks=[], yticks=[])
    right.plot((np.array(energies) - energies[0]) / abs(energies[0]), color="#b3311d")
    right.set(xlabel="step", title="relative drift of the energy")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Simulate, compare the forces with the gradient, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--output", default="hash-grid.png", help="the picture")
    options = parser.parse_args()
    qd.init(arch=qd.cpu, default_fp=qd.f64)
    fluid = Fluid(12)
    energies = fluid.simulate(options.steps)
    gradient, force = fluid.gradient(), fluid.force.to_numpy()
    print(f"energy {energies[0]:.3f}, after {options.steps} steps {energies[-1]:.3f}")
    print(f"force + gradient: {np.abs(force + gradient).max():.1e} of {np.abs(force).max():.1e}")
    draw(fluid, energies, options.output)


if __name__ == "__main__":
    main()
