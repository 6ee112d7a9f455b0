"""Differentiable simulators whose fields have an axis for time, in the words that peers share.

Each has fields of shape (steps, ...), several placed in one block, and kernels that take the step
as an argument; it is cleared and run again for each gradient. `make` gives a function that runs
one under a tape, and one that gives the loss and some gradients.
"""

# ruff: noqa: I002  # the peers evaluate the annotations of kernels where these stand

from collections.abc import Callable
from typing import Any

import numpy as np

Simulator = tuple[Callable[[], Any], Callable[[], list[float]]]


def robot(qd: Any, steps: int) -> Simulator:
    """A net of springs with muscles, which a small network drives by what it sees."""
    side, waves, hidden_size, dt = 5, 6, 16, 0.004
    n = side * side
    places = [(0.1 * (k // side) + 0.1, 0.1 * (k % side) + 0.1) for k in range(n)]
    pairs = [
        (a, b)
        for a in range(n)
        for b in range(a + 1, n)
        if np.hypot(places[a][0] - places[b][0], places[a][1] - places[b][1]) < 0.15
    ]
    m, inputs = len(pairs), waves + 4 * n + 2
    x, v, pushed, centre = (qd.Vector.field(2, qd.f32) for _ in range(4))
    hidden, muscle, w1, w2, b1, b2 = (qd.field(qd.f32) for _ in range(6))
    loss = qd.field(qd.f32)
    qd.root.dense(qd.ij, (steps + 1, n)).place(x, v, pushed)
    qd.root.dense(qd.i, steps + 1).place(centre)
    qd.root.dense(qd.ij, (steps + 1, hidden_size)).place(hidden)
    qd.root.dense(qd.ij, (steps + 1, m)).place(muscle)
    qd.root.dense(qd.ij, (hidden_size, inputs)).place(w1)
    qd.root.dense(qd.ij, (m, hidden_size)).place(w2)
    qd.root.dense(qd.i, hidden_size).place(b1)
    qd.root.dense(qd.i, m).place(b2)
    qd.root.place(loss)
    qd.root.lazy_grad()
    first, second, rest = qd.field(qd.i32, m), qd.field(qd.i32, m), qd.field(qd.f32, m)

    @qd.kernel
    def clear():
        for t, i in qd.ndrange(steps + 1, n):
            pushed[t, i] = qd.Vector([0.0, 0.0])

    @qd.kernel
    def find_centre(t: qd.i32):
        for _ in range(1):
            total = qd.Vector([0.0, 0.0])
            for i in qd.static(range(n)):
                total += x[t, i]
            centre[t] = total / n

    @qd.kernel
    def see(t: qd.i32):
        for i in range(hidden_size):
            s = 0.0
            for j in qd.static(range(waves)):
                s += w1[i, j] * qd.sin(10.0 * t * dt + 6.2832 / waves * j)
            for j in qd.static(range(n)):
                offset = x[t, j] - centre[t]
                s += w1[i, j * 4 + waves] * offset[0] * 0.05
                s += w1[i, j * 4 + waves + 1] * offset[1] * 0.05
                s += w1[i, j * 4 + waves + 2] * v[t, j][0] * 0.05
                s += w1[i, j * 4 + waves + 3] * v[t, j][1] * 0.05
            s += w1[i, n * 4 + waves] * (0.9 - centre[t][0])
            s += w1[i, n * 4 + waves + 1] * (0.2 - centre[t][1])
            hidden[t, i] = qd.tanh(s + b1[i])

    @qd.kernel
    def act(t: qd.i32):
        for i in range(m):
            s = 0.0
            for j in qd.static(range(hidden_size)):
                s += w2[i, j] * hidden[t, j]
            muscle[t, i] = qd.tanh(s + b2[i])

    @qd.kernel
    def pull(t: qd.i32):
        for i in range(m):
            a, b = first[i], second[i]
            apart = x[t, a] - x[t, b]
            length = apart.norm(1e-6)
            wanted = rest[i] * (1.0 + 0.2 * muscle[t, i])
            impulse = dt * (length - wanted) * 500.0 / length * apart
            pushed[t + 1, a] += -impulse
            pushed[t + 1, b] += impulse

    @qd.kernel
    def advance(t: qd.i32):
        for i in range(n):
            old = qd.exp(-dt) * v[t - 1, i] + pushed[t, i] + qd.Vector([0.0, -1.8 * dt])
            before, new, hit = x[t - 1, i], old, 0.0
            if before[1] < 0.05 and old[1] < -1e-4:
                hit = -(before[1] - 0.05) / old[1]
                new = qd.Vector([0.0, 0.0])
            x[t, i] = before + hit * old + (dt - hit) * new
            v[t, i] = new

    @qd.kernel
    def measure():
        loss[None] = -x[steps, n - 1][0] - centre[steps - 1][0]

    rng = np.random.default_rng(0)
    first.from_numpy(np.array([a for a, _ in pairs], np.int32))
    second.from_numpy(np.array([b for _, b in pairs], np.int32))
    lengths = [np.hypot(*np.subtract(places[a], places[b])) for a, b in pairs]
    rest.from_numpy(np.array(lengths, np.float32))
    w1.from_numpy(rng.normal(size=(hidden_size, inputs)).astype(np.float32) * 0.3)
    w2.from_numpy(rng.normal(size=(m, hidden_size)).astype(np.float32) * 0.3)

    def run() -> Any:
        clear()
        for i in range(n):
            x[0, i] = places[i]
        with qd.ad.Tape(loss=loss) as tape:
            for t in range(1, steps + 1):
                find_centre(t - 1)
                see(t - 1)
                act(t - 1)
                pull(t - 1)
                advance(t)
            measure()
        return tape

    return run, lambda: [loss[None], *np.abs(w1.grad.to_numpy()).sum(axis=0)[:4], b1.grad[0]]


def material_points(qd: Any, steps: int) -> Simulator:
    """An elastic block as material points, with a grid for each step."""
    n, g, dt = 256, 32, 2e-4
    dx = 1 / g
    x, v, grid_v, grid_out = (qd.Vector.field(2, qd.f32) for _ in range(4))
    affine, strain = (qd.Matrix.field(2, 2, qd.f32) for _ in range(2))
    grid_m, loss = qd.field(qd.f32), qd.field(qd.f32)
    start = qd.Vector.field(2, qd.f32)
    qd.root.dense(qd.ij, (steps + 1, n)).place(x, v, affine, strain)
    qd.root.dense(qd.i, steps + 1).dense(qd.jk, (g, g)).place(grid_v, grid_m, grid_out)
    qd.root.place(start, loss)
    qd.root.lazy_grad()

    @qd.kernel
    def clear():
        for t, i, j in grid_m:
            grid_v[t, i, j] = qd.Vector([0.0, 0.0])
            grid_m[t, i, j] = 0.0

    @qd.kernel
    def throw():
        for i in range(n):
            v[0, i] = start[None]

    @qd.kernel
    def to_grid(t: qd.i32):
        for p in range(n):
            base = qd.cast(x[t, p] * g - 0.5, qd.i32)
            fx = x[t, p] * g - qd.cast(base, qd.f32)
            w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
            one = qd.Matrix([[1.0, 0.0], [0.0, 1.0]])
            new = (one + dt * affine[t, p]) @ strain[t, p]
            strain[t + 1, p] = new
            area = new.determinant()
            stress = -(dt * 40.0) * (new @ new.transpose() - area * area * one)
            spread = 0.1 * stress + affine[t, p]
            for i in qd.static(range(3)):
                for j in qd.static(range(3)):
                    offset = qd.Vector([i, j])
                    distance = (qd.cast(offset, qd.f32) - fx) * dx
                    weight = w[i][0] * w[j][1]
                    grid_v[t, base + offset] += weight * (v[t, p] + spread @ distance)
                    grid_m[t, base + offset] += weight

    @qd.kernel
    def on_grid(t: qd.i32):
        for i, j in qd.ndrange(g, g):
            new = grid_v[t, i, j] / (grid_m[t, i, j] + 1e-10)
            new[1] -= dt * 9.8
            if i < 3 and new[0] < 0:
                new[0] = 0.0
            if i > g - 3 and new[0] > 0:
                new[0] = 0.0
            if j < 3 and new[1] < 0:
                new[1] = 0.0
            if j > g - 3 and new[1] > 0:
                new[1] = 0.0
            grid_out[t, i, j] = new

    @qd.kernel
    def from_grid(t: qd.i32):
        for p in range(n):
            base = qd.cast(x[t, p] * g - 0.5, qd.i32)
            fx = x[t, p] * g - qd.cast(base, qd.f32)
            w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
            new = qd.Vector([0.0, 0.0])
            turned = qd.Matrix([[0.0, 0.0], [0.0, 0.0]])
            for i in qd.static(range(3)):
                for j in qd.static(range(3)):
                    distance = qd.cast(qd.Vector([i, j]), qd.f32) - fx
                    seen = grid_out[t, base + qd.Vector([i, j])]
                    weight = w[i][0] * w[j][1]
                    new += weight * seen
                    turned += 4 * g * weight * seen.outer_product(distance)
            v[t + 1, p] = new
            x[t + 1, p] = x[t, p] + dt * new
            affine[t + 1, p] = turned

    @qd.kernel
    def measure():
        for p in range(n):
            loss[None] += (1.0 / n) * (x[steps, p][0] + x[steps, p][1] * x[steps, p][1])

    positions = (0.3 + 0.2 * np.random.default_rng(0).random((n, 2))).astype(np.float32)
    for i in range(n):
        x[0, i] = positions[i]
        strain[0, i] = [[1, 0], [0, 1]]
    start[None] = [1.0, 0.5]

    def run() -> Any:
        clear()
        with qd.ad.Tape(loss=loss) as tape:
            throw()
            for t in range(steps):
                to_grid(t)
                on_grid(t)
                from_grid(t)
            measure()
        return tape

    return run, lambda: [loss[None], *start.grad[None]]


def billiards(qd: Any, steps: int) -> Simulator:
    """Balls that push each other: pairs in a loop, impulses as atomics, two loops in a kernel."""
    rows, dt, radius = 4, 0.003, 0.03
    n = 1 + rows * (rows + 1) // 2
    x, v, shift, impulse = (qd.Vector.field(2, qd.f32) for _ in range(4))
    start_x, start_v = (qd.Vector.field(2, qd.f32) for _ in range(2))
    loss = qd.field(qd.f32)
    qd.root.dense(qd.i, steps + 1).dense(qd.j, n).place(x, v, shift, impulse)
    qd.root.place(start_x, start_v, loss)
    qd.root.lazy_grad()

    @qd.kernel
    def clear():
        for t, i in qd.ndrange(steps + 1, n):
            impulse[t, i] = qd.Vector([0.0, 0.0])
            shift[t, i] = qd.Vector([0.0, 0.0])

    @qd.kernel
    def place():
        for _ in range(1):
            x[0, 0] = start_x[None]
            v[0, 0] = start_v[None]
            for i in qd.static(range(rows)):
                for j in qd.static(range(i + 1)):
                    ball = 1 + i * (i + 1) // 2 + j
                    x[0, ball] = qd.Vector([0.5 + i * 0.07, 0.5 + (j - i / 2) * 0.075])
                    v[0, ball] = qd.Vector([0.0, 0.0])

    @qd.func
    def push(t, i, j):
        apart = (x[t, i] + dt * v[t, i]) - (x[t, j] + dt * v[t, j])
        distance = apart.norm(1e-6)
        if distance < 2 * radius:
            along = apart / distance
            speed = along.dot(v[t, i] - v[t, j])
            strength = 0.0
            if speed < 0:
                strength = 0.9 * speed
                time = (distance - 2 * radius) / qd.min(-1e-3, speed)
                shift[t + 1, i] += qd.min(time - dt, 0) * (-strength * along)
            impulse[t + 1, i] += -strength * along

    @qd.kernel
    def collide(t: qd.i32):
        for i in range(n):
            for j in qd.static(range(n)):
                if i != j:
                    push(t, i, j)

    @qd.kernel
    def advance(t: qd.i32):
        for i in range(n):
            v[t, i] = v[t - 1, i] + impulse[t, i]
            x[t, i] = x[t - 1, i] + dt * v[t, i] + shift[t, i]

    @qd.kernel
    def measure():
        loss[None] = (x[steps, n - 1][0] - 0.9) ** 2 + (x[steps, n - 1][1] - 0.75) ** 2

    start_x[None] = [0.1, 0.5]
    start_v[None] = [1.0, 0.02]

    def run() -> Any:
        clear()
        with qd.ad.Tape(loss=loss) as tape:
            place()
            for t in range(1, steps + 1):
                collide(t - 1)
                advance(t)
            measure()
        return tape

    return run, lambda: [loss[None], *start_v.grad[None], *start_x.grad[None]]


SIMULATORS: dict[str, Callable[[Any, int], Simulator]] = {
    "robot": robot,
    "material points": material_points,
    "billiards": billiards,
}
