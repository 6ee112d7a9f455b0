"""Views of ndarrays: on the host, as arguments of kernels and funcs, with gradients and checks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level="error")
    yield
    qd.reset()


def counted(dtype: Any = None, **options: Any) -> qd.Ndarray:
    """The numbers 0 to 9."""
    x = qd.ndarray(qd.f32 if dtype is None else dtype, shape=10, **options)
    x.from_numpy(np.arange(10))
    return x


# -- on the host -----------------------------------------------------------------------------------


def test_slices_of_ndarrays_are_views() -> None:
    x = counted()
    view = x[2:8]
    assert isinstance(view, qd.BufferView)
    assert (view.shape, view.size, view.offset, len(view)) == ((6,), 6, 2, 6)
    assert view.get_ndarray() is x
    assert view.dtype is qd.f32
    assert view.to_numpy().tolist() == [2, 3, 4, 5, 6, 7]
    for part in (view[1:3], view.subview(1, 2), qd.BufferView(view, 1, 2), qd.BufferView(x, 3, 2)):
        assert list(part) == part.to_numpy().tolist() == [3, 4]
    assert (x[:4].size, x[4:].size, x[-3:].offset, x[5:2].size, x[:20].size) == (4, 6, 7, 0, 10)
    view[1] = 30.0
    assert x[3] == view[1] == 30.0


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda x: x[::2], "a slice with a step of 2"),
        (lambda x: qd.BufferView(x, 8, 5), "5 elements from 8 of an array of 10"),
        (lambda x: qd.BufferView(x, -1, 5), "5 elements from -1"),
        (lambda x: x[2:4].subview(1, 2), "2 elements from 1 of an array of 2"),
    ],
)
def test_views_of_what_is_not_there(make: Any, text: str) -> None:
    with pytest.raises(qd.OctantsValueError, match=text):
        make(counted())


def test_indices_beyond_a_view_and_views_of_others() -> None:
    with pytest.raises(qd.OctantsHostIndexError, match="index 3 is out of range"):
        counted()[2:5][3]
    for other in (np.zeros(3), qd.field(qd.f32, 10), qd.ndarray(qd.f32, (2, 3))):
        with pytest.raises(qd.OctantsRuntimeTypeError, match="takes an ndarray with one axis"):
            qd.BufferView(other, 0, 1)


# -- in kernels ------------------------------------------------------------------------------------


@qd.func
def _add(part: qd.BufferView[qd.f32], value: qd.f32):
    for i in range(part.shape[0]):
        part[i] += value


def test_kernels_write_through_views() -> None:
    x = counted()

    @qd.kernel
    def change(v: qd.BufferView[qd.f32], w: qd.BufferView, at: qd.i32):
        for i in v:
            v[i] *= 10.0
        for i in range(w.size):
            w[i] += v[0]
        _add(v.subview(at, 2), 0.5)
        v[-1] = 77.0

    change(x[2:6], x[8:], 1)
    assert x.to_numpy().tolist() == [0, 1, 20, 30.5, 40.5, 77, 6, 7, 28, 29]
    change(x[4:8], x[:2], 0)
    assert x.to_numpy().tolist() == [405, 406, 20, 30.5, 405.5, 770.5, 60, 77, 28, 29]


def test_the_length_of_a_view_in_a_kernel_is_that_on_the_host() -> None:
    x = counted()

    @qd.kernel
    def lengths(v: qd.BufferView, found: qd.types.ndarray()):
        found[0] = len(v)
        found[1] = len(v.subview(1, 2))

    found = qd.ndarray(qd.i32, 2)
    lengths(x[2:6], found)
    assert found.to_numpy().tolist() == [len(x[2:6]), 2]


@dataclasses.dataclass
class Parts:
    places: qd.BufferView[qd.types.vector(2, qd.f32)]
    numbers: qd.BufferView[qd.i32]


def test_a_view_of_vectors_and_one_in_a_dataclass() -> None:
    x = qd.Vector.ndarray(2, qd.f32, shape=6)
    n = counted(qd.i32)

    @qd.kernel
    def fill(parts: Parts):
        for i in parts.places:
            parts.places[i] = [1.0, 2.0]
            parts.places[i].y += parts.numbers[i]

    fill(Parts(places=x[1:3], numbers=n[5:7]))
    assert x.to_numpy().tolist() == [[0, 0], [1, 7], [1, 8], [0, 0], [0, 0], [0, 0]]


def test_gradients_go_to_the_ndarray() -> None:
    x = counted(qd.f64, needs_grad=True)
    loss = qd.ndarray(qd.f64, shape=(), needs_grad=True)

    @qd.kernel
    def square(v: qd.BufferView):
        for i in v:
            v[i] = v[i] * v[i]

    @qd.kernel
    def measure(v: qd.BufferView, total: qd.types.ndarray()):
        for i in v:
            total[None] += 3.0 * v[i] * v[i]

    with qd.ad.Tape(loss):
        square(x[1:5])  # overwritten, and read through another view
        measure(x[3:7], loss)
    inner = np.where(
        (np.arange(10) >= 1) & (np.arange(10) < 5), np.arange(10.0) ** 2, np.arange(10)
    )
    slope = np.where((np.arange(10) >= 1) & (np.arange(10) < 5), 2.0 * np.arange(10), 1.0)
    read = (np.arange(10) >= 3) & (np.arange(10) < 7)
    np.testing.assert_allclose(x.grad.to_numpy(), np.where(read, 6.0 * inner * slope, 0.0))


def test_a_loop_over_a_view_is_parallel() -> None:
    x = qd.ndarray(qd.i32, shape=100)
    qd.init(arch=qd.cpu, log_level="error", debug=True)
    x = qd.ndarray(qd.i32, shape=100)

    @qd.kernel
    def beyond(v: qd.BufferView[qd.i32], n: qd.i32):
        for i in range(n):
            v[i] = i

    beyond(x[10:20], 10)
    with pytest.raises(qd.OctantsAssertionError) as caught:
        beyond(x[10:20], 12)
        qd.sync()
    assert "index 10 is out of bounds for the view `v`, whose size is 10" in str(caught.value)
    assert "in work item 10" in str(caught.value)
    assert x.to_numpy()[:30].tolist() == [0] * 10 + [*range(10)] + [0] * 10


def test_wrong_arguments_of_views() -> None:
    @qd.kernel
    def clear(v: qd.BufferView[qd.f32]):
        for i in v:
            v[i] = 0.0

    with pytest.raises(qd.OctantsArgumentError, match=r"`v\[:\]`"):
        clear(counted())
    with pytest.raises(qd.OctantsArgumentError, match="required dtype=f32"):
        clear(counted(qd.i32)[:3])


@pytest.mark.parametrize("bounds", [(1, 4), (-3, None), (None, -2), (4, 2), (-99, 99), (6, 8)])
def test_slices_in_kernels_are_those_of_lists(bounds: tuple[int | None, int | None]) -> None:
    low, high = bounds
    x = counted()

    @qd.kernel
    def known(v: qd.BufferView[qd.f32]) -> qd.types.vector(2, qd.f32):
        part = v[low:high]
        total = 0.0
        for i in range(part.size):
            total += part[i]
        return qd.Vector([total, part.size])

    @qd.kernel
    def run_time(v: qd.BufferView[qd.f32], low: qd.i32, high: qd.i32) -> qd.types.vector(2, qd.f32):
        part = v[low:high]
        total = 0.0
        for i in part:
            total += part[i]
        return qd.Vector([total, part.size])

    expected = [*range(2, 9)][low:high]
    assert known(x[2:9]).to_list() == [sum(expected), len(expected)]
    if low is not None and high is not None:
        assert run_time(x[2:9], low, high).to_list() == [sum(expected), len(expected)]


def test_the_host_writes_views() -> None:
    x = counted(needs_grad=True)
    x[2:4].fill(1.5)
    x[4:7].from_numpy(np.array([7, 8, 9]))
    assert x.to_numpy().tolist() == [0, 1, 1.5, 1.5, 7, 8, 9, 7, 8, 9]
    with pytest.raises(qd.OctantsValueError, match="shape"):
        x[4:7].from_numpy(np.zeros(2))
    loss = qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def square(x: qd.types.ndarray()):
        for i in x:
            x[i] = x[i] * x[i]

    @qd.kernel
    def total(x: qd.types.ndarray()):
        for i in x:
            loss[None] += x[i]

    with qd.ad.Tape(loss):
        square(x)
        x[3:5].fill(0.0)  # adjoints of these elements end here, and of no others
        total(x)
    assert x.grad.to_numpy().tolist() == [0, 2, 3, 0, 0, 16, 18, 14, 16, 18]


# -- tensors ---------------------------------------------------------------------------------------


def test_tensor_and_wrap_give_the_array_itself() -> None:
    scalars, vectors = qd.field(qd.f32, 3), qd.Vector.ndarray(2, qd.f32, 3)
    assert qd.Tensor(scalars) is qd.wrap(scalars) is scalars  # type: ignore[call-arg]
    assert qd.VectorTensor(vectors) is qd.wrap(vectors) is vectors  # type: ignore[call-arg]
    for wrong in (np.zeros(3), None):
        with pytest.raises(qd.OctantsRuntimeTypeError, match="takes a field or an ndarray"):
            qd.wrap(wrong)
    with pytest.raises(qd.OctantsRuntimeTypeError, match="MatrixTensor takes a field"):
        qd.MatrixTensor(vectors)


def test_lists_and_members() -> None:
    pair = qd.types.struct(a=qd.f32, b=qd.i32).field(shape=2)
    x = counted(qd.i32)
    assert x.tolist() == list(range(10))
    assert qd.field(qd.f32, ()).tolist() == 0.0
    assert list(pair.field_dict) == ["a", "b"]
    assert pair.field_dict["b"] is pair.b
