"""The workloads: one source, compiled by Octants or by Quadrants.

The environment variable BENCH_SYSTEM names the module to import as ``qd``. All loop bounds that are
not constants are read from fields, which both systems can differentiate.
"""
# mypy: ignore-errors

from __future__ import annotations

import importlib
import os

import numpy as np

qd = importlib.import_module(os.environ["BENCH_SYSTEM"])


class Workload:
    """Fields, a forward call, and its reverse; `inputs` and `outputs` have gradients."""

    def __init__(self, items, steps) -> None:
        self.full = (items, steps)
        self.size = integers(2)  # how many items, and the trip count of their loops
        self.set_size(*self.full)
        self.inputs = []
        self.outputs = []
        self.kernel = None

    def set_size(self, items, steps) -> None:
        """Let the kernel handle so many items; its loops make so many steps."""
        self.size.from_numpy(np.array([items, steps], np.int32))

    def forward(self) -> None:
        """Run the kernel."""
        self.kernel()

    def backward(self) -> None:
        """Run its reverse."""
        self.kernel.grad()

    def seed(self) -> None:
        """Set the gradients to those of the sum of all outputs."""
        for array in self.inputs:
            array.grad.fill(0)
        for array in self.outputs:
            array.grad.fill(1)

    def gradient(self):
        """The gradients of the inputs, one after the other, as one numpy array."""
        return np.concatenate([array.grad.to_numpy().ravel() for array in self.inputs])

    def difference_quotient(self, direction, step):
        """The derivative of the sum of all outputs along a direction, by two forward runs."""
        start = [array.to_numpy() for array in self.inputs]
        sums = []
        for sign in (1, -1):
            rest = sign * step * direction
            for array, values in zip(self.inputs, start, strict=True):
                here, rest = rest[: values.size], rest[values.size :]
                array.from_numpy((values + here.reshape(values.shape)).astype(np.float32))
            self.forward()
            sums.append(sum(array.to_numpy().astype(np.float64).sum() for array in self.outputs))
        for array, values in zip(self.inputs, start, strict=True):
            array.from_numpy(values)
        return (sums[0] - sums[1]) / (2 * step)


def scalars(*shape):
    return qd.field(qd.f32, shape=shape, needs_grad=True)


def integers(*shape):
    return qd.field(qd.i32, shape=shape)


def uniform(shape, low, high):
    return np.random.default_rng(0).uniform(low, high, shape).astype(np.float32)


class Recurrence(Workload):
    """v = sin(v) * 0.95 + 0.01"""

    def __init__(self, items, steps) -> None:
        super().__init__(items, steps)
        x, y, size = scalars(items), scalars(items), self.size
        x.from_numpy(uniform(items, 0, 1))

        @qd.kernel
        def recurrence():
            for i in range(size[0]):
                v = x[i]
                for _ in range(size[1]):
                    v = qd.sin(v) * 0.95 + 0.01
                y[i] = v

        self.inputs, self.outputs, self.kernel = [x], [y], recurrence


class Affine(Workload):
    """v = v * a + b, with the gradients of v and a"""

    def __init__(self, items, steps) -> None:
        super().__init__(items, steps)
        x, a, y, size = scalars(items), scalars(items), scalars(items), self.size
        x.from_numpy(uniform(items, 0, 1))
        a.from_numpy(uniform(items, 0.98, 0.99))

        @qd.kernel
        def affine():
            for i in range(size[0]):
                v = x[i]
                for _ in range(size[1]):
                    v = v * a[i] + 0.01
                y[i] = v

        self.inputs, self.outputs, self.kernel = [x, a], [y], affine


class Ode(Workload):
    """Lorenz 96 with six variables, by the classical Runge-Kutta method"""

    def __init__(self, items, steps) -> None:
        super().__init__(items, steps)
        x, y, size = scalars(items, 6), scalars(items, 6), self.size
        x.from_numpy(uniform((items, 6), 0, 1))

        @qd.func
        def slope(v):
            rates = qd.Vector([0.0] * 6, dt=qd.f32)
            for k in qd.static(range(6)):
                neighbours = v[(k + 1) % 6] - v[(k + 4) % 6]
                rates[k] = neighbours * v[(k + 5) % 6] - v[k] + 2.0
            return rates

        @qd.kernel
        def ode():
            for i in range(size[0]):
                v = qd.Vector([x[i, 0], x[i, 1], x[i, 2], x[i, 3], x[i, 4], x[i, 5]])
                for _ in range(size[1]):
                    k1 = slope(v)
                    k2 = slope(v + 0.005 * k1)
                    k3 = slope(v + 0.005 * k2)
                    k4 = slope(v + 0.01 * k3)
                    v = v + (0.01 / 6.0) * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
                for k in qd.static(range(6)):
                    y[i, k] = v[k]

        self.inputs, self.outputs, self.kernel = [x], [y], ode


