"""Differentiable programs as tutorials write them, in the words that peers share.

Fields have an axis for time, and a kernel takes a step. Each function makes a program of some
precision: its fields, as many steps as it has, and the kernels that run them.
"""

# ruff: noqa: I002  # the peers evaluate the annotations of kernels where these stand

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class Program:
    """A loss after some steps, and the fields whose gradients are compared."""

    run: Callable[[], None]
    loss: Any
    inputs: Sequence[Any]
    steps: int


def _random(field: Any, low: float, high: float, seed: int = 0) -> None:
    shape = field.to_numpy().shape
    values = np.random.default_rng(seed).uniform(low, high, shape)
    field.from_numpy(values.astype(field.to_numpy().dtype))


def _steps(step: Callable[[int], None], total: Callable[[], None], steps: int) -> Any:
    def run() -> None:
        for t in range(steps):
            step(t)
        total()

    return run


def wave(qd: Any, real: Any, scale: int) -> Program:
    """The wave equation on a grid."""
    n, steps = 64 * scale, 32
    u = qd.field(real, (steps + 2, n, n), needs_grad=True)
    loss = qd.field(real, (), needs_grad=True)

    @qd.kernel
    def step(t: qd.i32):
        for i, j in qd.ndrange((1, n - 1), (1, n - 1)):
            laplace = u[t + 1, i - 1, j] + u[t + 1, i + 1, j] + u[t + 1, i, j - 1]
            laplace += u[t + 1, i, j + 1] - 4.0 * u[t + 1, i, j]
            u[t + 2, i, j] = 2.0 * u[t + 1, i, j] - u[t, i, j] + 0.1 * laplace

    @qd.kernel
    def total():
        for i, j in qd.ndrange(n, n):
            loss[None] += u[steps + 1, i, j] ** 2

    _random(u, -1.0, 1.0)
    return Program(_steps(step, total, steps), loss, [u], steps)


def shallow_water(qd: Any, real: Any, scale: int) -> Program:
    """Shallow water on a periodic grid."""
    n, steps, dt = 64 * scale, 24, 0.02
    h, u, v = (qd.field(real, (steps + 1, n, n), needs_grad=True) for _ in range(3))
    loss = qd.field(real, (), needs_grad=True)

    @qd.kernel
    def step(t: qd.i32):
        for i, j in qd.ndrange(n, n):
            e, w, no, so = (i + 1) % n, (i + n - 1) % n, (j + 1) % n, (j + n - 1) % n
            du = u[t, e, j] - u[t, w, j]
            dv = v[t, i, no] - v[t, i, so]
            u[t + 1, i, j] = u[t, i, j] - dt * (
                9.81 * 0.5 * (h[t, e, j] - h[t, w, j])
                + 0.5 * u[t, i, j] * du
                + 0.5 * v[t, i, j] * (u[t, i, no] - u[t, i, so])
            )
            v[t + 1, i, j] = v[t, i, j] - dt * (
                9.81 * 0.5 * (h[t, i, no] - h[t, i, so])
                + 0.5 * u[t, i, j] * (v[t, e, j] - v[t, w, j])
                + 0.5 * v[t, i, j] * dv
            )
            flow = h[t, e, j] * u[t, e, j] - h[t, w, j] * u[t, w, j]
            flow += h[t, i, no] * v[t, i, no] - h[t, i, so] * v[t, i, so]
            h[t + 1, i, j] = h[t, i, j] - dt * 0.5 * flow

    @qd.kernel
    def total():
        for i, j in qd.ndrange(n, n):
            loss[None] += (h[steps, i, j] - 1.0) ** 2

    _random(h, 0.9, 1.1)
    _random(u, -0.1, 0.1, 1)
    _random(v, -0.1, 0.1, 2)
    return Program(_steps(step, total, steps), loss, [h, u, v], steps)


def heat(qd: Any, real: Any, scale: int) -> Program:
    """Heat in a material whose conductivity varies."""
    n, steps = 64 * scale, 32
    x = qd.field(real, (steps + 1, n, n), needs_grad=True)
    k = qd.field(real, (n, n), needs_grad=True)
    loss = qd.field(real, (), needs_grad=True)

    @qd.kernel
    def step(t: qd.i32):
        for i, j in qd.ndrange((1, n - 1), (1, n - 1)):
            flow = (k[i, j] + k[i + 1, j]) * (x[t, i + 1, j] - x[t, i, j])
            flow -= (k[i, j] + k[i - 1, j]) * (x[t, i, j] - x[t, i - 1, j])
            flow += (k[i, j] + k[i, j + 1]) * (x[t, i, j + 1] - x[t, i, j])
            flow -= (k[i, j] + k[i, j - 1]) * (x[t, i, j] - x[t, i, j - 1])
            x[t + 1, i, j] = x[t, i, j] + 0.1 * flow

    @qd.kernel
    def total():
        for i, j in qd.ndrange(n, n):
            loss[None] += x[steps, i, j] ** 2

    _random(x, 0.0, 1.0)
    _random(k, 0.5, 1.0, 1)
    return Program(_steps(step, total, steps), loss, [x, k], steps)


