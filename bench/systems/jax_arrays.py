"""JAX: functions of arrays, compiled by XLA; their loops are scans, of lengths known then."""
# mypy: ignore-errors

from __future__ import annotations

import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import problems


class System:
    """JAX on the CPU; its threads are those that the process may run on."""

    def __init__(self, threads: int) -> None:
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_enable_compilation_cache", False)

    def describe(self):
        """What it ran with."""
        return {
            "version": jax.__version__,
            "flags": f"XLA_FLAGS={os.environ.get('XLA_FLAGS', '')!r}",
            "accuracy": "no fast math, the default",
            "tape": "what a scan stores, for all items at once",
        }

    def sync(self) -> None:
        """Programs wait for their own results."""

    def program(self, problem):
        """The workload."""
        return Program(problem, FUNCTIONS[problem.name](problem))

    def chain(self, statements: int, folder: Path):
        """A chain of statements in a loop."""
        lines = "\n".join(f"    {line}" for line in problems.chain(statements, "jnp"))
        names = {"jnp": jnp}
        exec(f"def step(state):\n    v, w = state\n{lines}\n    return v, w\n", names)
        problem = problems.make("recurrence", problems.CHAIN_ITEMS, problems.CHAIN_STEPS)
        return Program(problem, lambda x: sum(repeat(names["step"], (x, x), problem.steps)))

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

    def __init__(self, problem, function) -> None:
        self.inputs = [jnp.asarray(array) for array in problem.inputs]
        self.function = jax.jit(function)
        positions = tuple(range(len(self.inputs)))
        self.reverse = jax.jit(jax.grad(lambda *x: jnp.sum(function(*x)), positions))

    def forward(self) -> None:
        """The output."""
        self.output = self.function(*self.inputs).block_until_ready()

    def seed(self) -> None:
        """Gradients are made anew."""

    def backward(self) -> None:
        """The gradients."""
        self.gradients = jax.block_until_ready(self.reverse(*self.inputs))

    def value(self):
        """The output."""
        return np.asarray(self.output).ravel()

    def gradient(self):
        """The gradients of the inputs, one after the other."""
        return np.concatenate([np.asarray(array).ravel() for array in self.gradients])


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


FUNCTIONS = {
    "recurrence": recurrence,
    "affine": affine,
    "ragged": ragged,
    "pairwise": pairwise,
    "ode": ode,
    "rotation": rotation,
}