class Rotation(Workload):
    """A 3x3 rotation, turned by a body rate: R = R + R U, with U skew-symmetric"""

    def __init__(self, items, steps) -> None:
        super().__init__(items, steps)
        w, y, size = scalars(items, 3), scalars(items, 3), self.size
        w.from_numpy(uniform((items, 3), -1, 1))

        @qd.kernel
        def rotation():
            for i in range(size[0]):
                a, b, c = 0.001 * w[i, 0], 0.001 * w[i, 1], 0.001 * w[i, 2]
                r = qd.Matrix([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
                for _ in range(size[1]):
                    r = r + r @ qd.Matrix([[0.0, -c, b], [c, 0.0, -a], [-b, a, 0.0]])
                for k in qd.static(range(3)):
                    y[i, k] = r[k, 0] + r[k, 2]

        self.inputs, self.outputs, self.kernel = [w], [y], rotation


class Ragged(Workload):
    """A nest with bounds that depend on the item and on the outer loop"""

    def __init__(self, items, steps) -> None:
        self.count = integers(items)
        super().__init__(items, steps)
        x, y, size, count = scalars(items), scalars(items), self.size, self.count
        x.from_numpy(uniform(items, 0, 1))

        @qd.kernel
        def ragged():
            for i in range(size[0]):
                v = x[i]
                for j in range(count[i]):
                    for _ in range(j):
                        v = qd.sin(v) * 0.95 + 0.01
                y[i] = v

        self.inputs, self.outputs, self.kernel = [x], [y], ragged

    def set_size(self, items, steps) -> None:
        """The outer loops make between ``steps - 8`` and ``steps`` steps."""
        super().set_size(items, steps)
        self.count.from_numpy((steps - np.arange(self.full[0]) % 9).astype(np.int32))


class Pairwise(Workload):
    """Softened gravity between all pairs of bodies"""

    def __init__(self, items, _steps) -> None:
        super().__init__(items, items)
        x, y, size = scalars(items, 3), scalars(items, 3), self.size
        x.from_numpy(uniform((items, 3), -1, 1))

        @qd.kernel
        def pairwise():
            for i in range(size[0]):
                here = qd.Vector([x[i, 0], x[i, 1], x[i, 2]])
                force = qd.Vector([0.0, 0.0, 0.0])
                for j in range(size[1]):
                    d = qd.Vector([x[j, 0], x[j, 1], x[j, 2]]) - here
                    r2 = d.dot(d) + 0.01
                    force += d / (r2 * qd.sqrt(r2))
                for k in qd.static(range(3)):
                    y[i, k] = force[k] * force[k]

        self.inputs, self.outputs, self.kernel = [x], [y], pairwise


WORKLOADS = {
    "recurrence": Recurrence,
    "affine": Affine,
    "ode": Ode,
    "rotation": Rotation,
    "ragged": Ragged,
    "pairwise": Pairwise,
}


class Launches:
    """Calls of kernels that do next to nothing."""

    def __init__(self) -> None:
        x, loss = scalars(8), scalars()
        arrays = [qd.ndarray(qd.f32, shape=(8,)) for _ in range(4)]

        @qd.kernel
        def of_a_field():
            for i in x:
                loss[None] += x[i] * x[i]

        @qd.kernel
        def of_arrays(
            a: qd.types.ndarray(qd.f32, ndim=1),
            b: qd.types.ndarray(qd.f32, ndim=1),
            c: qd.types.ndarray(qd.f32, ndim=1),
            d: qd.types.ndarray(qd.f32, ndim=1),
            s: qd.f32,
        ):
            for i in range(8):
                a[i] = b[i] + s * c[i] * d[i]

        def tape():
            loss[None] = 0
            with qd.ad.Tape(loss=loss):
                of_a_field()

        self.calls = {
            "kernel of a field": of_a_field,
            "kernel of 4 ndarrays and a scalar": lambda: of_arrays(*arrays, 0.5),
            "Tape step: clear, forward, backward": tape,
        }
