"""Kernels find the elements of fields and ndarrays where the host does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd


@pytest.fixture(autouse=True, params=["cpu", "python"])
def arch(request: pytest.FixtureRequest) -> Iterator[None]:
    qd.init(arch=getattr(qd, request.param), offline_cache=False)
    yield
    qd.reset()


@qd.kernel
def number_all(x: qd.template()):
    for I in qd.grouped(x):
        code = 0
        for axis in qd.static(range(len(x.shape))):
            code = code * 100 + I[axis]
        x[I] = code


def numbered(x: Any) -> np.ndarray:
    """What `number_all` leaves in a field of scalars."""
    grids = np.meshgrid(*(np.arange(n) for n in x.shape), indexing="ij")
    first = x.offset or (0,) * len(x.shape)
    return sum(
        (g + f) * 100 ** (len(x.shape) - 1 - k)
        for k, (g, f) in enumerate(zip(grids, first, strict=True))
    )


def test_split_axes_between_other_fields() -> None:
    x, y, z = qd.field(qd.i32), qd.field(qd.f64), qd.field(qd.i32)
    outer = qd.root.dense(qd.i, 3).place(y)
    middle = outer.dense(qd.ij, (5, 2)).place(qd.field(qd.i8))
    middle.dense(qd.j, 7).place(x, z)
    y.fill(5)
    z.fill(6)
    number_all(x)
    assert x.shape == (15, 14)
    assert np.array_equal(x.to_numpy(), numbered(x))
    assert (y.to_numpy() == 5).all()
    assert (z.to_numpy() == 6).all()
    x.fill(0)
    number_all(z)
    assert np.array_equal(z.to_numpy(), numbered(z))
    assert not x.to_numpy().any()


@pytest.mark.parametrize("order", ["ijk", "kij", "jik"])
def test_orders(order: str) -> None:
    x = qd.field(qd.i32, (3, 4, 5), order=order)
    number_all(x)
    assert np.array_equal(x.to_numpy(), numbered(x))


def test_offset() -> None:
    x = qd.field(qd.i32, (4, 3), offset=(-2, 10))
    number_all(x)
    assert np.array_equal(x.to_numpy(), numbered(x))

    @qd.kernel
    def write(i: qd.i32):
        x[-2, 10] = 7
        x[i, 11] += 1000
        for j in range(10, 13):
            x[1, j] = j

    write(0)
    expected = x.to_numpy() * 0
    expected[:] = numbered(x)
    expected[0, 0] = 7
    expected[2, 1] += 1000
    expected[3] = [10, 11, 12]
    assert np.array_equal(x.to_numpy(), expected)


@qd.kernel
def fill_vectors(v: qd.template()):
    for i, j in v:
        v[i, j] = qd.Vector([i, j, i * j])
        v[i, j].y += 1000


@pytest.mark.parametrize("layout", [qd.Layout.AOS, qd.Layout.SOA])
def test_vectors(layout: Any) -> None:
    v = qd.Vector.field(3, qd.i32, (4, 5), layout=layout, order="ji")
    fill_vectors(v)
    expected = [[[i, j + 1000, i * j] for j in range(5)] for i in range(4)]
    assert v.to_numpy().tolist() == expected


def test_components_in_reverse() -> None:
    v = qd.Vector.field(3, qd.i32)
    block = qd.root.dense(qd.ij, (4, 5))
    for k in (2, 1, 0):
        block.place(v.get_scalar_field(k))
    fill_vectors(v)
    assert v[3, 4].to_list() == [3, 1004, 12]


def test_structs() -> None:
    kind = {
        "mass": qd.f32,
        "position": qd.types.vector(2, qd.f32),
        "inner": qd.types.struct(n=qd.i32),
    }
    s = qd.Struct.field(kind, shape=5, needs_grad=True)

    @qd.kernel
    def write():
        for i in s:
            s[i].mass = i
            s[i].position = qd.Vector([i, i * 2.0])
            s.position[i].y += 1
            s[i].inner.n = i + 7
            s.mass.grad[i] = 3
            s.grad[i].mass += 1

    write()
    values = s.to_numpy()
    assert values["mass"].tolist() == [0, 1, 2, 3, 4]
    assert values["position"].tolist() == [[i, 2 * i + 1] for i in range(5)]
    assert values["inner"]["n"].tolist() == [7, 8, 9, 10, 11]
    assert s.mass.grad.to_numpy().tolist() == [4] * 5


def test_a_gradient_under_a_name_of_its_own() -> None:
    x = qd.field(qd.f32, 3, needs_grad=True)
    gradient = x.grad

    @qd.kernel
    def write():
        for i in x:
            gradient[i] = i + 1
            x.grad[i] += 10

    write()
    number_all(x)
    assert x.grad.to_numpy().tolist() == [11, 12, 13]
    number_all(gradient)
    assert x.grad.to_numpy().tolist() == [0, 1, 2]
    lonely = qd.field(qd.f32)
    qd.root.dense(qd.i, 3).place(lonely)
    with pytest.raises(qd.OctantsCompilationError, match="no `.dual`"):
        number_all(lonely.dual)


def test_gradients_of_interleaved_fields() -> None:
    x, loss, other = qd.field(qd.f32), qd.field(qd.f32), qd.field(qd.f64)
    qd.root.dense(qd.i, 2).place(other).dense(qd.i, 3).place(x, x.grad, qd.field(qd.i8))
    qd.root.place(loss, loss.grad)

    @qd.kernel
    def square():
        for i in x:
            loss[None] += x[i] ** 2

    x.from_numpy(np.arange(6))
    with qd.ad.Tape(loss):
        square()
    assert loss[None] == 55
    assert x.grad.to_numpy().tolist() == [0, 2, 4, 6, 8, 10]
    assert x.to_numpy().tolist() == [0, 1, 2, 3, 4, 5]
    assert not other.to_numpy().any()


def test_a_host_write_ends_the_adjoint_of_what_it_overwrites() -> None:
    x, y = qd.field(qd.f32, 3, needs_grad=True), qd.Vector.field(2, qd.f32, 3, needs_grad=True)
    loss = qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def spread():
        for i in x:
            y[i] = qd.Vector([x[i], 2 * x[i]])

    @qd.kernel
    def collect():
        for i in y:
            loss[None] += y[i].x + 10 * y[i].y

    with qd.ad.Tape(loss):
        spread()
        y[1][0] = 5
        y[2] = [0, 0]
        collect()
    assert x.grad.to_numpy().tolist() == [21, 20, 0]


@pytest.mark.parametrize("backend", [qd.Backend.FIELD, qd.Backend.NDARRAY])
@pytest.mark.parametrize("layout", [None, (1, 0)])
def test_tensors(backend: Any, layout: Any) -> None:
    @qd.kernel
    def write(x: qd.Tensor):
        for i, j in qd.ndrange(3, 4):
            x[i, j] = i * 10 + j

    x = qd.tensor(qd.f32, (3, 4), backend=backend, layout=layout)
    write(x)
    assert x.to_numpy().tolist() == [[i * 10 + j for j in range(4)] for i in range(3)]


def test_ndarrays() -> None:
    v = qd.Matrix.ndarray(2, 2, qd.f32, (3, 4))

    @qd.kernel
    def write(x: qd.types.ndarray()):
        for i, j in x:
            x[i, j] = qd.Matrix([[i, j], [i + j, 1]])

    write(v)
    assert v[2, 3].to_list() == [[2, 3], [5, 1]]


def test_kernels_notice_that_arrays_are_gone() -> None:
    builder, x, y = qd.FieldsBuilder(), qd.field(qd.i32), qd.field(qd.i32, 3)
    builder.dense(qd.i, 3).place(x)
    tree = builder.finalize()
    number_all(x)
    number_all(y)
    tree.destroy()
    with pytest.raises(qd.OctantsRuntimeError, match="destroyed"):
        number_all(x)
    number_all(y)
    qd.init(arch=qd.cpu, offline_cache=False)
    with pytest.raises(qd.OctantsRuntimeError, match="was made before"):
        number_all(y)
    z = qd.field(qd.i32, 3)
    number_all(z)
    assert z.to_numpy().tolist() == [0, 1, 2]
