"""Arrays of numpy in every form: any strides, swapped bytes, odd addresses, shared memory."""

from __future__ import annotations

import dataclasses
import re
from array import array as PythonArray
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.devices import shares_memory

Array = Any


@pytest.fixture(autouse=True, params=["cpu", "python"])
def runtime(request: Any) -> Iterator[None]:
    qd.init(arch=request.param, debug=True, log_level="error")
    yield
    qd.reset()


def rows(dtype: Any = np.float32) -> Array:
    return np.arange(24).reshape(4, 6).astype(dtype)


def off_by_one(dtype: Any = np.float32) -> Array:
    """At an odd address."""
    values = rows(dtype)
    memory = np.zeros(values.nbytes + 1, np.uint8)
    array = memory[1:].view(dtype).reshape(values.shape)
    array[...] = values
    assert not array.flags.aligned
    return array


def member(*others: str) -> Array:
    """A member of an array of structs."""
    names = [(f"other{k}", kind) for k, kind in enumerate(others)]
    array = np.zeros((4, 6), np.dtype([*names, ("x", "f4")]))["x"]
    array[...] = rows()
    return array


FORMS: dict[str, Callable[[], Array]] = {
    "row-major": rows,
    "column-major": lambda: np.asfortranarray(rows()),
    "transposed": lambda: rows().T,
    "every other": lambda: rows()[::2, 1::3],
    "part": lambda: rows()[1:3, 2:5],
    "backwards": lambda: rows()[::-1, ::-2],
    "axes moved": lambda: np.moveaxis(np.zeros((2, 3, 4), np.float32), 1, 0)[:, 1],
    "empty": lambda: rows()[:0, ::2],
    "one column": lambda: rows()[:, :1],
    "member of structs": lambda: member("i4"),
    "swapped bytes": lambda: rows(">f4"),
    "swapped and transposed": lambda: rows(">f4").T,
    "odd address": off_by_one,
    "odd address, transposed": lambda: off_by_one().T,
    "member at odd addresses": lambda: member("i1"),
}


@qd.kernel
def change(a: qd.types.ndarray(qd.f32, ndim=2)):
    for i, j in qd.ndrange(a.shape[0], a.shape[1]):
        a[i, j] = 2 * a[i, j] + 10 * i + j


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_written_in_place(form: str) -> None:
    array = FORMS[form]()
    base = array.base if array.base is not None and array.base.dtype == array.dtype else None
    untouched = None if base is None else base.copy()
    i, j = np.indices(array.shape)
    expected = 2 * array + 10 * i + j
    for _ in range(2):
        before = array.copy()
        change(array)
    assert np.array_equal(before, expected)
    assert np.array_equal(array, 2 * expected + 10 * i + j)
    if base is not None:  # nothing outside the view has changed
        array[...] = 0
        seen = untouched != base
        assert seen.sum() <= array.size


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_read_beside_others(form: str) -> None:
    @qd.kernel
    def sums(a: qd.types.ndarray(), b: qd.types.ndarray(), out: qd.types.ndarray()):
        for place in qd.grouped(a):
            out[place] = a[place] + 0.5 * b[place]

    array = FORMS[form]()
    array.flags.writeable = False
    for other in (np.ones(array.shape), np.asfortranarray(np.ones(array.shape))):
        out = np.zeros(array.shape[::-1], np.float32).T
        sums(array, other, out)
        assert np.array_equal(out, array + 0.5)


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "u8", "f2", "f8", ">i2", ">f2", ">u8"])
def test_every_dtype(dtype: str) -> None:
    @qd.kernel
    def flip(a: qd.types.ndarray()):
        for i, j in a:
            a[i, j] = 1 - a[i, j]

    array = (np.arange(24).reshape(4, 6) % 2).astype(dtype)[::3, ::-2]
    expected = 1 - array.astype(int)
    flip(array)
    assert np.array_equal(array.astype(int), expected)


