"""``types.ndarray(boundary="clamp")``: an index beyond an end is that of the element there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.golden_files import check_golden


@pytest.fixture(autouse=True, params=[{}, {"debug": True}, {"simd": "always"}], ids=str)
def runtime(request: Any) -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level="error", **request.param)
    yield
    qd.reset()


Clamped = qd.types.ndarray(dtype=qd.f32, boundary="clamp")


@qd.func
def element(x: qd.template(), i, j):
    return x[i, j]


@qd.kernel
def read(x: Clamped, i: qd.i32, j: qd.i64) -> qd.f32:
    return element(x, i, j)


@qd.kernel
def read_literally(x: Clamped) -> qd.f32:
    return x[-1, 99] + 100.0 * x[qd.Vector([5, -7])]


@qd.kernel
def read_unsigned(x: qd.types.ndarray(boundary="clamp"), i: qd.u32) -> qd.f32:
    return x[i]


@qd.kernel
def component(x: qd.types.ndarray(dtype=qd.math.vec3, boundary="clamp"), i: qd.i32) -> qd.f32:
    return x[i][i]


@qd.kernel
def shift(x: Clamped, y: qd.types.ndarray(), by: qd.i32):
    for i in y:
        y[i] = x[i + by] * x[i + by] * (i + 1)


@qd.kernel
def write(x: Clamped):
    for i in range(8):
        x[i - 2] += 1.0
    x[100] = 7.0


def test_reads() -> None:
    x = qd.ndarray(qd.f32, (2, 3))
    x.from_numpy(np.array([[0, 1, 2], [10, 11, 12]], np.float32))
    places = [(-1, -1), (0, 5), (9, 1), (9, 2**40), (-(2**31), 2)]
    assert [read(x, *place) for place in places] == [0, 2, 11, 12, 2]
    assert read_literally(x) == 1002
    assert read_unsigned(np.array([1, 2, 3], np.float32), 2**32 - 1) == 3


def test_strided_memory_of_the_host() -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)[::2, ::3]
    assert [read(x, 9, 9), read(x, -9, 9), read(x, 9, -9)] == [x[1, 1], x[0, 1], x[1, 0]]


def test_components() -> None:
    x = qd.ndarray(qd.math.vec3, 2)
    x.from_numpy(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert [component(x, i) for i in (-5, 1, 2, 9)] == [0, 4, 5, 5]


def test_writes() -> None:
    x = qd.ndarray(qd.f32, 4)
    write(x)
    assert x.to_numpy().tolist() == [3, 1, 1, 7]


@pytest.mark.parametrize("n", [1, 4, 33])
def test_gradients(n: int) -> None:
    """The adjoint of what is read beyond an end goes to the element there."""
    count, by = 40, -2
    x = qd.ndarray(qd.f32, n, needs_grad=True)
    y = qd.ndarray(qd.f32, count, needs_grad=True)
    values = np.linspace(0.5, 1.5, n).astype(np.float32)
    x.from_numpy(values)
    shift(x, y, by)
    places = np.clip(np.arange(count) + by, 0, n - 1)
    weights = np.arange(count) + 1
    np.testing.assert_allclose(y.to_numpy(), values[places] ** 2 * weights, rtol=1e-6)
    y.grad.fill(1.0)
    shift.grad(x, y, by)
    wanted = np.zeros(n)
    np.add.at(wanted, places, 2.0 * values[places] * weights)
    np.testing.assert_allclose(x.grad.to_numpy(), wanted, rtol=1e-5)


def test_other_boundaries_are_errors() -> None:
    with pytest.raises(qd.QuadrantsSyntaxError) as caught:
        qd.types.ndarray(boundary="wrap")
    lines = str(caught.value).splitlines()
    check_golden("errors/OCT426_boundary", "\n".join([lines[0], *lines[4:]]))
    assert lines[2].endswith('qd.types.ndarray(boundary="wrap")')
    assert lines[3].strip().strip("| ^") == ""
    assert qd.types.ndarray(boundary="unsafe").boundary == "unsafe"


def test_the_number_of_axes_of_an_annotation_is_a_number() -> None:
    for ndim in (-1, "2", 1.0):
        with pytest.raises(qd.OctantsSyntaxError, match="OCT426"):
            qd.types.ndarray(qd.f32, ndim)
    assert qd.types.ndarray(qd.f32, np.int64(2)).ndim == 2
