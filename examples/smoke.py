"""Steer smoke: incompressible flow with a conjugate gradient method inside, differentiated.

A step advects velocity and smoke along the flow (semi-Lagrangian), and makes the velocity free of
divergence: pressure solves a Poisson equation by conjugate gradients, each iteration of which is a
few launches. The reverse run goes back through all of them, so it is the gradient of exactly what
was computed. Run it: ``python examples/smoke.py``.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import octants as qd


@qd.data_oriented
class Flow:
    """A periodic square of fluid, with velocities at the faces of cells.

    Args:
        n: Cells along each side.
        iterations: Of conjugate gradients in each step.
        dt: The time step, in cells per unit of speed.
    """

    def __init__(self, n: int, iterations: int, dt: float = 1.0) -> None:
        self.n, self.iterations, self.dt = n, iterations, dt
        grid: dict[str, Any] = {"shape": (n, n), "needs_grad": True}
        self.start = qd.Vector.field(2, float, **grid)  # the velocity that is steered
        self.u, self.moved = qd.Vector.field(2, float, **grid), qd.Vector.field(2, float, **grid)
        self.smoke, self.carried = qd.field(float, **grid), qd.field(float, **grid)
        self.pressure, self.residual = qd.field(float, **grid), qd.field(float, **grid)
        self.direction, self.image = qd.field(float, **grid), qd.field(float, **grid)
        self.rr, self.dq = (
            qd.field(float, (), needs_grad=True),
            qd.field(float, (), needs_grad=True),
        )
        self.previous = qd.field(float, (), needs_grad=True)
        self.target = qd.field(float, shape=(n, n))
        self.first = qd.field(float, shape=(n, n))
        self.loss = qd.field(float, shape=(), needs_grad=True)

    @qd.func
    def wrap(self, i):
        return (i % self.n + self.n) % self.n

    @qd.func
    def sample(self, field: qd.Template, p):
        """A field between its places, by bilinear interpolation; `p` counts in cells."""
        base = qd.floor(p, int)
        f = p - qd.cast(base, float)
        i0, j0 = self.wrap(base[0]), self.wrap(base[1])
        i1, j1 = self.wrap(base[0] + 1), self.wrap(base[1] + 1)
        low = (1.0 - f[0]) * field[i0, j0] + f[0] * field[i1, j0]
        high = (1.0 - f[0]) * field[i0, j1] + f[0] * field[i1, j1]
        return (1.0 - f[1]) * low + f[1] * high

    @qd.func
    def at_x(self, i, j):
        """The velocity at the left face of a cell."""
        l = self.wrap(i - 1)
        up = self.wrap(j + 1)
        v = self.u[i, j][1] + self.u[l, j][1] + self.u[i, up][1] + self.u[l, up][1]
        return qd.Vector([self.u[i, j][0], 0.25 * v])

    @qd.func
    def at_y(self, i, j):
        """The velocity at the lower face of a cell."""
        d = self.wrap(j - 1)
        right = self.wrap(i + 1)
        v = self.u[i, j][0] + self.u[i, d][0] + self.u[right, j][0] + self.u[right, d][0]
        return qd.Vector([0.25 * v, self.u[i, j][1]])

    @qd.kernel
    def begin(self):
        for i, j in self.u:
            self.u[i, j] = self.start[i, j]
            self.smoke[i, j] = self.first[i, j]

    @qd.kernel
    def advect(self):
        for i, j in self.u:
            here = qd.Vector([float(i), float(j)])
            x = self.sample(self.u, here - self.dt * self.at_x(i, j))[0]
            y = self.sample(self.u, here - self.dt * self.at_y(i, j))[1]
            self.moved[i, j] = qd.Vector([x, y])
            centre = 0.5 * (
                self.u[i, j]
                + qd.Vector([self.u[self.wrap(i + 1), j][0], self.u[i, self.wrap(j + 1)][1]])
            )
            self.carried[i, j] = self.sample(self.smoke, here - self.dt * centre)

    @qd.kernel
    def prepare_solve(self):
        for i, j in self.u:
            divergence = (
                self.moved[self.wrap(i + 1), j][0]
                - self.moved[i, j][0]
                + self.moved[i, self.wrap(j + 1)][1]
                - self.moved[i, j][1]
            )
            self.pressure[i, j] = 0.0
            self.residual[i, j] = -divergence
            self.direction[i, j] = -divergence
        for i, j in self.u:
            self.rr[None] += self.residual[i, j] ** 2

    @qd.kernel
    def apply(self):
        for i, j in self.u:
            around = (
                self.direction[self.wrap(i - 1), j]
                + self.direction[self.wrap(i + 1), j]
                + self.direction[i, self.wrap(j - 1)]
                + self.direction[i, self.wrap(j + 1)]
            )
            self.image[i, j] = 4.0 * self.direction[i, j] - around
        for i, j in self.u:
            self.dq[None] += self.direction[i, j] * self.image[i, j]

    @qd.kernel
    def descend(self):
        for i, j in self.u:
            alpha = self.rr[None] / (self.dq[None] + 1e-30)
            self.pressure[i, j] += alpha * self.direction[i, j]
            self.residual[i, j] -= alpha * self.image[i, j]
        for _ in range(1):
            self.previous[None] = self.rr[None]
            self.rr[None] = 0.0
        for i, j in self.u:
            self.rr[None] += self.residual[i, j] ** 2

    @qd.kernel
    def turn(self):
        for i, j in self.u:
            beta = self.rr[None] / (self.previous[None] + 1e-30)
            self.direction[i, j] = self.residual[i, j] + beta * self.direction[i, j]
        for _ in range(1):
            self.dq[None] = 0.0

    @qd.kernel
    def project(self):
        for i, j in self.u:
            x = self.pressure[i, j] - self.pressure[self.wrap(i - 1), j]
            y = self.pressure[i, j] - self.pressure[i, self.wrap(j - 1)]
            self.u[i, j] = self.moved[i, j] - qd.Vector([x, y])
            self.smoke[i, j] = self.carried[i, j]

    @qd.kernel
    def misfit(self):
        for i, j in self.smoke:
            self.loss[None] += (self.smoke[i, j] - self.target[i, j]) ** 2 / (self.n * self.n)

    @qd.kernel
    def reset_sums(self):
        for _ in range(1):
            self.rr[None] = 0.0
            self.dq[None] = 0.0

    def step(self) -> None:
        """Advect, and make the velocity free of divergence."""
        self.advect()
        self.reset_sums()
        self.prepare_solve()
        for _ in range(self.iterations):
            self.apply()
            self.descend()
            self.turn()
        self.project()

    def launch(self, steps: int) -> None:
        """Launch the kernels of some steps."""
        self.begin()
        for _ in range(steps):
            self.step()
        self.misfit()

    def simulate(self, start: np.ndarray, steps: int) -> float:
        """How far the smoke is from the target after some steps from a velocity (n, n, 2)."""
        self.start.from_numpy(start)
        self.loss[None] = 0.0
        self.launch(steps)
        return self.loss[None]

    def value_and_gradient(self, start: np.ndarray, steps: int) -> tuple[float, np.ndarray]:
        """The same, and its gradient by the velocity at the start, of shape (n, n, 2)."""
        self.start.from_numpy(start)
        with qd.ad.Tape(loss=self.loss):
            self.launch(steps)
        return self.loss[None], self.start.grad.to_numpy()

    def divergence(self) -> float:
        """The largest divergence of the velocity in any cell."""
        u = self.u.to_numpy()
        x = np.roll(u[..., 0], -1, 0) - u[..., 0]
        y = np.roll(u[..., 1], -1, 1) - u[..., 1]
        return float(np.abs(x + y).max())


def blob(n: int, x: float, y: float, radius: float = 0.14) -> np.ndarray:
    """A round cloud, of shape (n, n)."""
    i, j = np.mgrid[:n, :n] / n
    return np.exp(-((((i - x) ** 2 + (j - y) ** 2) / radius**2) ** 2))


def steer(flow: Flow, steps: int, iterations: int) -> tuple[np.ndarray, list[float]]:
    """The velocity that carries the smoke to its target; and the losses on the way."""
    start = np.zeros((flow.n, flow.n, 2))
    momentum = np.zeros_like(start)
    losses = []
    for _ in range(iterations):
        loss, gradient = flow.value_and_gradient(start, steps)
        losses.append(loss)
        momentum = 0.8 * momentum + gradient
        start = start - 0.25 / (np.abs(momentum).max() + 1e-12) * momentum
    return start, losses


def workload():
    """The forward run that ``bench/examples.py`` times, and its gradient."""
    flow = Flow(64, 30)
    flow.first.from_numpy(blob(64, 0.3, 0.5))
    flow.target.from_numpy(blob(64, 0.65, 0.6))
    i, j = np.mgrid[:64, :64] * 2 * np.pi / 64
    start = np.stack([np.sin(i) * np.cos(j), -np.cos(i) * np.sin(j)], -1)
    return lambda: flow.simulate(start, 4), lambda: flow.value_and_gradient(start, 4)[1]


def draw(flow: Flow, start: np.ndarray, steps: int, path: str) -> None:
    """The smoke at the start and at the end, and its target."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.6, 2.4), layout="constrained")
    pictures = [flow.first.to_numpy()]
    flow.simulate(start, steps)
    pictures += [flow.smoke.to_numpy(), flow.target.to_numpy()]
    titles = ("at the start", "steered", "target")
    for axis, picture, title in zip(figure.subplots(1, 3), pictures, titles, strict=True):
        axis.imshow(picture.T, origin="lower", cmap="Greys", vmin=0, vmax=1)
        axis.set(xticks=[], yticks=[], title=title)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Find the velocity, print how close the smoke comes, draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=40)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--output", default="smoke.png", help="the picture")
    options = parser.parse_args()
    qd.init(arch=qd.cpu, default_fp=qd.f64)
    flow = Flow(options.size, 40)
    flow.first.from_numpy(blob(options.size, 0.3, 0.5))
    flow.target.from_numpy(blob(options.size, 0.6, 0.6))
    start, losses = steer(flow, options.steps, options.iterations)
    print(f"loss {losses[0]:.5f} -> {losses[-1]:.5f}; divergence {flow.divergence():.1e}")
    draw(flow, start, options.steps, options.output)


if __name__ == "__main__":
    main()