def test_elements_of_vectors_and_matrices() -> None:
    @qd.kernel
    def turn(a: qd.types.ndarray(qd.types.vector(3, qd.f32), ndim=1), k: qd.i32):
        for i in a:
            v = a[i]
            a[i] = qd.Vector([v[2], v[0], v[1]])
            a[i][k] += 0.5

    array = np.zeros((3, 8), np.float32).T[::2]
    array[...] = np.arange(12).reshape(4, 3)
    turn(array, 1)
    expected = np.roll(np.arange(12).reshape(4, 3), 1, axis=1) + [0, 0.5, 0]
    assert np.array_equal(array, expected)

    @qd.kernel
    def transpose(a: qd.types.ndarray(qd.types.matrix(2, 2, qd.f32), ndim=1)):
        for i in a:
            a[i] = a[i].transpose()

    array = np.moveaxis(np.arange(12.0, dtype=np.float32).reshape(2, 2, 3), 2, 0)
    expected = np.swapaxes(array, 1, 2).copy()
    transpose(array)
    assert np.array_equal(array, expected)


def test_members_of_struct_arguments() -> None:
    @dataclasses.dataclass
    class Pair:
        a: qd.types.ndarray(qd.f32, ndim=2)
        b: qd.types.ndarray(qd.f32, ndim=2)
        factor: qd.f32

    @qd.kernel
    def scale(pair: Pair, times: qd.i32):
        for i, j in pair.a:
            pair.b[i, j] = pair.a[i, j] * pair.factor * times

    pair = Pair(rows().T, rows(">f4").T, 2.0)
    scale(pair, 3)
    assert np.array_equal(pair.b, 6 * pair.a)


def test_atomics_and_bounds() -> None:
    @qd.kernel
    def count(a: qd.types.ndarray(qd.i32, ndim=1), n: qd.i32):
        for i in range(n):
            a[i % 5] += 1

    array = np.zeros((6, 2), np.int32)[:, 1]
    count(array, 5000)
    assert array.tolist() == [1000] * 5 + [0]
    if qd.cfg.arch != qd.cpu:
        return
    with pytest.raises(qd.OctantsAssertionError, match="out of bounds"):
        count(array[:3], 5)


@pytest.mark.parametrize("form", ["transposed", "swapped bytes", "odd address"])
def test_a_kernel_that_fails_leaves_what_it_wrote(form: str) -> None:
    @qd.kernel
    def fails(a: qd.types.ndarray(qd.f32, ndim=2)):
        a[0, 1] = 77.0
        assert a[0, 1] < 0, "fails"

    array = FORMS[form]()
    with pytest.raises(qd.OctantsAssertionError):
        fails(array)
    assert array[0, 1] == 77


def test_one_array_twice() -> None:
    @qd.kernel
    def shift(a: qd.types.ndarray(qd.f32, ndim=2), b: qd.types.ndarray(qd.f32, ndim=2)):
        for i in range(a.shape[0]):
            a[i, 0] = 5.0
            b[i, 1] = a[i, 0] + b[i, 0]

    for array in (rows().T, rows(">f4"), off_by_one()):
        shift(array, array)
        assert (array[:, 0] == 5).all()
        assert (array[:, 1] == 10).all()


def test_overlapping_arrays_where_one_is_copied() -> None:
    @qd.kernel
    def copy(a: qd.types.ndarray(qd.f32, ndim=1), b: qd.types.ndarray(qd.f32, ndim=1)):
        for i in range(a.shape[0]):
            b[i] = a[i]

    array = np.arange(8).astype(">f4")
    copy(array[:4], array[4:])
    assert array.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    copy(array[::2], array[1::2])
    assert array.tolist() == [0, 0, 2, 2, 0, 0, 2, 2]
    with pytest.raises(qd.OctantsArgumentError, match="`a`: it shares memory with `b`"):
        copy(array[:6], array[2:])
    with pytest.raises(qd.OctantsArgumentError, match="shares memory"):
        copy(array, array.view("<f4"))
    assert array.tolist() == [0, 0, 2, 2, 0, 0, 2, 2]

    @qd.kernel
    def total(a: qd.types.ndarray(qd.f32, ndim=1), b: qd.types.ndarray(qd.f32, ndim=1)) -> qd.f32:
        return a[0] + b[0]

    assert total(array[2:], array[1:]) == 2  # nothing is written


