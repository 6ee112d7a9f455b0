"""A dam breaks: weakly compressible smoothed particle hydrodynamics with a grid of neighbours.

Each cell of a grid has a list of its particles, of bounded length, made anew in each step. The
gradient answers a question of design: how does the reach of the water along the floor depend
on gravity? Run it: ``python examples/sph.py``.
"""

from __future__ import annotations

import argparse

import numpy as np

import octants as qd

DENSITY, GRAVITY = 1000.0, 9.81
SPEED_OF_SOUND = 25.0  # ten times the fastest water, so that density changes by a percent
VISCOSITY = 0.1  # Monaghan's alpha
MOST = 32  # particles in a cell
BOX = (2.0, 1.2)


@qd.data_oriented
class Dam:
    """A block of water in the corner of a box.

    Args:
        spacing: The distance of particles at the start, in metres.
        width: Of the block, in metres.
        height: Of the block, in metres.
    """

    def __init__(self, spacing: float, width: float = 0.5, height: float = 0.8) -> None:
        self.spacing, self.height = spacing, height
        self.wall = 0.2 * (SPEED_OF_SOUND / spacing) ** 2
        self.h = 1.3 * spacing  # the kernel reaches 2 h
        self.dt = 0.2 * self.h / SPEED_OF_SOUND
        self.mass = DENSITY * spacing * spacing
        columns, rows = int(width / spacing), int(height / spacing)
        self.count = columns * rows
        i, j = np.meshgrid(np.arange(columns), np.arange(rows), indexing="ij")
        self.unit = np.stack([(i.ravel() + 0.5) * spacing, (j.ravel() + 0.5) * spacing], -1)
        self.shape = tuple(int(side / (2 * self.h)) + 3 for side in BOX)
        self.x = qd.Vector.field(2, float, shape=self.count, needs_grad=True)
        self.v = qd.Vector.field(2, float, shape=self.count, needs_grad=True)
        self.start = qd.Vector.field(2, float, shape=self.count)
        self.density = qd.field(float, shape=self.count, needs_grad=True)
        self.change = qd.field(float, shape=self.count, needs_grad=True)
        self.force = qd.Vector.field(2, float, shape=self.count, needs_grad=True)
        self.gravity = qd.field(float, shape=(), needs_grad=True)
        self.reach = qd.field(float, shape=(), needs_grad=True)
        self.length = qd.field(int, shape=self.shape)
        self.members = qd.field(int, shape=(*self.shape, MOST))
        self.start.from_numpy(self.unit)

    @qd.func
    def cell(self, p):
        return qd.Vector([int(qd.floor(p[k] / (2.0 * self.h))) + 1 for k in range(2)])

    @qd.func
    def slope(self, away, r):
        """The gradient of Wendland's C2 kernel in two dimensions."""
        q = r / self.h
        w = 0.0
        if q < 2.0:
            w = 7.0 / (4.0 * np.pi * self.h * self.h) * -5.0 * q * (1.0 - 0.5 * q) ** 3 / self.h
        return w / qd.max(r, 1e-9) * away

    @qd.kernel
    def fill_in(self):
        for p in self.x:
            self.x[p] = self.start[p]
            self.v[p] = qd.Vector([0.0, 0.0])
            # Water at rest is compressed by what stands above it.
            depth = self.height - self.start[p][1]
            self.density[p] = DENSITY * (
                1.0 + 7.0 * GRAVITY * depth / (SPEED_OF_SOUND * SPEED_OF_SOUND)
            ) ** (1.0 / 7.0)

    @qd.kernel
    def sort(self):
        for I in qd.grouped(self.length):
            self.length[I] = 0
        for p in self.x:
            c = self.cell(self.x[p])
            place = qd.atomic_add(self.length[c], 1)
            if place < MOST:
                self.members[c, place] = p

    @qd.func
    def pressure(self, density):
        """Tait's equation of state."""
        ratio = density / DENSITY
        return DENSITY * SPEED_OF_SOUND * SPEED_OF_SOUND / 7.0 * (ratio**7 - 1.0)

    @qd.func
    def over_neighbours(self, p, start, pair: qd.Template):
        """The sum of `start` and of ``pair(p, q, x[p] - x[q])`` for all q that p feels."""
        total = start
        here = self.x[p]
        c = self.cell(here)
        for o in qd.grouped(qd.ndrange((-1, 2), (-1, 2))):
            n = c + o
            if n[0] >= 0 and n[1] >= 0 and n[0] < self.shape[0] and n[1] < self.shape[1]:
                for k in range(qd.min(self.length[n], MOST)):
                    q = self.members[n, k]
                    away = here - self.x[q]
                    if q != p and away.norm_sqr() < 4.0 * self.h * self.h:
                        total += pair(p, q, away)
        return total

    @qd.func
    def push(self, p, q, away):
        """The acceleration of p by the pressure of q and by their friction."""
        r2 = away.norm_sqr()
        mine, theirs = self.density[p], self.density[q]
        term = self.pressure(mine) / (mine * mine) + self.pressure(theirs) / (theirs * theirs)
        approach = (self.v[p] - self.v[q]).dot(away)
        if approach < 0.0:
            mu = self.h * approach / (r2 + 0.01 * self.h * self.h)
            term -= VISCOSITY * SPEED_OF_SOUND * mu / (0.5 * (mine + theirs))
        return -self.mass * term * self.slope(away, qd.sqrt(r2))

    @qd.func
    def squeeze(self, p, q, away):
        """What q adds to the change of density at p."""
        return self.mass * (self.v[p] - self.v[q]).dot(self.slope(away, away.norm()))

    @qd.kernel
    def interact(self):
        for p in self.x:
            here = self.x[p]
            weight = qd.Vector([0.0, -self.gravity[None]])
            force = self.over_neighbours(p, weight, self.push)
            for k in qd.static(range(2)):
                # The walls are springs that hold a column of water at half a particle's distance.
                force[k] += self.wall * qd.max(0.0, 0.5 * self.spacing - here[k])
                force[k] -= self.wall * qd.max(0.0, here[k] + 0.5 * self.spacing - BOX[k])
            self.force[p] = force

    @qd.kernel
    def kick(self):
        for p in self.x:
            self.v[p] += self.dt * self.force[p]

    @qd.kernel
    def compress(self):
        # After the kick: velocity and density take turns, or sound waves would grow.
        for p in self.x:
            self.change[p] = self.over_neighbours(p, 0.0, self.squeeze)

    @qd.kernel
    def drift(self):
        for p in self.x:
            self.x[p] += self.dt * self.v[p]
            self.density[p] += self.dt * self.change[p]

    @qd.kernel
    def measure(self):
        for p in self.x:
            self.reach[None] += self.x[p][0] / self.count

    def step(self) -> None:
        """One time step."""
        self.sort()
        self.interact()
        self.kick()
        self.compress()
        self.drift()

    def launch(self, steps: int) -> None:
        """Launch the kernels of some steps."""
        self.fill_in()
        for _ in range(steps):
            self.step()
        self.measure()

    def simulate(self, steps: int, gravity: float = GRAVITY) -> float:
        """The mean x of the water after some steps, in metres."""
        self.gravity[None], self.reach[None] = gravity, 0.0
        self.launch(steps)
        return self.reach[None]

    def gradient(self, steps: int, gravity: float = GRAVITY) -> float:
        """The derivative of the mean x by the gravity, in seconds squared."""
        self.gravity[None] = gravity
        with qd.ad.Tape(loss=self.reach):
            self.launch(steps)
        return self.gravity.grad[None]


