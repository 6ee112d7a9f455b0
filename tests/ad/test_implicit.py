"""Derivatives of solutions, by the equations that they solve."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import octants as qd

vec = qd.types.ndarray(qd.f64, 1)
one = qd.types.ndarray(qd.f64, 0)


@qd.kernel
def spring_residual(x: vec, stiffness: vec, r: vec):
    n = x.shape[0]
    for i in x:
        left = x[i - 1] if i > 0 else 0.0
        right = x[i + 1] if i + 1 < n else 1.0
        r[i] = stiffness[i] * (left - x[i]) + stiffness[i + 1] * (right - x[i]) - 0.3 * x[i] ** 3


@qd.kernel
def work(x: vec, y: vec, loss: one):
    for i in x:
        loss[None] += x[i] ** 2 * (i + 1) + y[i]


@qd.kernel
def stiffen(base: vec, stiffness: vec):
    for i in stiffness:
        stiffness[i] = 1.0 + base[i] ** 2


def newton(x: Any, stiffness: Any) -> None:
    """Solve by numpy, which no tape can see."""
    k = stiffness.to_numpy()
    found = np.linspace(0.1, 0.9, x.shape[0])
    for _ in range(30):
        ends = np.concatenate([[0.0], found, [1.0]])
        r = k[:-1] * (ends[:-2] - found) + k[1:] * (ends[2:] - found) - 0.3 * found**3
        jacobian = np.diag(-k[:-1] - k[1:] - 0.9 * found**2)
        jacobian += np.diag(k[1:-1], 1) + np.diag(k[1:-1], -1)
        found = found - np.linalg.solve(jacobian, r)
    x.from_numpy(found)


def evaluate(base: Any, n: int, **how: Any) -> tuple[float, Any]:
    equilibrium = qd.ad.implicit(newton, spring_residual, **how)
    given, stiffness = (qd.ndarray(qd.f64, n + 1, needs_grad=True) for _ in range(2))
    x, y = (qd.ndarray(qd.f64, n, needs_grad=True) for _ in range(2))
    loss = qd.ndarray(qd.f64, (), needs_grad=True)
    given.from_numpy(base)
    with qd.ad.Tape(loss):
        x.fill(5.0)
        stiffen(given, stiffness)
        equilibrium(x, stiffness)
        y.copy_from(x)
        work(x, y, loss)
        x.fill(0.0)  # the backward pass needs what they were
        stiffness.fill(0.0)
    return float(loss[None]), given.grad.to_numpy()


@pytest.mark.parametrize("n", [5, 80])
def test_a_nonlinear_system_by_elimination_and_by_gmres(n: int) -> None:
    base = 1.0 + 0.3 * np.cos(np.arange(n + 1.0))
    _, gradient = evaluate(base, n)
    for k in (0, 3, n):
        step = np.zeros(n + 1)
        step[k] = 1e-5
        expected = (evaluate(base + step, n)[0] - evaluate(base - step, n)[0]) / 2e-5
        assert gradient[k] == pytest.approx(expected, rel=1e-6)


def test_a_linear_solver_of_ones_own() -> None:
    used = []

    def solve(times: Any, right: Any) -> Any:
        used.append(len(right))
        return np.linalg.solve(np.stack([times(unit) for unit in np.eye(5)], 1), right)

    base = np.linspace(1.0, 2.0, 6)
    np.testing.assert_allclose(evaluate(base, 5, linear_solve=solve)[1], evaluate(base, 5)[1])
    assert used == [5]


def test_the_time_of_an_event() -> None:
    """A ball is thrown up; its speed when it hits the ground depends on how high it begins."""

    @qd.kernel
    def height(time: vec, start: vec, r: vec):
        r[0] = start[0] + start[1] * time[0] - 5.0 * time[0] ** 2

    @qd.kernel
    def speed(time: vec, start: vec, loss: one):
        loss[None] = start[1] - 10.0 * time[0]

    def find(time: Any, start: Any) -> None:
        h, v = start.to_numpy()
        time[0] = (v + np.sqrt(v * v + 20.0 * h)) / 10.0

    hit = qd.ad.implicit(find, height)
    time, start = (qd.ndarray(qd.f64, n, needs_grad=True) for n in (1, 2))
    loss = qd.ndarray(qd.f64, (), needs_grad=True)
    start.from_numpy(np.array([2.0, 3.0]))
    with qd.ad.Tape(loss):
        hit(time, start)
        speed(time, start, loss)
    root = np.sqrt(9.0 + 40.0)
    assert loss[None] == pytest.approx(-root)
    np.testing.assert_allclose(start.grad.to_numpy(), [-10.0 / root, -3.0 / root])


def test_it_solves_without_a_tape_and_in_functions_of_arrays() -> None:
    equilibrium = qd.ad.implicit(newton, spring_residual)

    def energy(stiffness, loss):
        x, y = (qd.ndarray(qd.f64, 5, needs_grad=True) for _ in range(2))
        equilibrium(x, stiffness)
        work(x, y, loss)

    k = np.linspace(1.0, 2.0, 6)
    with pytest.raises(qd.OctantsRuntimeError, match="OCT608"):
        qd.ad.jvp(energy, out={"loss": ()})(k, tangents={"stiffness": k})
    with pytest.raises(qd.OctantsRuntimeError, match="OCT354"):
        qd.ad.hvp(energy, out={"loss": ()})(k, direction={"stiffness": k})
    loss_of = qd.ad.value_and_grad(energy, out={"loss": ()})
    _, gradients = loss_of(k)
    step = np.eye(6)[2] * 1e-5
    expected = (loss_of(k + step)[0] - loss_of(k - step)[0]) / 2e-5
    assert gradients["stiffness"][2] == pytest.approx(expected, rel=1e-7)


def test_a_singular_system_is_an_error() -> None:
    @qd.kernel
    def nothing(x: vec, p: vec, r: vec):
        for i in x:
            r[i] = 0.0 * x[i] + p[i]

    x, p = (qd.ndarray(qd.f64, 2, needs_grad=True) for _ in range(2))
    solve = qd.ad.implicit(lambda x, p: None, nothing)
    with pytest.raises(qd.OctantsRuntimeError, match="OCT359"):
        with qd.ad.Tape(x, seed=[1.0, 1.0]):
            solve(x, p)