def advection(qd: Any, real: Any, scale: int) -> Program:
    """A tracer that a flow carries along, by upwind differences."""
    n, steps, dt = 64 * scale, 32, 0.2
    c = qd.field(real, (steps + 1, n, n), needs_grad=True)
    u, v = (qd.field(real, (n, n), needs_grad=True) for _ in range(2))
    loss = qd.field(real, (), needs_grad=True)

    @qd.kernel
    def step(t: qd.i32):
        for i, j in qd.ndrange((1, n - 1), (1, n - 1)):
            dx = c[t, i, j] - c[t, i - 1, j]
            if u[i, j] < 0.0:
                dx = c[t, i + 1, j] - c[t, i, j]
            dy = c[t, i, j] - c[t, i, j - 1]
            if v[i, j] < 0.0:
                dy = c[t, i, j + 1] - c[t, i, j]
            c[t + 1, i, j] = c[t, i, j] - dt * (u[i, j] * dx + v[i, j] * dy)

    @qd.kernel
    def total():
        for i, j in qd.ndrange(n, n):
            loss[None] += c[steps, i, j] ** 2

    _random(c, 0.0, 1.0)
    _random(u, -1.0, 1.0, 1)
    _random(v, -1.0, 1.0, 2)
    return Program(_steps(step, total, steps), loss, [c, u, v], steps)


def bodies(qd: Any, real: Any, scale: int) -> Program:
    """Bodies that attract each other, with softening."""
    n, steps, dt = 128 * scale, 16, 0.01
    x, v = (qd.Vector.field(3, real, (steps + 1, n), needs_grad=True) for _ in range(2))
    mass = qd.field(real, n, needs_grad=True)
    loss = qd.field(real, (), needs_grad=True)

    @qd.kernel
    def step(t: qd.i32):
        for i in range(n):
            force = qd.Vector([0.0, 0.0, 0.0], dt=real)
            for j in range(n):
                d = x[t, j] - x[t, i]
                r2 = d.dot(d) + 0.01
                force += mass[j] * d / (r2 * qd.sqrt(r2))
            v[t + 1, i] = v[t, i] + dt * force / n
            x[t + 1, i] = x[t, i] + dt * (v[t, i] + dt * force / n)

    @qd.kernel
    def total():
        for i in range(n):
            loss[None] += x[steps, i].dot(x[steps, i])

    _random(x, -1.0, 1.0)
    _random(v, -0.1, 0.1, 1)
    _random(mass, 0.5, 1.5, 2)
    return Program(_steps(step, total, steps), loss, [x, v, mass], steps)


def cloth(qd: Any, real: Any, scale: int) -> Program:
    """A cloth of springs along, across and two apart, which resist bending."""
    n, steps, dt = 32 * scale, 24, 0.005
    x, v = (qd.Vector.field(3, real, (steps + 1, n, n), needs_grad=True) for _ in range(2))
    stiffness = qd.field(real, 3, needs_grad=True)
    loss = qd.field(real, (), needs_grad=True)
    links = [
        (a, b, kind)
        for kind, pairs in enumerate([[(1, 0), (0, 1)], [(1, 1), (1, -1)], [(2, 0), (0, 2)]])
        for p, q in pairs
        for a, b in ((p, q), (-p, -q))
    ]

    @qd.kernel
    def step(t: qd.i32):
        for i, j in qd.ndrange(n, n):
            force = qd.Vector([0.0, -9.8, 0.0], dt=real)
            for a, b, kind in qd.static(links):
                if i + a >= 0 and i + a < n and j + b >= 0 and j + b < n:
                    d = x[t, i, j] - x[t, i + a, j + b]
                    length = qd.sqrt(d.dot(d) + 1e-6)
                    rest = (a * a + b * b) ** 0.5 / n
                    force -= stiffness[kind] * d / length * (length / rest - 1.0)
            v[t + 1, i, j] = (v[t, i, j] + dt * force) * 0.99
            x[t + 1, i, j] = x[t, i, j] + dt * (v[t, i, j] + dt * force)

    @qd.kernel
    def total():
        for i, j in qd.ndrange(n, n):
            loss[None] += x[steps, i, j].dot(x[steps, i, j])

    grid = np.stack([*np.meshgrid(*[np.arange(n) / n] * 2), np.zeros((n, n))], -1)
    noise = np.random.default_rng(0).normal(0.0, 0.1 / n, (steps + 1, n, n, 3))
    x.from_numpy((grid + noise).astype(x.to_numpy().dtype))
    _random(v, -0.1, 0.1, 1)
    _random(stiffness, 20.0, 30.0, 2)
    return Program(_steps(step, total, steps), loss, [x, v, stiffness], steps)


