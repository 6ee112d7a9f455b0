"""Graphs of named arguments do what their launches do one by one."""

from __future__ import annotations

import numpy as np
import pytest

import octants as qd
from octants.graph import Arg, ArgKind, GraphBuilder


@pytest.fixture(autouse=True)
def initialised() -> None:
    qd.init(arch=qd.cpu, log_level="error")


@qd.kernel
def scale(x: qd.types.ndarray(ndim=1), factor: qd.f32):
    for i in x:
        x[i] *= factor


@qd.kernel
def add(x: qd.types.ndarray(ndim=1), y: qd.types.ndarray(ndim=1)):
    for i in x:
        y[i] += x[i]


@qd.kernel
def move(x: qd.types.ndarray(dtype=qd.math.vec2, ndim=1), m: qd.math.mat2):
    for i in x:
        x[i] = m @ x[i]


def test_launches_come_in_order_and_as_often_as_they_were_added() -> None:
    x, y = (
        Arg(ArgKind.NDARRAY, "x", qd.f32, ndim=1),
        Arg(ArgKind.NDARRAY, "y", dtype=qd.f32, ndim=1),
    )
    factor = Arg(ArgKind.SCALAR, "factor", dtype=qd.f32)
    builder = GraphBuilder()
    builder.dispatch(scale, x, 3.0)
    part = builder.create_sequential()
    part.dispatch(add, x, y)
    part.dispatch(scale, x, factor)
    for _ in range(2):
        builder.append(part)
    graph = builder.compile()
    builder.dispatch(scale, y, 0.0)  # not in the graph that was compiled before
    first, second = qd.ndarray(qd.f32, 2), qd.ndarray(qd.f32, 2)
    first.from_numpy(np.array([1.0, 2.0], np.float32))
    second.fill(1.0)
    graph.run({"x": first, "y": second, "factor": 2.0})
    assert first.to_numpy().tolist() == [12.0, 24.0]
    assert second.to_numpy().tolist() == [10.0, 19.0]
    graph.run({"x": second, "y": first, "factor": 1.0})
    assert second.to_numpy().tolist() == [30.0, 57.0]
    assert first.to_numpy().tolist() == [72.0, 138.0]


def test_vectors_and_matrices() -> None:
    x, m = Arg(ArgKind.NDARRAY, "x", qd.math.vec2, ndim=1), Arg(ArgKind.MATRIX, "m", qd.math.mat2)
    builder = GraphBuilder()
    builder.dispatch(move, x, m)
    points = qd.Vector.ndarray(2, qd.f32, 1)
    points[0] = [1.0, 2.0]
    builder.compile().run({"x": points, "m": qd.Matrix([[0.0, 1.0], [3.0, 0.0]])})
    assert points.to_numpy().tolist() == [[2.0, 3.0]]


def test_arguments_that_do_not_fit() -> None:
    builder = GraphBuilder()
    builder.dispatch(scale, Arg(ArgKind.NDARRAY, "x", qd.f32, ndim=1), 1.0)
    with pytest.raises(qd.OctantsArgumentError, match="`x` of the graph: it has 2 indices"):
        builder.compile().run({"x": qd.ndarray(qd.f32, (2, 2))})
    with pytest.raises(qd.OctantsArgumentError, match="no textures"):
        Arg(ArgKind.RWTEXTURE, "image", fmt=0, ndim=2)
