"""Whole programs, written as users of Taichi and Quadrants write them, against differences."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import octants as qd
from tests.ad.differences import check_tape


def run_steps(step: Callable[[int], None], n: int, how: str) -> None:
    """A loop of the host, as it is or checkpointed."""
    if how == "checkpointed":
        qd.ad.checkpointed(step, n, slots=2)
        return
    for i in range(n):
        step(i)


# -- a net of springs, with two buffers that change places -----------------------------------------


@qd.data_oriented
class MassSpring:
    def __init__(self, n: int) -> None:
        self.n = n
        self.dt = 0.02
        self.x = qd.Vector.field(2, float, shape=(2, n), needs_grad=True)
        self.v = qd.Vector.field(2, float, shape=(2, n), needs_grad=True)
        self.anchor = qd.field(int, shape=(n, 2))
        self.rest = qd.field(float, shape=n, needs_grad=True)
        self.stiffness = qd.field(float, shape=(), needs_grad=True)
        self.impulse = qd.Vector.field(2, float, shape=n, needs_grad=True)
        self.loss = qd.field(float, shape=(), needs_grad=True)

    @qd.kernel
    def clear_impulses(self):
        for i in self.impulse:
            self.impulse[i].fill(0.0)

    @qd.kernel
    def apply_springs(self, old: int):
        for s in self.rest:
            a, b = self.anchor[s, 0], self.anchor[s, 1]
            d = self.x[old, a] - self.x[old, b]
            length = d.norm(1e-9)
            impulse = self.dt * self.stiffness[None] * (length - self.rest[s]) / length * d
            qd.atomic_add(self.impulse[a], -impulse)
            qd.atomic_add(self.impulse[b], impulse)

    @qd.kernel
    def advance(self, old: int, new: int):
        for i in self.impulse:
            v = qd.exp(-self.dt * 2.0) * self.v[old, i] + self.impulse[i]
            v[1] -= self.dt * 9.8
            x = self.x[old, i] + self.dt * v
            if x[1] < 0.0 and v[1] < 0.0:  # the ground: the time of impact splits the step
                toi = 0.0
                if v[1] < -1e-4:
                    toi = qd.min(qd.max(-self.x[old, i][1] / v[1], 0.0), self.dt)
                x[1] = self.x[old, i][1] + toi * v[1]
                v[1] = 0.0
                v[0] *= 0.5
            self.x[new, i] = x
            self.v[new, i] = v

    @qd.kernel
    def compute_loss(self, last: int):
        for i in self.impulse:
            self.loss[None] += (self.x[last, i] - qd.Vector([1.5, 0.3])).norm_sqr() / self.n

    def step(self, t: int) -> None:
        old, new = t % 2, (t + 1) % 2
        self.clear_impulses()
        self.apply_springs(old)
        self.advance(old, new)


@pytest.mark.parametrize("how", ["recorded", "checkpointed"])
def test_mass_spring(how: str) -> None:
    m = MassSpring(4)
    points = np.array([[0.0, 0.22], [0.5, 0.25], [0.55, 0.7], [0.1, 0.65]])
    m.x.from_numpy(np.stack([points, np.zeros_like(points)]))
    m.v.from_numpy(np.array([[[0.4, 0.1]] * 4, [[0.0, 0.0]] * 4]))
    m.anchor.from_numpy(np.array([[0, 1], [1, 2], [2, 3], [3, 0]], np.int32))
    m.rest.from_numpy(np.array([0.5, 0.4, 0.5, 0.45]))
    m.stiffness[None] = 30.0

    def forward() -> None:
        run_steps(m.step, 20, how)
        m.compute_loss(0)

    check_tape(forward, [m.x, m.v, m.rest, m.stiffness], m.loss, [m.impulse])
    assert (m.x.to_numpy()[0, :, 1] < 0.1).any()  # some are on the ground


# -- MPM88: particles and a grid that is cleared in each step --------------------------------------


@qd.data_oriented
class Mpm88:
    def __init__(self, particles: int, grid: int) -> None:
        self.n_particles, self.n_grid = particles, grid
        self.dx, self.dt = 1.0 / grid, 2e-3
        self.p_vol = (self.dx * 0.5) ** 2
        self.gravity, self.bound, self.E = 9.8, 2, 400.0
        self.x = qd.Vector.field(2, float, particles, needs_grad=True)
        self.v = qd.Vector.field(2, float, particles, needs_grad=True)
        self.C = qd.Matrix.field(2, 2, float, particles, needs_grad=True)
        self.J = qd.field(float, particles, needs_grad=True)
        self.grid_v = qd.Vector.field(2, float, (grid, grid), needs_grad=True)
        self.grid_m = qd.field(float, (grid, grid), needs_grad=True)
        self.loss = qd.field(float, (), needs_grad=True)

    @qd.kernel
    def substep(self):
        for i, j in self.grid_m:
            self.grid_v[i, j] = [0, 0]
            self.grid_m[i, j] = 0
        for p in self.x:
            Xp = self.x[p] / self.dx
            base = int(Xp - 0.5)
            fx = Xp - base
            w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
            stress = -self.dt * 4 * self.E * self.p_vol * (self.J[p] - 1) / self.dx**2
            affine = qd.Matrix([[stress, 0], [0, stress]]) + self.p_vol * self.C[p]
            for i, j in qd.static(qd.ndrange(3, 3)):
                offset = qd.Vector([i, j])
                dpos = (offset - fx) * self.dx
                weight = w[i].x * w[j].y
                momentum = weight * (self.p_vol * self.v[p] + affine @ dpos)
                self.grid_v[base + offset] += momentum
                self.grid_m[base + offset] += weight * self.p_vol
        for i, j in self.grid_m:
            if self.grid_m[i, j] > 0:
                self.grid_v[i, j] /= self.grid_m[i, j]
            self.grid_v[i, j].y -= self.dt * self.gravity
            if i < self.bound and self.grid_v[i, j].x < 0:
                self.grid_v[i, j].x = 0
            if i > self.n_grid - self.bound and self.grid_v[i, j].x > 0:
                self.grid_v[i, j].x = 0
            if j < self.bound and self.grid_v[i, j].y < 0:
                self.grid_v[i, j].y = 0
        for p in self.x:
            Xp = self.x[p] / self.dx
            base = int(Xp - 0.5)
            fx = Xp - base
            w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
            new_v = qd.Vector.zero(float, 2)
            new_C = qd.Matrix.zero(float, 2, 2)
            for i, j in qd.static(qd.ndrange(3, 3)):
                offset = qd.Vector([i, j])
                dpos = (offset - fx) * self.dx
                weight = w[i].x * w[j].y
                g_v = self.grid_v[base + offset]
                new_v += weight * g_v
                new_C += 4 * weight * g_v.outer_product(dpos) / self.dx**2
            self.v[p] = new_v
            self.x[p] += self.dt * self.v[p]
            self.J[p] *= 1 + self.dt * new_C.trace()
            self.C[p] = new_C

    @qd.kernel
    def compute_loss(self):
        for p in self.x:
            self.loss[None] += (self.x[p] - 0.5).norm_sqr() + 0.1 * (self.J[p] - 1) ** 2


@pytest.mark.parametrize("how", ["recorded", "checkpointed"])
def test_mpm88(how: str) -> None:
    m = Mpm88(5, 8)
    generator = np.random.default_rng(1)
    m.x.from_numpy(0.2 + 0.3 * generator.random((5, 2)))
    m.v.from_numpy(generator.standard_normal((5, 2)))
    m.C.from_numpy(0.1 * generator.standard_normal((5, 2, 2)))
    m.J.from_numpy(1 + 0.1 * generator.standard_normal(5))

    def forward() -> None:
        run_steps(lambda _: m.substep(), 8, how)
        m.compute_loss()

    check_tape(forward, [m.x, m.v, m.C, m.J], m.loss, [m.grid_v, m.grid_m])


# -- a fluid: advection, and a pressure by Jacobi iterations until the residual is small -----------


N = 6


@qd.data_oriented
class Fluid:
    def __init__(self) -> None:
        self.u = qd.Vector.field(2, float, (N, N), needs_grad=True)
        self.new_u = qd.Vector.field(2, float, (N, N), needs_grad=True)
        self.divergence = qd.field(float, (N, N), needs_grad=True)
        self.p = qd.field(float, (N, N), needs_grad=True)
        self.new_p = qd.field(float, (N, N), needs_grad=True)
        self.dye = qd.field(float, (N, N), needs_grad=True)
        self.new_dye = qd.field(float, (N, N), needs_grad=True)
        self.loss = qd.field(float, (), needs_grad=True)
        self.iterations = 0

    @qd.func
    def sample(self, field: qd.template(), at):
        cell = qd.floor(at)
        f = at - cell
        i, j = int(cell[0]) % N, int(cell[1]) % N
        a, b = field[i, j], field[(i + 1) % N, j]
        c, d = field[i, (j + 1) % N], field[(i + 1) % N, (j + 1) % N]
        return qd.math.mix(qd.math.mix(a, b, f[0]), qd.math.mix(c, d, f[0]), f[1])

    @qd.kernel
    def advect(self, field: qd.template(), new_field: qd.template()):
        for i, j in field:
            back = qd.Vector([i, j]) - 0.3 * self.u[i, j]
            new_field[i, j] = self.sample(field, back)

    @qd.kernel
    def diverge(self):
        for i, j in self.p:
            du = self.u[(i + 1) % N, j][0] - self.u[i - 1 if i > 0 else N - 1, j][0]
            dv = self.u[i, (j + 1) % N][1] - self.u[i, j - 1 if j > 0 else N - 1][1]
            self.divergence[i, j] = 0.5 * (du + dv)

    @qd.kernel
    def jacobi(self, p: qd.template(), new_p: qd.template()) -> float:
        change = 0.0
        for i, j in p:
            around = p[(i + 1) % N, j] + p[(i - 1) % N, j] + p[i, (j + 1) % N] + p[i, (j - 1) % N]
            new_p[i, j] = 0.25 * (around - self.divergence[i, j])
            qd.atomic_max(change, abs(new_p[i, j] - p[i, j]))
        return change

    @qd.kernel
    def project(self):
        for i, j in self.u:
            grad = qd.Vector(
                [
                    self.p[(i + 1) % N, j] - self.p[(i - 1) % N, j],
                    self.p[i, (j + 1) % N] - self.p[i, (j - 1) % N],
                ]
            )
            self.u[i, j] -= 0.5 * grad

    @qd.kernel
    def copy(self, source: qd.template(), target: qd.template()):
        for I in qd.grouped(source):
            target[I] = source[I]

    @qd.kernel
    def compute_loss(self):
        for i, j in self.dye:
            self.loss[None] += self.dye[i, j] * self.dye[i, j] * (i + 1) / (j + 1)

    def solve_pressure(self) -> None:
        self.p.fill(0.0)
        pressure, new_pressure = self.p, self.new_p
        residual = 1.0
        while residual > 0.02:
            residual = self.jacobi(pressure, new_pressure)
            pressure, new_pressure = new_pressure, pressure
            self.iterations += 1
        if pressure is not self.p:
            self.copy(pressure, self.p)

    def step(self, _: int) -> None:
        self.advect(self.u, self.new_u)
        self.advect(self.dye, self.new_dye)
        self.u.copy_from(self.new_u)
        self.dye.copy_from(self.new_dye)
        self.diverge()
        self.solve_pressure()
        self.project()


@pytest.mark.parametrize("how", ["recorded", "checkpointed"])
def test_fluid(how: str) -> None:
    f = Fluid()
    generator = np.random.default_rng(2)
    f.u.from_numpy(generator.standard_normal((N, N, 2)))
    f.dye.from_numpy(generator.random((N, N)))
    rest = [f.new_u, f.divergence, f.p, f.new_p, f.new_dye]

    def forward() -> None:
        run_steps(f.step, 3, how)
        f.compute_loss()

    check_tape(forward, [f.u, f.dye], f.loss, rest)
    assert f.iterations > 10


# -- a rigid body: quaternions, a step size that follows the error ---------------------------------


vec3, vec4 = qd.types.vector(3, float), qd.types.vector(4, float)


@qd.func
def multiply(a, b):
    return qd.Vector(
        [
            a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3],
            a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2],
            a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1],
            a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0],
        ]
    )


@qd.func
def angular_acceleration(w, inertia):
    return -w.cross(inertia * w) / inertia


@qd.kernel
def spin(
    orientation: qd.types.ndarray(dtype=vec4, ndim=1),
    omega: qd.types.ndarray(dtype=vec3, ndim=1),
    inertia: qd.types.ndarray(dtype=vec3, ndim=1),
    end: float,
):
    for b in orientation:
        q, w, moments = orientation[b], omega[b], inertia[b]
        t, dt = 0.0, 0.1
        while t < end:
            dt = qd.min(dt, end - t)
            k1 = angular_acceleration(w, moments)
            k2 = angular_acceleration(w + dt * k1, moments)
            error = 0.5 * dt * (k2 - k1).norm()
            if error > 0.01:
                dt *= 0.5
                continue
            middle = w + 0.25 * dt * (k1 + k2)
            w += 0.5 * dt * (k1 + k2)
            q += 0.5 * dt * multiply(q, qd.Vector([0.0, middle[0], middle[1], middle[2]]))
            q = q.normalized()
            t += dt
            if error < 0.001:
                dt *= 2.0
        orientation[b], omega[b] = q, w


@qd.kernel
def facing(orientation: qd.types.ndarray(dtype=vec4, ndim=1), loss: qd.types.ndarray()):
    for b in orientation:
        q = orientation[b]
        loss[None] += (2.0 * (q[1] * q[3] + q[0] * q[2]) - 0.3) ** 2 * (b + 1)


def test_rigid_bodies() -> None:
    orientation = qd.Vector.ndarray(4, float, 2, needs_grad=True)
    omega = qd.Vector.ndarray(3, float, 2, needs_grad=True)
    inertia = qd.Vector.ndarray(3, float, 2, needs_grad=True)
    loss = qd.ndarray(float, (), needs_grad=True)
    orientation.from_numpy(np.array([[1.0, 0.0, 0.0, 0.0], [0.6, 0.8, 0.0, 0.0]]))
    omega.from_numpy(np.array([[0.1, 2.0, 0.1], [1.0, -0.5, 2.0]]))
    inertia.from_numpy(np.array([[1.0, 2.0, 3.0], [2.0, 1.0, 2.5]]))

    def forward() -> None:
        for _ in range(3):
            spin(orientation, omega, inertia, 0.7)
        facing(orientation, loss)

    check_tape(forward, [orientation, omega, inertia], loss)