def elements(qd: Any, real: Any, scale: int) -> Program:
    """A Neo-Hookean body of triangles, whose forces are added to vertices."""
    n, steps, dt = 24 * scale, 24, 0.002
    vertices, cells = n * n, (n - 1) * (n - 1)
    x, v, f = (qd.Vector.field(2, real, (steps + 1, vertices), needs_grad=True) for _ in range(3))
    mu = qd.field(real, 2 * cells, needs_grad=True)
    triangles = qd.Vector.field(3, qd.i32, 2 * cells)
    loss = qd.field(real, (), needs_grad=True)

    @qd.kernel
    def forces(t: qd.i32):
        for e in range(2 * cells):
            a, b, c = triangles[e][0], triangles[e][1], triangles[e][2]
            ab, ac = (x[t, b] - x[t, a]) * n, (x[t, c] - x[t, a]) * n
            shape = qd.Matrix([[ab[0], ac[0]], [ab[1], ac[1]]])
            volume = shape.determinant()
            inverse = shape.inverse().transpose()
            stress = mu[e] * (shape - inverse) + 2.0 * qd.log(volume) * inverse
            fb = qd.Vector([stress[0, 0], stress[1, 0]]) * (0.5 / n)
            fc = qd.Vector([stress[0, 1], stress[1, 1]]) * (0.5 / n)
            f[t, b] -= fb
            f[t, c] -= fc
            f[t, a] += fb + fc

    @qd.kernel
    def move(t: qd.i32):
        for i in range(vertices):
            v[t + 1, i] = v[t, i] + dt * f[t, i] * n * n
            x[t + 1, i] = x[t, i] + dt * (v[t, i] + dt * f[t, i] * n * n)

    @qd.kernel
    def total():
        for i in range(vertices):
            loss[None] += x[steps, i].dot(x[steps, i])

    @qd.kernel
    def clear():
        for t, i in qd.ndrange(steps + 1, vertices):
            f[t, i] = qd.Vector([0.0, 0.0])

    def run() -> None:
        clear()
        for t in range(steps):
            forces(t)
            move(t)
        total()

    corner = (np.arange(n - 1)[:, None] * n + np.arange(n - 1)).ravel()
    lower = np.stack([corner, corner + n, corner + n + 1], 1)
    upper = np.stack([corner, corner + n + 1, corner + 1], 1)
    triangles.from_numpy(np.concatenate([lower, upper]).astype(np.int32))
    grid = np.stack(np.meshgrid(*[np.arange(n) / n] * 2, indexing="ij"), -1).reshape(-1, 2)
    noise = np.random.default_rng(0).normal(0.0, 0.05 / n, (steps + 1, vertices, 2))
    x.from_numpy((grid + noise).astype(x.to_numpy().dtype))
    _random(v, -0.1, 0.1, 1)
    _random(mu, 5.0, 10.0, 2)
    return Program(run, loss, [x, v, mu], steps)


def recurrent(qd: Any, real: Any, scale: int) -> Program:
    """A gated recurrent unit that a sequence of inputs drives."""
    n, batch, steps = 32, 16 * scale, 16
    h = qd.field(real, (steps + 1, batch, n), needs_grad=True)
    gate, reset = (qd.field(real, (steps, batch, n), needs_grad=True) for _ in range(2))
    x = qd.field(real, (steps, batch, n))
    wz, uz, wr, ur, wh, uh = (qd.field(real, (n, n), needs_grad=True) for _ in range(6))
    loss = qd.field(real, (), needs_grad=True)

    @qd.kernel
    def gates(t: qd.i32):
        for b, i in qd.ndrange(batch, n):
            z, r = 0.0 * h[t, b, i], 0.0 * h[t, b, i]
            for j in range(n):
                z += wz[i, j] * x[t, b, j] + uz[i, j] * h[t, b, j]
                r += wr[i, j] * x[t, b, j] + ur[i, j] * h[t, b, j]
            gate[t, b, i] = 1.0 / (1.0 + qd.exp(-z))
            reset[t, b, i] = 1.0 / (1.0 + qd.exp(-r))

    @qd.kernel
    def update(t: qd.i32):
        for b, i in qd.ndrange(batch, n):
            s = 0.0 * h[t, b, i]
            for j in range(n):
                s += wh[i, j] * x[t, b, j] + uh[i, j] * reset[t, b, j] * h[t, b, j]
            z = gate[t, b, i]
            h[t + 1, b, i] = (1.0 - z) * h[t, b, i] + z * qd.tanh(s)

    @qd.kernel
    def total():
        for b, i in qd.ndrange(batch, n):
            loss[None] += h[steps, b, i] ** 2

    def run() -> None:
        for t in range(steps):
            gates(t)
            update(t)
        total()

    for seed, weight in enumerate((wz, uz, wr, ur, wh, uh)):
        _random(weight, -0.3, 0.3, seed)
    _random(x, -1.0, 1.0, 7)
    _random(h, -0.5, 0.5, 8)
    return Program(run, loss, [h, wz, uz, uh], steps)


