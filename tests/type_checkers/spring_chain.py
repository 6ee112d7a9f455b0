"""A program as users write them, which type checkers accept: a chain of springs."""

from __future__ import annotations

from typing import Literal

import numpy as np

import octants as qd

qd.init(arch=qd.cpu, random_seed=3, log_level="error")

N: int = 16
STEPS = 20
DT = 0.01


@qd.dataclass
class Spring:
    stiffness: qd.f32
    length: qd.f32
    first: qd.i32


position = qd.Vector.field(2, qd.f32, shape=N, needs_grad=True)
velocity = qd.Vector.field(2, qd.f32, shape=N, needs_grad=True)
scale: qd.ScalarField[qd.f32] = qd.field(qd.f32, shape=(), needs_grad=True)
loss = qd.field(qd.f32, shape=(), needs_grad=True)
counts = qd.field(qd.i32, shape=N, device=0)
springs = qd.field(Spring, shape=N - 1)


@qd.func
def pull(stretch: qd.f32, stiffness: qd.f32) -> qd.f32:
    return stretch * stiffness


@qd.kernel
def begin(height: qd.f32) -> None:
    for i in position:
        position[i] = qd.Vector([i * 0.1, height])
        velocity[i] = qd.Vector([0.0, 0.0])
    for i in range(N - 1):
        springs[i].stiffness = 10.0
        springs[i].length = 0.08
        springs[i].first = i


@qd.kernel
def step(dt: qd.f32) -> None:
    for i in range(N - 1):
        away = position[i + 1] - position[i]
        length = away.norm(1e-6)
        force = pull(length - springs[i].length, springs[i].stiffness * scale[None]) * away / length
        velocity[i] += dt * force
        velocity[i + 1] -= dt * force


@qd.kernel
def move(dt: qd.f32) -> None:
    for i in position:
        position[i] += dt * velocity[i]


@qd.kernel
def energy() -> qd.f32:
    total = 0.0
    for i in range(N):
        total += 0.5 * velocity[i].norm_sqr()
    return total


@qd.kernel
def add(values: qd.types.NDArray[qd.f32, Literal[1]], amount: qd.f32, out: qd.Template) -> qd.i32:
    for i in range(values.shape[0]):
        out[None] += values[i] * amount
    return values.shape[0]


@qd.kernel
def measure() -> None:
    for i in position:
        loss[None] += position[i].y ** 2 + position[i].x ** 2 / N


@qd.data_oriented
class Model:
    def __init__(self, n: int) -> None:
        self.x = qd.field(qd.f64, shape=n, needs_grad=True)

    @qd.kernel
    def total(self, factor: qd.f64) -> qd.f64:
        result = qd.f64(0.0)
        for i in self.x:
            result += self.x[i] * factor
        return result


def main() -> None:
    scale[None] = 1.0
    begin(0.5)
    with qd.ad.Tape(loss=loss):
        for _ in range(STEPS):
            step(DT)
            move(DT)
        measure()
    rate: float = scale.grad[None]
    kinetic: float = energy()
    loss.grad[None] = 1.0
    values = np.ones(4, np.float32)
    count: int = add(values, 0.5, loss)
    array = qd.array([1.0, 2.0], dtype=qd.f32)
    add(array, 0.5, loss)
    first: float = array[0]
    number: int = counts[3]
    total: float = Model(4).total(2.0)
    print(f"{float(loss):.4f} {rate:.4f} {kinetic:.4f}", count, first, number, total)
    print(position[0].x, position.to_numpy().shape, springs[0].stiffness, position[1:3].shape)


if __name__ == "__main__":
    main()
