"""JAX: functions of arrays, compiled by XLA; their loops are scans, of lengths known then."""
# mypy: ignore-errors

from __future__ import annotations

import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import problems
from systems import NotOffered


class System:
    """JAX on one device; its threads on a CPU are those that the process may run on."""

    def __init__(self, threads: int, arch: str) -> None:
        if arch not in ("cpu", "cuda"):
            raise NotOffered(f"JAX does not run on {arch}")
        jax.config.update("jax_platforms", arch)
        jax.config.update("jax_enable_compilation_cache", False)

    def describe(self):
        """What it ran with."""
        return {
            "version": jax.__version__,
            "flags": f"XLA_FLAGS={os.environ.get('XLA_FLAGS', '')!r}",
            "accuracy": "no fast math, the default",
            "tape": "what a scan stores, for all items at once",
        }

    last = None

    def sync(self) -> None:
        """Wait until all is done: a device does one thing after the other."""
        if self.last is not None:
            jax.block_until_ready(self.last.results)

    def program(self, problem):
        """The workload."""
        if problem.name == "springs-graph":
            raise NotOffered("is one already")
        kind = Springs if problem.name == "springs" else Program
        self.last = kind(problem, FUNCTIONS[problem.name](problem))
        return self.last

    def chain(self, statements: int, folder: Path):
        """A chain of statements in a loop."""
        lines = "\n".join(f"    {line}" for line in problems.chain(statements, "jnp"))
        names = {"jnp": jnp}
        exec(f"def step(state):\n    v, w = state\n{lines}\n    return v, w\n", names)
        problem = problems.make("recurrence", problems.CHAIN_ITEMS, problems.CHAIN_STEPS)
        function = lambda x: sum(repeat(names["step"], (x, x), problem.steps))  # noqa: E731
        self.last = Program(problem, function)
        return self.last

    def launches(self):
        """Calls of functions that do next to nothing."""
        x, b, c, d = (jnp.zeros(8, jnp.float32) for _ in range(4))
        one = jax.jit(lambda x: jnp.sum(x * x))
        four = jax.jit(lambda b, c, d, s: b + s * c * d)
        step = jax.jit(jax.value_and_grad(lambda x: jnp.sum(x * x)))
        return {
            "one array": lambda: one(x).block_until_ready(),
            "4 arrays and a scalar": lambda: four(b, c, d, 0.5).block_until_ready(),
            "gradient step": lambda: jax.block_until_ready(step(x)),
        }


class Program:
    """A function of the inputs, and the gradient of the sum of what it returns."""

    is_paired = False
    results = ()

    def __init__(self, problem, function) -> None:
        self.problem = problem
        self.inputs = [jnp.asarray(array) for array in problem.inputs]
        self.function = jax.jit(function)
        positions = tuple(range(len(self.inputs)))
        self.reverse = jax.jit(jax.grad(lambda *x: jnp.sum(function(*x)), positions))

    def forward(self) -> None:
        """The output."""
        self.output = self.results = self.function(*self.inputs)

    def seed(self) -> None:
        """Gradients are made anew."""

    def backward(self) -> None:
        """The gradients."""
        self.gradients = self.results = self.reverse(*self.inputs)

    def value(self):
        """The output."""
        return np.asarray(self.output).ravel()

    def gradient(self):
        """The gradients of the inputs, one after the other."""
        return np.concatenate([np.asarray(array).ravel() for array in self.gradients])


class Springs(Program):
    """A function of positions and velocities, and the gradient of the loss of what it returns."""

    def __init__(self, problem, function) -> None:
        super().__init__(problem, function)
        loss = lambda x, v: 0.5 * jnp.sum(function(x, v)[0] ** 2)  # noqa: E731
        self.reverse = jax.jit(jax.grad(loss, (0, 1)))

    def value(self):
        """The positions and velocities after the last step."""
        return np.concatenate([np.asarray(array).ravel() for array in self.output])


