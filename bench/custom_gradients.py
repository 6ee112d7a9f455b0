"""An MPM whose grid is computed again in the gradient of each step; `host_calls` measures it."""
# mypy: ignore-errors
# ruff: noqa: I002  # Quadrants evaluates annotations as they are, also those of local names

import numpy as np

PARTICLES, STEPS, NODES = 492, 64, 32


def programs(qd):
    """A training step on a tape of functions with custom gradients, and one called by hand."""
    n, dt, dx = NODES, 1e-3, 1.0 / NODES
    rows = STEPS + 1, PARTICLES
    x, v = (qd.Vector.field(2, qd.f32, rows, needs_grad=True) for _ in range(2))
    C, F = (qd.Matrix.field(2, 2, qd.f32, rows, needs_grad=True) for _ in range(2))
    moved, out = (qd.Vector.field(2, qd.f32, (n, n), needs_grad=True) for _ in range(2))
    mass = qd.field(qd.f32, (n, n), needs_grad=True)
    loss, push = (qd.field(qd.f32, (), needs_grad=True) for _ in range(2))

    @qd.kernel
    def clear_grid():
        for i, j in mass:
            mass[i, j] = 0.0
            mass.grad[i, j] = 0.0
            for k in qd.static(range(2)):
                moved[i, j][k] = 0.0
                moved.grad[i, j][k] = 0.0
                out.grad[i, j][k] = 0.0

    @qd.kernel
    def to_grid(t: qd.i32):
        for p in range(PARTICLES):
            base = qd.cast(x[t, p] * n - 0.5, qd.i32)
            f = x[t, p] * n - qd.cast(base, qd.f32)
            w = [0.5 * (1.5 - f) ** 2, 0.75 - (f - 1.0) ** 2, 0.5 * (f - 0.5) ** 2]
            identity = qd.Matrix([[1.0, 0.0], [0.0, 1.0]])
            G = (identity + dt * C[t, p]) @ F[t, p]
            F[t + 1, p] = G
            affine = 1e-2 * C[t, p] - 4e-7 * n * n * 10.0 * (G @ G.transpose() - identity)
            for i in qd.static(range(3)):
                for j in qd.static(range(3)):
                    weight = w[i][0] * w[j][1]
                    offset = (qd.Vector([float(i), float(j)]) - f) * dx
                    node = base + qd.Vector([i, j])
                    moved[node] += weight * (1e-2 * v[t, p] + affine @ offset)
                    mass[node] += weight * 1e-2

    @qd.kernel
    def on_grid():
        for i, j in mass:
            velocity = moved[i, j] / (mass[i, j] + 1e-10)
            velocity[0] += dt * push[None]
            velocity[1] -= dt * 3.8
            if (i < 3 and velocity[0] < 0) or (i > n - 3 and velocity[0] > 0):
                velocity[0] = 0.0
            if (j < 3 and velocity[1] < 0) or (j > n - 3 and velocity[1] > 0):
                velocity[1] = 0.0
            out[i, j] = velocity

    @qd.kernel
    def to_particles(t: qd.i32):
        for p in range(PARTICLES):
            base = qd.cast(x[t, p] * n - 0.5, qd.i32)
            f = x[t, p] * n - qd.cast(base, qd.f32)
            w = [0.5 * (1.5 - f) ** 2, 0.75 - (f - 1.0) ** 2, 0.5 * (f - 0.5) ** 2]
            velocity = qd.Vector([0.0, 0.0])
            gradient = qd.Matrix([[0.0, 0.0], [0.0, 0.0]])
            for i in qd.static(range(3)):
                for j in qd.static(range(3)):
                    here = out[base + qd.Vector([i, j])]
                    weight = w[i][0] * w[j][1]
                    velocity += weight * here
                    offset = qd.Vector([float(i), float(j)]) - f
                    gradient += 4.0 * n * weight * here.outer_product(offset)
            v[t + 1, p], C[t + 1, p] = velocity, gradient
            x[t + 1, p] = x[t, p] + dt * velocity

    @qd.kernel
    def measure():
        for p in range(PARTICLES):
            loss[None] -= x[STEPS, p][0] / PARTICLES

    def run(t):
        clear_grid()
        to_grid(t)
        on_grid()
        to_particles(t)

    def back(t):
        clear_grid()
        to_grid(t)
        on_grid()
        to_particles.grad(t)
        on_grid.grad()
        to_grid.grad(t)

    step = qd.ad.grad_replaced(run)
    qd.ad.grad_for(step)(back)
    start, shape = np.zeros((*rows, 2), np.float32), np.zeros((*rows, 2, 2), np.float32)
    start[0] = 0.3 + 0.3 * np.random.default_rng(0).random((PARTICLES, 2))
    shape[0] = np.eye(2)
    x.from_numpy(start)
    F.from_numpy(shape)

    def on_a_tape():
        with qd.ad.Tape(loss):
            for t in range(STEPS):
                step(t)
            measure()

    def with_initial_values():
        with qd.ad.Tape(loss):
            for p in range(PARTICLES):
                x[0, p] = [start[0, p, 0], start[0, p, 1]]
                v[0, p] = [0.0, 0.0]
            for t in range(STEPS):
                step(t)
            measure()

    def by_hand():
        for field in (x, v, C, F, push):
            field.grad.fill(0.0)
        loss[None], loss.grad[None] = 0.0, 1.0
        for t in range(STEPS):
            run(t)
        measure()
        measure.grad()
        for t in reversed(range(STEPS)):
            back(t)

    return {
        "on a tape": on_a_tape,
        "on a tape, initial values in it": with_initial_values,
        "by hand": by_hand,
    }