def workload():
    """The forward run and the gradient that ``bench/examples.py`` times."""
    dam = Dam(0.01)
    return lambda: dam.simulate(20), lambda: np.array([dam.gradient(20)])


def draw(path: str, steps: int) -> None:
    """The water at three times."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 1.8), layout="constrained")
    dam = Dam(0.02)
    for axis, part in zip(figure.subplots(1, 3), (0.3, 0.65, 1.0), strict=True):
        dam.simulate(int(part * steps))
        x, speed = dam.x.to_numpy(), np.linalg.norm(dam.v.to_numpy(), axis=1)
        axis.scatter(x[:, 0], x[:, 1], c=speed, s=2, cmap="viridis")
        axis.set(xlim=(0, BOX[0]), ylim=(0, BOX[1]), aspect="equal", xticks=[], yticks=[])
    figure.savefig(path, dpi=110)


def main() -> None:
    """Print how far the water has come, and how that depends on gravity; draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=3600)
    parser.add_argument("--output", default="sph.png", help="the picture")
    options = parser.parse_args()
    qd.init(arch=qd.cpu, default_fp=qd.f64)
    dam = Dam(0.02)
    derivative = dam.gradient(300)
    seconds = 300 * dam.dt
    print(f"after {seconds:.3f} s the mean x is {dam.reach[None]:.5f} m")
    print(f"and {derivative:.2e} m more for each m/s2 of gravity")
    draw(options.output, options.steps)


if __name__ == "__main__":
    main()
