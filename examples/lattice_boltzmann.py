"""Flow between two walls by the lattice Boltzmann method, and how its flux depends on viscosity.

Nine populations a cell stream to the neighbours and relax towards equilibrium (D2Q9, BGK); a body
force drives the flow, and the walls bounce populations back. The steady profile is Poiseuille's
parabola, so the flux and its derivative by the relaxation time are known in closed form. Run it:
``python examples/lattice_boltzmann.py``.
"""

from __future__ import annotations

import argparse

import numpy as np

import octants as qd

DIRECTIONS = ((0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1))
WEIGHTS = (4 / 9, 1 / 9, 1 / 9, 1 / 9, 1 / 9, 1 / 36, 1 / 36, 1 / 36, 1 / 36)
OPPOSITE = (0, 3, 4, 1, 2, 7, 8, 5, 6)
FORCE = 1e-6  # along the channel, in lattice units


@qd.data_oriented
class Channel:
    """A channel that is periodic in x, with an obstacle if asked for.

    Args:
        length: Cells along the channel.
        width: Cells between the walls.
        obstacle: The radius of a disc in the channel, in cells.
    """

    def __init__(self, length: int, width: int, obstacle: float = 0.0) -> None:
        self.length, self.width = length, width
        self.f = qd.field(float, shape=(9, length, width), needs_grad=True)
        self.next = qd.field(float, shape=(9, length, width), needs_grad=True)
        self.velocity = qd.Vector.field(2, float, shape=(length, width), needs_grad=True)
        self.tau = qd.field(float, shape=(), needs_grad=True)
        self.flux = qd.field(float, shape=(), needs_grad=True)
        self.solid = qd.field(int, shape=(length, width))
        i, j = np.mgrid[:length, :width]
        inside = np.hypot(i - length / 4, j - width / 2) < obstacle
        self.solid.from_numpy(inside.astype(np.int32))

    @qd.kernel
    def rest(self):
        for i, j in self.solid:
            for q in qd.static(range(9)):
                self.f[q, i, j] = WEIGHTS[q]

    @qd.kernel
    def collide(self):
        for i, j in self.solid:
            density = 0.0
            momentum = qd.Vector([0.0, 0.0])
            for q in qd.static(range(9)):
                density += self.f[q, i, j]
                momentum += self.f[q, i, j] * qd.Vector([DIRECTIONS[q][0], DIRECTIONS[q][1]])
            # Half of the force before and half after the collision: second order in time.
            u = (momentum + qd.Vector([0.5 * FORCE, 0.0])) / density
            self.velocity[i, j] = u
            rate = 1.0 / self.tau[None]
            for q in qd.static(range(9)):
                c = qd.Vector([float(DIRECTIONS[q][0]), float(DIRECTIONS[q][1])])
                cu = c.dot(u)
                equilibrium = (
                    WEIGHTS[q] * density * (1.0 + 3.0 * cu + 4.5 * cu * cu - 1.5 * u.dot(u))
                )
                push = (
                    WEIGHTS[q]
                    * (1.0 - 0.5 * rate)
                    * FORCE
                    * (3.0 * (c[0] - u[0]) + 9.0 * cu * c[0])
                )
                self.next[q, i, j] = self.f[q, i, j] + rate * (equilibrium - self.f[q, i, j]) + push

    @qd.kernel
    def stream(self):
        for i, j in self.solid:
            for q in qd.static(range(9)):
                # The population comes from here, or back from a wall.
                si = (i - DIRECTIONS[q][0] + self.length) % self.length
                sj = j - DIRECTIONS[q][1]
                if sj < 0 or sj >= self.width:
                    self.f[q, i, j] = self.next[OPPOSITE[q], i, j]
                elif self.solid[si, sj] == 1:
                    self.f[q, i, j] = self.next[OPPOSITE[q], i, j]
                else:
                    self.f[q, i, j] = self.next[q, si, sj]

    @qd.kernel
    def measure(self):
        for i, j in self.solid:
            if self.solid[i, j] == 0:
                self.flux[None] += self.velocity[i, j][0] / self.length

    def step(self, _number: int = 0) -> None:
        """One step of the method."""
        self.collide()
        self.stream()

    def simulate(self, tau: float, steps: int) -> float:
        """The flux through the channel after some steps from rest, in lattice units."""
        self.tau[None] = tau
        self.flux[None] = 0.0
        self.rest()
        for _ in range(steps):
            self.step()
        self.measure()
        return self.flux[None]

    def gradient(self, tau: float, steps: int, slots: int = 32) -> float:
        """The derivative of the flux by the relaxation time; memory grows with `slots` only."""
        self.tau[None] = tau
        with qd.ad.Tape(loss=self.flux):
            self.rest()
            qd.ad.checkpointed(self.step, steps, slots=slots)
            self.measure()
        return self.tau.grad[None]


def poiseuille(tau: float, width: int) -> tuple[float, float]:
    """The flux of the steady parabola, and its derivative by the relaxation time."""
    viscosity = (tau - 0.5) / 3.0
    flux = FORCE * width**3 / (12.0 * viscosity)
    return flux, -flux / (tau - 0.5)


def workload():
    """The forward run that ``bench/examples.py`` times; `checkpointed` is Octants' own."""
    channel = Channel(256, 128, obstacle=16.0)
    return lambda: channel.simulate(0.8, 20), None


def draw(path: str, steps: int) -> None:
    """The speed of a flow around a disc."""
    from matplotlib.figure import Figure

    channel = Channel(240, 80, obstacle=10.0)
    channel.simulate(0.6, steps)
    speed = np.linalg.norm(channel.velocity.to_numpy(), axis=-1)
    speed[channel.solid.to_numpy() == 1] = np.nan
    axes = (figure := Figure(figsize=(6, 2.3), layout="constrained")).subplots()
    axes.imshow(speed.T, origin="lower", cmap="magma")
    axes.set(xticks=[], yticks=[])
    figure.savefig(path, dpi=110)


def main() -> None:
    """Compare flux and derivative with Poiseuille's, and draw a flow around a disc."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--output", default="lattice-boltzmann.png", help="the picture")
    options = parser.parse_args()
    qd.init(arch=qd.cpu, default_fp=qd.f64)
    channel = Channel(4, 16)
    gradient = channel.gradient(1.0, options.steps)
    exact = poiseuille(1.0, 16)
    print(f"flux                {channel.flux[None]:.6e}, of the parabola {exact[0]:.6e}")
    print(f"derivative by tau   {gradient:.6e}, of the parabola {exact[1]:.6e}")
    draw(options.output, options.steps)


if __name__ == "__main__":
    main()