def lattice(qd: Any, real: Any, scale: int) -> Program:
    """A lattice Boltzmann method in two dimensions with nine velocities."""
    n, steps, tau = 32 * scale, 16, 0.7
    f = qd.Vector.field(9, real, (steps + 1, n, n), needs_grad=True)
    loss = qd.field(real, (), needs_grad=True)
    velocities = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)]
    weights = [4.0 / 9.0] + [1.0 / 9.0] * 4 + [1.0 / 36.0] * 4

    @qd.kernel
    def step(t: qd.i32):
        for i, j in qd.ndrange(n, n):
            density, ux, uy = 0.0 * f[t, i, j][0], 0.0 * f[t, i, j][0], 0.0 * f[t, i, j][0]
            for q in qd.static(range(9)):
                a, b = qd.static(velocities[q][0], velocities[q][1])
                value = f[t, (i - a + n) % n, (j - b + n) % n][q]
                density += value
                ux += a * value
                uy += b * value
            ux /= density
            uy /= density
            for q in qd.static(range(9)):
                a, b = qd.static(velocities[q][0], velocities[q][1])
                value = f[t, (i - a + n) % n, (j - b + n) % n][q]
                along = a * ux + b * uy
                balance = 1.0 + 3.0 * along + 4.5 * along * along - 1.5 * (ux * ux + uy * uy)
                f[t + 1, i, j][q] = value + (weights[q] * density * balance - value) / tau

    @qd.kernel
    def total():
        for i, j in qd.ndrange(n, n):
            loss[None] += (f[steps, i, j][1] - f[steps, i, j][3]) ** 2

    _random(f, 0.05, 0.15)
    return Program(_steps(step, total, steps), loss, [f], steps)


def particles(qd: Any, real: Any, scale: int) -> Program:
    """Particles of a fluid that pressure pushes apart, with a smooth kernel for density."""
    n, steps, dt, reach = 128 * scale, 12, 0.001, 0.3
    x, v = (qd.Vector.field(2, real, (steps + 1, n), needs_grad=True) for _ in range(2))
    density = qd.field(real, (steps, n), needs_grad=True)
    loss = qd.field(real, (), needs_grad=True)

    @qd.kernel
    def densities(t: qd.i32):
        for i in range(n):
            s = 0.0 * x[t, i][0]
            for j in range(n):
                d = x[t, i] - x[t, j]
                r2 = d.dot(d)
                if r2 < reach * reach:
                    s += (1.0 - r2 / (reach * reach)) ** 3
            density[t, i] = s

    @qd.kernel
    def move(t: qd.i32):
        for i in range(n):
            force = qd.Vector([0.0, -1.0], dt=real)
            for j in range(n):
                d = x[t, i] - x[t, j]
                r2 = d.dot(d)
                if r2 < reach * reach:
                    pressure = density[t, i] + density[t, j] - 2.0
                    force += pressure * (1.0 - r2 / (reach * reach)) ** 2 * d
            v[t + 1, i] = v[t, i] + dt * force
            x[t + 1, i] = x[t, i] + dt * (v[t, i] + dt * force)

    @qd.kernel
    def total():
        for i in range(n):
            loss[None] += x[steps, i].dot(x[steps, i])

    def run() -> None:
        for t in range(steps):
            densities(t)
            move(t)
        total()

    _random(x, 0.0, 1.0)
    _random(v, -0.1, 0.1, 1)
    return Program(run, loss, [x, v], steps)


PROGRAMS = {
    "wave": wave,
    "shallow water": shallow_water,
    "heat": heat,
    "advection": advection,
    "bodies": bodies,
    "cloth": cloth,
    "elements": elements,
    "recurrent": recurrent,
    "lattice": lattice,
    "particles": particles,
}
