"""A cloth that hangs from two corners, and the wind that brings it to a place.

``python -m octants demo cloth`` finds a wind for which the lowest corner of the cloth is at a
target after some seconds, by gradient descent through all time steps. The steps overwrite the
state in place; `ad.checkpointed` keeps a few of the states.
"""
# What follows is, in parts, the language of kernels, which a type checker of Python cannot read.
# mypy: ignore-errors

from __future__ import annotations

import octants as qd

SIDE = 0.1  # between neighbours, in metres
DT = 2e-3  # seconds
TARGET = 0.8, 0.66, -1.0
RATE = 10.0
NEIGHBOURS = tuple((i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0))


@qd.data_oriented
class Cloth:
    """A square of ``n`` x ``n`` points of unit mass, with springs to the eight neighbours."""

    def __init__(self, n: int = 16) -> None:
        self.n = n
        self.x = qd.Vector.field(3, qd.f64, shape=(n, n), needs_grad=True)
        self.v = qd.Vector.field(3, qd.f64, shape=(n, n), needs_grad=True)
        self.wind = qd.Vector.field(3, qd.f64, shape=(), needs_grad=True)
        self.stiffness = qd.field(qd.f64, shape=(), needs_grad=True)
        self.loss = qd.field(qd.f64, shape=(), needs_grad=True)
        self.stiffness[None] = 500.0

    @qd.kernel
    def start(self):
        for i, j in self.x:
            self.x[i, j] = qd.Vector([SIDE * i, SIDE * j, 0.0])
            self.v[i, j] = qd.Vector([0.0, 0.0, 0.0])

    @qd.kernel
    def accelerate(self):
        for i, j in self.x:
            force = qd.Vector([0.0, 0.0, -9.8]) + self.wind[None] - self.v[i, j]
            for a, b in qd.static(NEIGHBOURS):
                p, q = i + a, j + b
                if 0 <= p < self.n and 0 <= q < self.n:
                    d = self.x[p, q] - self.x[i, j]
                    rest = SIDE * (a * a + b * b) ** 0.5
                    force += self.stiffness[None] * (1.0 - rest / d.norm()) * d
            if j > 0 or 0 < i < self.n - 1:
                self.v[i, j] += DT * force

    @qd.kernel
    def move(self):
        for i, j in self.x:
            self.x[i, j] += DT * self.v[i, j]

    @qd.kernel
    def miss(self, x: qd.f64, y: qd.f64, z: qd.f64):
        corner = self.x[self.n - 1, self.n - 1]
        self.loss[None] = (corner - qd.Vector([x, y, z])).norm_sqr()

    def step(self, _: int) -> None:
        """One step of the symplectic Euler method."""
        self.accelerate()
        self.move()

    def run(self, steps: int, slots: int = 20) -> None:
        """Hang it up and let time pass."""
        self.start()
        qd.ad.checkpointed(self.step, steps, slots=slots)


def main(n: int = 8, steps: int = 500, rounds: int = 12) -> float:
    """Find the wind; how far the corner is from the target at the end, in metres."""
    qd.init(arch=qd.cpu)
    cloth = Cloth(n)
    distance = 0.0
    for number in range(rounds):
        with qd.ad.Tape(loss=cloth.loss):
            cloth.run(steps)
            cloth.miss(*TARGET)
        distance = cloth.loss[None] ** 0.5
        wind = cloth.wind.to_numpy()
        print(f"{number}: wind {wind.round(2)}, off by {distance:.3f} m")
        cloth.wind.from_numpy(wind - RATE * cloth.wind.grad.to_numpy())
    return distance