def repeat(step, start, steps: int):
    """A function of what it returned before, so many times."""
    return jax.lax.scan(lambda v, _: (step(v), None), start, None, length=steps)[0]


def recurrence(problem):
    return lambda x: repeat(lambda v: jnp.sin(v) * 0.95 + 0.01, x, problem.steps)


def affine(problem):
    return lambda x, a: repeat(lambda v: v * a + 0.01, x, problem.steps)


def ragged(problem):
    """The nest as one loop, in which items that are done keep their value."""
    outer = np.repeat(np.arange(problem.steps), np.arange(problem.steps))
    count = jnp.asarray(problem.count)

    def step(v, j):
        return jnp.where(j < count, jnp.sin(v) * 0.95 + 0.01, v), None

    return lambda x: jax.lax.scan(step, x, jnp.asarray(outer))[0]


def nest(problem):
    """The nest as one loop, too."""
    counters = np.tril_indices(problem.steps, -1)
    count, steps = jnp.asarray(problem.count), tuple(map(jnp.asarray, counters))

    def function(x):
        def step(v, counters):
            j, k = counters
            return jnp.where(j < count, jnp.sin(v + 0.01 * k) * 0.9 + 0.05 * x, v), None

        return jax.lax.scan(step, x, steps)[0]

    return function


def pairwise(problem):
    def function(x):
        d = x[None, :, :] - x[:, None, :]
        r2 = jnp.sum(d * d, axis=2) + 0.01
        force = jnp.sum(d / (r2 * jnp.sqrt(r2))[:, :, None], axis=1)
        return force * force

    return function


def slope(v):
    return (jnp.roll(v, -1) - jnp.roll(v, 2)) * jnp.roll(v, 1) - v + 2.0


def ode(problem):
    def step(v):
        k1 = slope(v)
        k2 = slope(v + 0.005 * k1)
        k3 = slope(v + 0.005 * k2)
        k4 = slope(v + 0.01 * k3)
        return v + (0.01 / 6.0) * (k1 + 2.0 * k2 + 2.0 * k3 + k4)

    return jax.vmap(lambda v: repeat(step, v, problem.steps))


def rotation(problem):
    def function(w):
        a, b, c = 0.001 * w
        u = jnp.array([[0.0, -c, b], [c, 0.0, -a], [-b, a, 0.0]])
        r = repeat(lambda r: r + r @ u, jnp.eye(3), problem.steps)
        return r[:, 0] + r[:, 2]

    return jax.vmap(function)


def decay(problem):
    return lambda x: repeat(lambda v: 0.95 * v + 0.01, x, problem.steps)


def harmonics(problem):
    def function(x):
        step = lambda v, k: (v + jnp.sin(x * k), None)  # noqa: E731
        return jax.lax.scan(step, jnp.zeros_like(x), jnp.arange(problem.steps, dtype=x.dtype))[0]

    return function


def springs(problem):
    """Each spring once, as a difference along a row or a column."""

    def pulls(x, axis):
        d = jnp.diff(x, axis=axis)
        pull = 400.0 * (1.0 - 1.0 / jnp.sqrt(jnp.sum(d * d, axis=2, keepdims=True))) * d
        ends = [[0, 0], [0, 0], [0, 0]]
        ends[axis] = [1, 1]
        return jnp.diff(jnp.pad(pull, ends), axis=axis)

    def step(state):
        x, v = state
        force = pulls(x, 0) + pulls(x, 1) + jnp.array([0.0, -9.8, 0.0], jnp.float32)
        v = 0.999 * (v + 0.002 * force)
        return x + 0.002 * v, v

    return lambda x, v: repeat(step, (x, v), problem.steps)


FUNCTIONS = {
    "recurrence": recurrence,
    "affine": affine,
    "ragged": ragged,
    "nest": nest,
    "pairwise": pairwise,
    "ode": ode,
    "rotation": rotation,
    "decay": decay,
    "harmonics": harmonics,
    "springs": springs,
}
