"""Drop a cloth onto a ball, and find the wind that blows it onto its mark.

Springs between neighbours, damping, a ball and a floor that push back; a step overwrites positions
and velocities in place. `ad.checkpointed` runs the loop of steps in bounded memory. Run it:
``python examples/cloth_contact.py``.
"""

from __future__ import annotations

import argparse

import numpy as np

import octants as qd

SIDE = 1.0  # of the cloth, in metres
STIFFNESS = 2e3  # of a spring, in newtons per metre and kilogram
DAMPING = 1.5  # per second
CONTACT = 4e3  # of ball and floor
BALL, RADIUS = (0.0, 0.0, 0.0), 0.3
FLOOR = -0.5
SPRINGS = tuple(
    (i, j)
    for i in (-2, -1, 0, 1, 2)
    for j in (-2, -1, 0, 1, 2)
    if (i, j) != (0, 0) and (abs(i) + abs(j) == 1 or abs(i) == abs(j) == 1 or abs(i) + abs(j) == 2)
)


@qd.data_oriented
class Cloth:
    """A square of masses above a ball.

    Args:
        n: Masses along each side.
        dt: The time step, in seconds.
    """

    def __init__(self, n: int, dt: float = 1e-3) -> None:
        self.n, self.dt = n, dt
        self.x = qd.Vector.field(3, float, shape=(n, n), needs_grad=True)
        self.v = qd.Vector.field(3, float, shape=(n, n), needs_grad=True)
        self.wind = qd.Vector.field(3, float, shape=(), needs_grad=True)
        self.centre = qd.Vector.field(3, float, shape=(), needs_grad=True)
        self.loss = qd.field(float, shape=(), needs_grad=True)
        self.mark = qd.Vector.field(3, float, shape=())
        line = (np.arange(n) / (n - 1) - 0.5) * SIDE
        z, x = np.meshgrid(line, line, indexing="ij")
        self.flat = np.stack([x, np.full_like(x, 0.45), z], -1)

    @qd.kernel
    def accelerate(self):
        for i, j in self.x:
            here = self.x[i, j]
            a = qd.Vector([0.0, -9.8, 0.0]) + self.wind[None]
            for s in qd.static(SPRINGS):
                p, q = i + s[0], j + s[1]
                if p >= 0 and p < self.n and q >= 0 and q < self.n:
                    away = self.x[p, q] - here
                    length = qd.static(SIDE / (self.n - 1) * float(np.hypot(s[0], s[1])))
                    now = away.norm()
                    a += STIFFNESS * (now - length) / now * away
            out = here - qd.Vector([BALL[0], BALL[1], BALL[2]])
            depth = RADIUS - out.norm()
            if depth > 0.0:
                a += CONTACT * depth * out.normalized() - 10.0 * self.v[i, j]
            if here[1] < FLOOR:
                a[1] += CONTACT * (FLOOR - here[1])
                a -= 10.0 * self.v[i, j]
            a -= DAMPING * self.v[i, j]
            self.v[i, j] += self.dt * a

    @qd.kernel
    def move(self):
        for i, j in self.x:
            self.x[i, j] += self.dt * self.v[i, j]

    @qd.kernel
    def average(self):
        for i, j in self.x:
            self.centre[None] += self.x[i, j] / (self.n * self.n)

    @qd.kernel
    def misfit(self):
        for _ in range(1):
            self.loss[None] = (self.centre[None] - self.mark[None]).norm_sqr()

    def step(self, _number: int = 0) -> None:
        """One time step."""
        self.accelerate()
        self.move()

    def prepare(self, wind: np.ndarray) -> None:
        """Hang the cloth up again, and set the acceleration by the wind, of shape (3,)."""
        self.x.from_numpy(self.flat)
        self.v.fill(0.0)
        self.wind[None] = list(wind)
        self.centre[None] = [0.0, 0.0, 0.0]

    def simulate(self, wind: np.ndarray, steps: int) -> float:
        """The squared distance of the cloth's centre from its mark, in square metres."""
        self.prepare(wind)
        for _ in range(steps):
            self.step()
        self.average()
        self.misfit()
        return self.loss[None]

    def value_and_gradient(
        self, wind: np.ndarray, steps: int, slots: int = 24
    ) -> tuple[float, np.ndarray]:
        """The same, and its gradient by the wind; memory grows with `slots`, not with steps."""
        self.prepare(wind)
        with qd.ad.Tape(loss=self.loss):
            qd.ad.checkpointed(self.step, steps, slots=slots)
            self.average()
            self.misfit()
        return self.loss[None], np.array(self.wind.grad[None])


def aim(cloth: Cloth, steps: int, iterations: int) -> tuple[np.ndarray, list[float]]:
    """The wind that blows the cloth onto its mark, by descent; and the losses on the way."""
    wind = np.zeros(3)
    losses = []
    for _ in range(iterations):
        loss, gradient = cloth.value_and_gradient(wind, steps)
        losses.append(loss)
        wind = wind - 30.0 * gradient * (1, 0, 1)
    return wind, losses


def workload():
    """The forward run that ``bench/examples.py`` times; `checkpointed` is Octants' own."""
    cloth = Cloth(64)
    return lambda: cloth.simulate(np.zeros(3), 50), None


def draw(cloth: Cloth, path: str) -> None:
    """The cloth, as it lies on the ball."""
    from matplotlib.figure import Figure

    x = cloth.x.to_numpy()
    axes = (figure := Figure(figsize=(4.4, 3.6), layout="constrained")).add_subplot(projection="3d")
    axes.plot_surface(x[..., 0], x[..., 2], x[..., 1], color="#c8553d", rstride=1, cstride=1)
    axes.set(xlim=(-0.6, 0.6), ylim=(-0.6, 0.6), zlim=(-0.5, 0.5))
    axes.view_init(25, -60)
    axes.set_axis_off()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Find the wind, print it, draw the cloth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=24, help="masses along each side")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--iterations", type=int, default=12)
    parser.add_argument("--output", default="cloth-contact.png", help="the picture")
    options = parser.parse_args()
    qd.init(arch=qd.cpu, default_fp=qd.f64)
    cloth = Cloth(options.size)
    cloth.mark[None] = [0.12, 0.1, -0.08]
    wind, losses = aim(cloth, options.steps, options.iterations)
    print(f"loss {losses[0]:.5f} -> {losses[-1]:.5f}; wind {wind.round(2)} m/s2")
    draw(cloth, options.output)


if __name__ == "__main__":
    main()
