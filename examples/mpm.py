"""Throw a jelly cube: the material point method in 2-D or 3-D, differentiated in place.

Particles carry mass, momentum and deformation; a step moves them to a grid, updates the grid, and
moves them back (MLS-MPM with a neo-Hookean solid). State is overwritten in place, step by step; the
tape keeps what the reverse run needs. The gradient says how the throw must change for the cube to
land on a target. Run it: ``python examples/mpm.py --dimensions 3``.
"""

from __future__ import annotations

import argparse

import numpy as np

import octants as qd

GRAVITY = 9.8
STIFFNESS, POISSON = 400.0, 0.3
SHEAR = STIFFNESS / (2 * (1 + POISSON))
BULK = STIFFNESS * POISSON / ((1 + POISSON) * (1 - 2 * POISSON))


@qd.data_oriented
class Jelly:
    """A cube of jelly in the unit box.

    Args:
        dim: Dimensions, 2 or 3.
        cells: Cells of the grid along each side.
        per_side: Particles along each side of the cube.
        dt: The time step, in seconds.
    """

    def __init__(self, dim: int, cells: int, per_side: int, dt: float) -> None:
        self.dim, self.cells, self.dt = dim, cells, dt
        self.count = per_side**dim
        self.dx = 1.0 / cells
        self.volume = (0.3 / per_side) ** dim
        self.x = qd.Vector.field(dim, float, shape=self.count, needs_grad=True)
        self.v = qd.Vector.field(dim, float, shape=self.count, needs_grad=True)
        self.affine = qd.Matrix.field(dim, dim, float, shape=self.count, needs_grad=True)
        self.strain = qd.Matrix.field(dim, dim, float, shape=self.count, needs_grad=True)
        self.momentum = qd.Vector.field(dim, float, shape=(cells,) * dim, needs_grad=True)
        self.mass = qd.field(float, shape=(cells,) * dim, needs_grad=True)
        self.throw = qd.Vector.field(dim, float, shape=(), needs_grad=True)
        self.centre = qd.Vector.field(dim, float, shape=(), needs_grad=True)
        self.target = qd.Vector.field(dim, float, shape=())
        self.loss = qd.field(float, shape=(), needs_grad=True)
        sides = [(np.arange(per_side) + 0.5) / per_side * 0.3] * dim
        corner = np.array([0.1, 0.35, 0.35][:dim])
        self.places = np.stack(np.meshgrid(*sides, indexing="ij"), -1).reshape(-1, dim) + corner

    @qd.kernel
    def begin(self):
        for p in self.x:
            self.v[p] = self.throw[None]
            self.affine[p] = qd.Matrix.zero(float, self.dim, self.dim)
            self.strain[p] = qd.Matrix.identity(float, self.dim)

    @qd.kernel
    def clear(self):
        for I in qd.grouped(self.mass):
            self.momentum[I] = qd.Vector.zero(float, self.dim)
            self.mass[I] = 0.0

    @qd.kernel
    def to_grid(self):
        for p in self.x:
            strain = (qd.Matrix.identity(float, self.dim) + self.dt * self.affine[p]) @ self.strain[
                p
            ]
            self.strain[p] = strain
            inverse = strain.inverse().transpose()
            volume_ratio = strain.determinant()
            stress = SHEAR * (strain - inverse) + BULK * qd.log(volume_ratio) * inverse
            kirchhoff = stress @ strain.transpose()
            impulse = -self.dt * self.volume * 4.0 / (self.dx * self.dx) * kirchhoff
            mass = self.volume  # the density is one
            affine = impulse + mass * self.affine[p]
            base = qd.floor(self.x[p] / self.dx - 0.5, int)
            f = self.x[p] / self.dx - qd.cast(base, float)
            w = [0.5 * (1.5 - f) ** 2, 0.75 - (f - 1.0) ** 2, 0.5 * (f - 0.5) ** 2]
            for offset in qd.static(qd.grouped(qd.ndrange(*(((0, 3),) * self.dim)))):
                weight = 1.0
                for k in qd.static(range(self.dim)):
                    weight *= w[offset[k]][k]
                away = (qd.cast(offset, float) - f) * self.dx
                self.momentum[base + offset] += weight * (mass * self.v[p] + affine @ away)
                self.mass[base + offset] += weight * mass

    @qd.kernel
    def on_grid(self):
        for I in qd.grouped(self.mass):
            if self.mass[I] > 0.0:
                v = self.momentum[I] / self.mass[I]
                v[1] -= self.dt * GRAVITY
                for k in qd.static(range(self.dim)):
                    # The walls and the floor stop what moves into them.
                    if I[k] < 3 and v[k] < 0.0:
                        v[k] = 0.0
                    if I[k] > self.cells - 4 and v[k] > 0.0:
                        v[k] = 0.0
                self.momentum[I] = v

    @qd.kernel
    def from_grid(self):
        for p in self.x:
            base = qd.floor(self.x[p] / self.dx - 0.5, int)
            f = self.x[p] / self.dx - qd.cast(base, float)
            w = [0.5 * (1.5 - f) ** 2, 0.75 - (f - 1.0) ** 2, 0.5 * (f - 0.5) ** 2]
            v = qd.Vector.zero(float, self.dim)
            affine = qd.Matrix.zero(float, self.dim, self.dim)
            for offset in qd.static(qd.grouped(qd.ndrange(*(((0, 3),) * self.dim)))):
                weight = 1.0
                for k in qd.static(range(self.dim)):
                    weight *= w[offset[k]][k]
                away = (qd.cast(offset, float) - f) * self.dx
                velocity = self.momentum[base + offset]
                v += weight * velocity
                affine += 4.0 / (self.dx * self.dx) * weight * velocity.outer_product(away)
            self.v[p] = v
            self.affine[p] = affine
            self.x[p] += self.dt * v

    @qd.kernel
    def average(self):
        for p in self.x:
            self.centre[None] += self.x[p] / self.count

    @qd.kernel
    def misfit(self):
        for _ in range(1):
            self.loss[None] = (self.centre[None] - self.target[None]).norm_sqr()

    def prepare(self, throw: np.ndarray) -> None:
        """Put the cube back, and say how it is thrown."""
        self.x.from_numpy(self.places)
        self.throw[None] = list(throw)
        self.centre[None] = [0.0] * self.dim

    def launch(self, steps: int) -> None:
        """Launch the kernels of some steps."""
        self.begin()
        for _ in range(steps):
            self.clear()
            self.to_grid()
            self.on_grid()
            self.from_grid()
        self.average()
        self.misfit()

    def simulate(self, throw: np.ndarray, steps: int) -> float:
        """Throw the cube.

        Args:
            throw: The velocity at the start, of shape (dim,), in metres per second.
            steps: The number of time steps.

        Returns:
            The squared distance of the cube's centre from the target, in square metres.
        """
        self.prepare(throw)
        self.launch(steps)
        return self.loss[None]

    def value_and_gradient(self, throw: np.ndarray, steps: int) -> tuple[float, np.ndarray]:
        """The same, and its gradient by the throw, of shape (dim,)."""
        self.prepare(throw)
        with qd.ad.Tape(loss=self.loss):
            self.launch(steps)
        return self.loss[None], np.array(self.throw.grad[None])


