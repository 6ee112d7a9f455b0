"""Loops of steps, checkpointed in several ways, and a program of fields and kernels for them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

import octants as qd
from octants import driver
from tests.devices import ON_GPU

N = 4
Loop = Callable[[Callable[[int], Any], int], Any]


def plainly(step: Callable[[int], Any], n: int) -> None:
    for i in range(n):
        step(i)


def checkpointed(slots: int) -> Loop:
    return lambda step, n: qd.ad.checkpointed(step, n, slots=slots)


def until_false(slots: int) -> Loop:
    """The same loop, which says itself when it ends."""

    def run(step: Callable[[int], Any], n: int) -> Any:
        def step_or_end(i: int) -> bool:
            step(i)
            return i < n - 1

        return qd.ad.checkpointed(step_or_end, slots=slots)

    return run


LOOPS = {
    "one slot": checkpointed(1),
    "three slots": checkpointed(3),
    "many slots": checkpointed(50),
    "unknown length": until_false(3),
    "unknown length, one slot": until_false(1),
}


class Chain:
    """Masses on springs, a trajectory, a loss that grows in each step."""

    def __init__(self, steps: int = 30) -> None:
        self.steps = steps
        self.x = qd.field(qd.f64, N, needs_grad=True)
        self.v = qd.field(qd.f64, N, needs_grad=True)
        self.other = qd.field(qd.f64, N, needs_grad=True)
        self.stiffness = qd.field(qd.f64, (), needs_grad=True)
        self.force = qd.field(qd.f64, steps, needs_grad=True)
        self.trajectory = qd.field(qd.f64, (steps + 1, N), needs_grad=True)
        self.loss = qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel
    def leap(self, i: qd.i32, dt: qd.f64):
        for k in self.x:
            pull = qd.sin(self.x[(k + 1) % N] - self.x[k])
            self.v[k] += dt * (self.stiffness[None] * pull + self.force[i])
        for k in self.x:
            self.x[k] += dt * self.v[k]

    @qd.kernel
    def square(self):
        for k in self.x:
            self.x[k] = self.x[k] * self.x[k] * 0.5 + 0.3

    @qd.kernel
    def ping(self):
        for k in self.x:
            self.other[k] = qd.cos(self.x[k]) * self.v[k]

    @qd.kernel
    def pong(self):
        for k in self.x:
            self.x[k] = self.x[k] + 0.1 * self.other[k]

    @qd.kernel
    def keep(self, i: qd.i32):
        for k in self.x:
            self.trajectory[i + 1, k] = self.x[k] * self.v[k]

    @qd.kernel
    def recall(self, i: qd.i32):
        for k in self.x:
            self.v[k] += 0.1 * self.trajectory[i // 2, k] * self.trajectory[i, k]

    @qd.kernel
    def pay(self, i: qd.i32):
        for k in self.x:
            self.loss[None] += (i + 1) * self.x[k] * self.x[k] / (1.0 + k)

    @qd.kernel
    def total(self):
        for i, k in self.trajectory:
            self.loss[None] += self.trajectory[i, k] * self.trajectory[i, k]
        for k in self.x:
            self.loss[None] += self.x[k] * self.v[k]

    @qd.kernel
    def shake(self):
        for k in self.x:
            self.x[k] = self.x[k] * (1.0 + 0.1 * qd.random(qd.f64))

    def reset(self) -> None:
        self.x.from_numpy(np.linspace(0.5, 1.5, N))
        self.v.from_numpy(np.linspace(-0.1, 0.3, N))
        self.other.fill(0.25)
        self.stiffness[None] = 3.0
        self.force.from_numpy(np.sin(np.arange(self.steps)))
        self.trajectory.fill(0.125)

    def arrays(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "steps"}

    def gradients(self) -> dict[str, Any]:
        return {name: array.grad.to_numpy() for name, array in self.arrays().items()}

    def values(self) -> dict[str, Any]:
        return {name: array.to_numpy() for name, array in self.arrays().items()}


# -- steps of all kinds ---------------------------------------------------------------------------


def in_place(c: Chain, i: int) -> None:
    c.leap(i, 0.05)
    c.square()


def ping_pong(c: Chain, i: int) -> None:
    c.ping()
    c.pong()


def with_loss(c: Chain, i: int) -> None:
    c.leap(i, 0.05)
    c.pay(i)


def with_trajectory(c: Chain, i: int) -> None:
    c.leap(i, 0.05)
    c.keep(i)


def reading_its_trajectory(c: Chain, i: int) -> None:
    c.leap(i, 0.05)
    c.keep(i)
    if i % 3 == 0:
        c.recall(i)


def with_host_writes(c: Chain, i: int) -> None:
    c.other.fill(0.0)
    c.ping()
    if i % 4 == 1:
        c.other[i % N] = 0.5
    if i % 4 == 2:
        c.v.copy_from(c.other)
    c.pong()
    c.stiffness[None] = 1.0 + i
    c.leap(i, 0.05)


def with_host_reads(c: Chain, i: int) -> None:
    c.leap(i, 0.05 / (1.0 + abs(c.x[1])))
    if c.x[0] > 0.8:
        c.square()


def with_random_numbers(c: Chain, i: int) -> None:
    c.shake()
    if i % 2:
        c.shake()


def without_gradients(c: Chain, i: int) -> None:
    c.leap(i, 0.05)
    qd.ad.no_grad(c.square)()


def with_nested_loops(c: Chain, i: int) -> None:
    def inner(k: int) -> None:
        c.leap(i, 0.01 * (k + 1))
        qd.ad.checkpointed(lambda _: c.ping(), 2, slots=1)
        c.pong()

    qd.ad.checkpointed(inner, 1 + i % 4, slots=2)
    qd.ad.checkpointed(lambda k: c.keep(i) or k < i % 3, slots=2)
    c.pay(i)


STEPS: list[Callable[[Chain, int], None]] = [
    in_place,
    ping_pong,
    with_loss,
    with_trajectory,
    reading_its_trajectory,
    with_host_writes,
    with_host_reads,
    with_random_numbers,
    without_gradients,
    with_nested_loops,
]


def run(step: Callable[[Chain, int], None], loop: Loop, n: int) -> tuple[Any, ...]:
    """Gradients and values of a program with a loop, and what stands before and after it."""
    c = Chain()
    c.reset()
    driver.state.numbers = itertools.count(1)
    with qd.ad.Tape(loss=c.loss):
        c.square()
        loop(functools.partial(step, c), n)
        c.total()
        c.square()
        c.stiffness.fill(7.0)
        c.pay(2)
    return c.gradients(), c.values(), next(driver.state.numbers)


@functools.cache
def recorded(step: Callable[[Chain, int], None], n: int) -> tuple[Any, ...]:
    """The same with all steps recorded."""
    return run(step, plainly, n)


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    """All bits are the same but, on a GPU, those of the loss: a sum of work items in any order."""
    for name, value in one.items():
        if ON_GPU and name == "loss":
            assert np.allclose(value, other[name], rtol=1e-14, atol=0.0)
            continue
        assert value.tobytes() == other[name].tobytes(), name


@qd.kernel
def decay(x: qd.types.ndarray(ndim=1), rate: qd.types.ndarray(ndim=1)):
    for k in x:
        x[k] = x[k] * (1.0 - 0.1 * rate[k] * x[k])


@qd.kernel
def sum_up(x: qd.types.ndarray(ndim=1), loss: qd.types.ndarray()):
    for k in x:
        loss[None] += x[k] * x[k]
