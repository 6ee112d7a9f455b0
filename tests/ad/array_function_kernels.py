"""Kernels that the tests of functions of arrays share."""

from __future__ import annotations

import numpy as np

import octants as qd


@qd.kernel
def scaled_squares(
    x: qd.types.ndarray(ndim=1), y: qd.types.ndarray(ndim=1), factor: qd.f64, count: qd.i32
):
    for i in range(count):
        y[i] = factor * x[i] ** 2


@qd.kernel
def well(x: qd.types.ndarray(ndim=1), depth: qd.f64, loss: qd.types.ndarray(qd.f64, 0)):
    for i in x:
        loss[None] += depth * (x[i] ** 2 - 1.0) ** 2


@qd.kernel
def returned_well(x: qd.types.ndarray(ndim=1), depth: qd.f64) -> qd.f64:
    found = 0.0
    for i in range(x.shape[0]):
        found += depth * (x[i] ** 2 - 1.0) ** 2
    return found


@qd.kernel
def square_in_place(x: qd.types.ndarray()):
    for i in x:
        x[i] = x[i] * x[i]


@qd.kernel
def dense(x: qd.types.ndarray(ndim=2), w: qd.types.ndarray(ndim=2), y: qd.types.ndarray(ndim=2)):
    for i, j in y:
        for k in range(w.shape[0]):
            y[i, j] += x[i, k] * w[k, j]


@qd.kernel
def lengths(
    v: qd.types.ndarray(qd.types.vector(3, qd.f64), 1),
    n: qd.types.ndarray(qd.f64, 1),
    far: qd.types.ndarray(qd.i32, 1),
):
    for i in v:
        n[i] = v[i].norm()
        far[i] = qd.cast(n[i] > 2.0, qd.i32)


@qd.kernel
def turned(
    x: qd.types.ndarray(ndim=1),
    matrix: qd.types.matrix(2, 2, qd.f64),
    vector: qd.types.vector(2, qd.f64),
    scale: qd.f64,
    y: qd.types.ndarray(ndim=1),
):
    for i in x:
        w = matrix @ vector * x[i]
        y[i] = qd.sin(w[0]) * w[1] * scale + matrix.determinant()


def powers(x, times):
    """x ** (2 ** times), in place."""
    for _ in range(times):
        square_in_place(x)


X = np.array([0.5, 2.0, -1.5])
WELL_GRADIENT = 4 * X * (X**2 - 1)