def test_elements_that_share_memory_cannot_be_written() -> None:
    window = np.lib.stride_tricks.as_strided(np.zeros(10, np.float32), (3, 4), (4, 4))
    for _ in range(2):  # the second time the kernel is there already
        with pytest.raises(qd.OctantsArgumentError, match="share memory with each other"):
            change(window)
    change(np.lib.stride_tricks.as_strided(np.zeros(12, np.float32), (3, 4), (16, 4)))
    total = np.zeros(3, np.float32)

    @qd.kernel
    def sums(a: qd.types.ndarray(qd.f32, ndim=2), out: qd.types.ndarray(qd.f32, ndim=1)):
        for i, j in a:
            out[i] += a[i, j]

    sums(np.broadcast_to(np.arange(4, dtype=np.float32), (3, 4)), total)
    assert total.tolist() == [6, 6, 6]


def test_views_of_an_array_share_its_specialisation() -> None:
    array = rows()
    change(array)
    known = len(change._specialisations)
    change(array[1:3])
    assert len(change._specialisations) == known


@shares_memory
@pytest.mark.parametrize("other", ["i4", "u4", "f4", "i2"])
def test_one_memory_seen_as_two_types(other: str) -> None:
    """A load is not taken from before a store through the other view."""

    @qd.kernel
    def through(
        a: qd.types.ndarray(qd.f32, ndim=1),
        b: qd.types.ndarray(),
        seen: qd.types.ndarray(qd.i64, ndim=1),
    ):
        first = b[0]
        a[0] = 1.5
        second = b[0]
        b[1] = 3
        seen[0], seen[1] = first, second
        a[1] += 0.0
        seen[2] = b[0] + b[1]

    a, seen = np.array([0.25, 0, 0, 0], np.float32), np.zeros(3, np.int64)
    b = a.view(other)
    first = int(b[0])
    through(a, b, seen)
    assert seen.tolist() == [first, int(b[0]), int(b[0]) + int(b[1])]


@pytest.mark.parametrize("form", ["transposed", "backwards", "swapped bytes", "odd address"])
def test_under_a_tape(form: str) -> None:
    """The reverse run sees what the array held, though it has been overwritten since."""
    p = qd.ndarray(qd.f32, (), needs_grad=True)
    loss = qd.ndarray(qd.f32, (), needs_grad=True)

    @qd.kernel
    def add(a: qd.types.ndarray(qd.f32, ndim=2), p: qd.types.ndarray(), loss: qd.types.ndarray()):
        for i, j in a:
            loss[None] += a[i, j] * p[None] * p[None]

    @qd.kernel
    def increment(a: qd.types.ndarray(qd.f32, ndim=2)):
        for i, j in a:
            a[i, j] += 1.0

    array = FORMS[form]()
    first = array.sum()
    p[None] = 3.0
    with qd.ad.Tape(loss=loss):
        add(array, p, loss)
        increment(array)
        add(array, p, loss)
    total = 2 * first + array.size
    assert loss[None] == pytest.approx(9 * total)
    assert p.grad[None] == pytest.approx(6 * total)
    assert array.sum() == first + array.size


class _Converted:
    def __array__(self, *_: Any, **__: Any) -> Array:
        return rows()


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        (PythonArray("f", [1, 2]), "numpy.asarray(x)"),
        (memoryview(PythonArray("f", [1, 2])), "numpy.asarray(x)"),
        ([1.0, 2.0], "numpy.asarray(x)"),
        (b"12345678", "numpy.frombuffer(x, dtype)"),
        (_Converted(), "numpy.asarray(x)"),
        (np.zeros(3, [("mass", "f4"), ("charge", "f4")]), "x['mass']"),
    ],
    ids=["array", "memoryview", "list", "bytes", "converted", "structs"],
)
def test_the_remedy_for_other_containers(value: Any, remedy: str) -> None:
    @qd.kernel
    def first(x: qd.types.ndarray()) -> qd.f32:
        return x[0]

    with pytest.raises(qd.OctantsArgumentError, match=re.escape(remedy)):
        first(value)


def test_element_types_of_numpy_and_functions_that_make_types() -> None:
    assert repr(qd.types.ndarray(dtype=np.float32, ndim=1)) == "ndarray(dtype=f32, ndim=1)"
    with pytest.raises(TypeError, match=r"`qd.types.vector\(3, qd.f32\)` is a type of elements"):
        qd.types.ndarray(dtype=qd.types.vector, ndim=1)