def aim(jelly: Jelly, steps: int, iterations: int) -> tuple[np.ndarray, list[float]]:
    """The throw that lands on the target, by gradient descent; and the losses on the way."""
    throw = np.zeros(jelly.dim)
    losses = []
    for _ in range(iterations):
        loss, gradient = jelly.value_and_gradient(throw, steps)
        losses.append(loss)
        throw = throw - 8.0 * gradient
    return throw, losses


def make(dim: int) -> tuple[Jelly, int]:
    """A cube of a size for a desktop, and for how many steps it is thrown."""
    if dim == 2:
        return Jelly(2, 48, 28, 5e-4), 600
    return Jelly(3, 32, 12, 8e-4), 350


def workload(dim: int = 3):
    """The forward run and the gradient that ``bench/examples.py`` times."""
    jelly = Jelly(dim, 32, 12, 8e-4)
    throw = np.array([1.5, 1.0, 0.5][:dim])
    return (
        lambda: jelly.simulate(throw, 20),
        lambda: jelly.value_and_gradient(throw, 20)[1],
    )


def draw(jelly: Jelly, throw: np.ndarray, steps: int, path: str) -> None:
    """The cube on its way, from the side."""
    from matplotlib.figure import Figure

    axes = (figure := Figure(figsize=(4, 4), layout="constrained")).subplots()
    for shade, part in zip(("#d5dff0", "#9fb4d8", "#5f7fb8", "#1d3f7f"), range(4), strict=True):
        jelly.simulate(throw, steps * part // 3)
        x = jelly.x.to_numpy()
        axes.scatter(x[:, 0], x[:, 1], s=3, color=shade, linewidths=0)
    target = np.array(jelly.target[None])
    axes.scatter(target[0], target[1], marker="x", color="#b3311d", s=80, zorder=3)
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xticks=[], yticks=[])
    figure.savefig(path, dpi=110)


def main() -> None:
    """Aim, print what was found, draw the throw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dimensions", type=int, choices=(2, 3), default=2)
    parser.add_argument("--iterations", type=int, default=15)
    parser.add_argument("--output", default="mpm.png", help="the picture")
    options = parser.parse_args()
    qd.init(arch=qd.cpu, default_fp=qd.f64)
    jelly, steps = make(options.dimensions)
    jelly.target[None] = [0.7, 0.3, 0.6][: jelly.dim]
    throw, losses = aim(jelly, steps, options.iterations)
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.2e}; throw {throw.round(3)} m/s")
    draw(jelly, throw, steps, options.output)


if __name__ == "__main__":
    main()
