"""A kernel as a function of JAX: fit a swinging chain inside `jax.grad`.

The kernel integrates a batch of driven pendulums by the classical Runge-Kutta method, and becomes a
function of JAX by `jax.custom_vjp`. Forward and backward are callbacks; everything around them -
the loss, the optimiser - is JAX. Run it: ``python examples/ode_jax.py``.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any, Literal

import numpy as np

import octants as qd

STEPS = 400
DT = 0.02


@qd.func
def slope(state, damping, drive, t):
    """The change of angle and angular speed."""
    return qd.Vector([state[1], -qd.sin(state[0]) - damping * state[1] + drive * qd.cos(0.9 * t)])


@qd.kernel
def integrate(
    start: qd.types.NDArray[Any, Literal[2]],
    parameters: qd.types.NDArray[Any, Literal[1]],
    last: qd.types.NDArray[Any, Literal[2]],
):
    for i in range(start.shape[0]):
        state = qd.Vector([start[i, 0], start[i, 1]])
        damping, drive = parameters[0], parameters[1]
        for step in range(STEPS):
            t = step * DT
            k1 = slope(state, damping, drive, t)
            k2 = slope(state + 0.5 * DT * k1, damping, drive, t + 0.5 * DT)
            k3 = slope(state + 0.5 * DT * k2, damping, drive, t + 0.5 * DT)
            k4 = slope(state + DT * k3, damping, drive, t + DT)
            state += DT / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
        last[i, 0] = state[0]
        last[i, 1] = state[1]


class Pendulums:
    """The arrays of a batch, made once.

    Args:
        count: The number of pendulums.
    """

    def __init__(self, count: int) -> None:
        self.start = qd.ndarray(float, (count, 2), needs_grad=True)
        self.parameters = qd.ndarray(float, (2,), needs_grad=True)
        self.last = qd.ndarray(float, (count, 2), needs_grad=True)

    def forward(self, start: np.ndarray, parameters: np.ndarray) -> np.ndarray:
        """The states at the end, of shape (count, 2)."""
        self.start.from_numpy(np.ascontiguousarray(start))
        self.parameters.from_numpy(np.ascontiguousarray(parameters))
        integrate(self.start, self.parameters, self.last)
        return self.last.to_numpy()

    def backward(
        self, start: np.ndarray, parameters: np.ndarray, adjoint: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """What an adjoint of the last states, of shape (count, 2), is for both arguments."""
        self.forward(start, parameters)
        self.start.grad.fill(0.0)
        self.parameters.grad.fill(0.0)
        self.last.grad.from_numpy(np.ascontiguousarray(adjoint))
        integrate.grad(self.start, self.parameters, self.last)
        return self.start.grad.to_numpy(), self.parameters.grad.to_numpy()


def as_jax_function(pendulums: Pendulums):
    """`pendulums.forward` as a function that `jax.grad` and `jax.jit` work on."""
    import jax

    def call(function, like, *arguments):
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), like)
        return jax.pure_callback(lambda *xs: function(*map(np.asarray, xs)), shapes, *arguments)

    @jax.custom_vjp
    def last_states(start, parameters):
        return call(pendulums.forward, start, start, parameters)

    def forward(start, parameters):
        return last_states(start, parameters), (start, parameters)

    def backward(saved, adjoint):
        return call(pendulums.backward, saved, *saved, adjoint)

    last_states.defvjp(forward, backward)
    return last_states


def fit(count: int = 64, iterations: int = 200) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """The true parameters, those found from last states by gradient descent, and the losses."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    pendulums = Pendulums(count)
    last_states = as_jax_function(pendulums)
    start = np.random.default_rng(2).uniform(-1.0, 1.0, (count, 2))
    truth = np.array([0.25, 0.4])
    target = pendulums.forward(start, truth).copy()

    @partial(jax.jit, static_argnums=())
    def loss(parameters):
        return jnp.mean((last_states(start, parameters) - target) ** 2)

    descend = jax.jit(jax.value_and_grad(loss))
    parameters = jnp.array([0.6, 0.1])
    momentum = jnp.zeros(2)
    losses = []
    for _ in range(iterations):
        value, gradient = descend(parameters)
        momentum = 0.8 * momentum - 0.02 * gradient
        parameters = parameters + momentum
        losses.append(float(value))
    return truth, np.asarray(parameters), losses


def workload():
    """The forward run and the gradient that ``bench/examples.py`` times."""
    pendulums = Pendulums(4096)
    start = np.random.default_rng(2).uniform(-1.0, 1.0, (4096, 2)).astype(np.float32)
    parameters = np.array([0.6, 0.1], np.float32)
    adjoint = np.ones_like(start)
    return (
        lambda: pendulums.forward(start, parameters),
        lambda: pendulums.backward(start, parameters, adjoint)[1],
    )


def draw(losses: list[float], path: str) -> None:
    """The loss over the iterations."""
    from matplotlib.figure import Figure

    axes = (figure := Figure(figsize=(6, 2.6), layout="constrained")).subplots()
    axes.semilogy(losses, color="#b3311d")
    axes.set(xlabel="iteration", ylabel="loss")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Fit two parameters by a descent in JAX, print and draw how it went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", default="ode-jax.png", help="the picture")
    options = parser.parse_args()
    qd.init(arch=qd.cpu, default_fp=qd.f64)
    truth, found, losses = fit()
    print("damping, drive:", found.round(5), "made with", truth)
    draw(losses, options.output)


if __name__ == "__main__":
    main()
