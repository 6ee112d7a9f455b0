"""Fields and ndarrays as Python sees them: lengths, numbers, loops, and what they print."""

from __future__ import annotations

import warnings
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


def make(kind: str, dtype: Any, shape: Any) -> Any:
    return qd.field(dtype, shape=shape) if kind == "field" else qd.ndarray(dtype, shape)


kinds = pytest.mark.parametrize("kind", ["field", "ndarray"])


@kinds
def test_sizes(kind: str) -> None:
    x = make(kind, qd.f32, (2, 3))
    assert (len(x), x.size, x.ndim) == (2, 6, 2)
    vectors = qd.Vector.field(4, qd.f32, shape=5)
    assert (len(vectors), vectors.size) == (5, 5)
    with pytest.raises(TypeError, match="has no axes"):
        len(make(kind, qd.f32, ()))
    assert bool(make(kind, qd.f32, 3))


def test_an_empty_array_is_true() -> None:
    assert qd.ndarray(qd.f32, 0)
    assert len(qd.ndarray(qd.f32, 0)) == 0


@kinds
def test_numbers(kind: str) -> None:
    x = make(kind, qd.f32, ())
    x[None] = 2.5
    assert x.item() == float(x) == 2.5
    assert int(x) == 2
    one = make(kind, qd.i32, (1, 1))
    one[0, 0] = 7
    assert one.item() == 7
    assert type(one.item()) is int
    for call in (float, int, lambda x: x.item()):
        with pytest.raises(TypeError, match="OCT540"):
            call(make(kind, qd.f32, 2))


@kinds
def test_loops(kind: str) -> None:
    x = make(kind, qd.f32, 3)
    x.from_numpy(np.array([1, 2, 3], np.float32))
    assert list(x) == [1.0, 2.0, 3.0]
    shifted = qd.field(qd.i32, shape=2, offset=-5)
    shifted[-5] = 1
    assert list(shifted) == [1, 0]
    for shape in ((), (2, 2)):
        with pytest.raises(TypeError, match="OCT541"):
            list(make(kind, qd.f32, shape))


def test_what_is_printed() -> None:
    a = qd.array([1, 2])
    assert repr(a) == "<qd.ndarray i32 (2,): [1 2]>"
    assert repr(qd.zeros((2, 2))) == "<qd.ndarray f32 (2, 2)\n[[0. 0.]\n [0. 0.]]>"
    assert "..." in repr(qd.zeros(1000))
    assert repr(qd.zeros(1 << 21, qd.i8)) == "<qd.ndarray i8 (2097152,)>"
    x = qd.field(qd.f32, shape=2, name="x")
    assert repr(x) == "<qd.field `x`, (2,): [0. 0.]>"
    assert str(x) == "[0. 0.]"
    placed = qd.field(qd.f32)
    assert str(placed) == "<qd.field of f32, not placed>"
    block = qd.root.dense(qd.i, 2)
    block.place(placed)
    assert repr(placed) == "<qd.field of f32, (2,): [0. 0.]>"
    block.dense(qd.j, 3).place(later := qd.field(qd.i32))  # the text has not ended the layout
    assert repr(later).startswith("<qd.field of i32, (2, 3)\n[[0 0 0]")
    x[1] = 3
    assert repr(x) == "<qd.field `x`, (2,): [0. 3.]>"
    assert str(x) == "[0. 3.]"
    array, structs = qd.zeros(3), qd.Struct.field({"a": qd.f32}, shape=2)
    structs[0].a = 1
    qd.reset()
    assert str(x) == "<qd.field `x`, no longer usable>"
    assert repr(array) == str(array) == "<qd.ndarray f32 (3,), no longer usable>"
    assert "0." not in repr(structs), "values that nothing holds"


def test_fields_of_structs() -> None:
    """They are collections as other fields; a member hides an attribute of its name."""
    x = qd.Struct.field({"a": qd.f32, "b": qd.types.vector(2, qd.i32)}, shape=3)
    assert repr(x).endswith(", (3,)\na: [0. 0. 0.]\nb\n[[0 0]\n [0 0]\n [0 0]]>")
    assert (len(x), x.ndim, x.size, bool(x)) == (3, 1, 3, True)
    assert [element.a for element in x] == [0, 0, 0]
    with pytest.raises(TypeError, match="to_numpy"):
        np.asarray(x)
    assert not hasattr(x, "nbytes")
    sized = qd.Struct.field({"size": qd.f32}, shape=(2, 2), offset=(1, 1))
    sized[1, 1].size = 4
    assert (sized.size[1, 1], sized.ndim, len(sized)) == (4, 2, 2)
    with pytest.raises(TypeError, match="OCT541"):
        list(sized)
    shifted = qd.Struct.field({"a": qd.i32}, shape=2, offset=-5)
    shifted[-5].a = 1
    assert [element.a for element in shifted] == [1, 0]
    assert "not placed" in repr(qd.Struct.field({"a": qd.i32}))


def test_reprs_tell_no_error() -> None:
    """That is for the next call that can."""
    x = qd.zeros(3)
    with qd.graph.capture():
        assert repr(x) == "<qd.ndarray f32 (3,)>"


def test_making_arrays_of_values() -> None:
    qd.init(arch=qd.cpu, default_fp=qd.f64, default_ip=qd.i64, log_level="error")
    for made, dtype in (
        (qd.zeros(2), qd.f64),
        (qd.zeros(2, qd.u8), qd.u8),
        (qd.array([1.5, 2.5]), qd.f64),
        (qd.array((1, 2)), qd.i64),
        (qd.array([True]), qd.u1),
        (qd.array(np.ones(2, np.float32)), qd.f32),
        (qd.array([1, 2], qd.f32), qd.f32),
        (qd.from_numpy(np.arange(3, dtype=np.int16)), qd.i16),
    ):
        assert made.dtype is dtype
    made = qd.array([[1, 2], [3, 4]], qd.f32, needs_grad=True)
    assert made.has_grad()
    assert made.to_numpy().tolist() == [[1, 2], [3, 4]]
    values = np.ones(2)
    copied = qd.from_numpy(values)
    values[0] = 5
    assert copied[0] == 1.0
    with pytest.raises(TypeError, match="OCT501"):
        qd.array(["text"])


@pytest.mark.parametrize("name", ["f32", "float", "u8", "float32"])
def test_strings_are_no_element_types(name: str) -> None:
    """Numpy's "float" is another type than `float` here, and its "u8" has eight bytes."""
    for make in (qd.field, qd.ndarray, qd.zeros):
        with pytest.raises(TypeError, match=f"OCT501: .*'{name}' is not .*\n.*`qd.f32`"):
            make(dtype=name, shape=3)
    with pytest.raises(TypeError, match=f"'{name}' is not a scalar type; these are: u1, i8"):
        qd.cast(1, name)
    values = qd.array([1.5, 300.0]).to_numpy("float32")
    assert values.dtype == np.float32


# -- numbers that change --------------------------------------------------------------------------


@kinds
@pytest.mark.parametrize(
    ("dtype", "given", "stored"),
    [
        (qd.i32, 1.5, 1),
        (qd.i32, -1.7, -1),
        (qd.i32, np.float32(2.5), 2),
        (qd.i32, 1 << 31, -(1 << 31)),
        (qd.i32, 1e20, (1 << 31) - 1),
        (qd.i32, float("nan"), 0),
        (qd.u8, -1, 255),
        (qd.u8, 256, 0),
    ],
)
def test_a_number_that_changes_gives_a_warning(
    kind: str, dtype: Any, given: Any, stored: int
) -> None:
    x = make(kind, dtype, 2)
    with pytest.warns(qd.OctantsWarning, match=f"OCT534: .* becomes {stored} in {dtype}") as warned:
        x[0] = given
    assert warned[0].filename == __file__
    assert x.to_numpy().tolist() == [stored, 0]
    with pytest.warns(qd.OctantsWarning, match="OCT534"):
        x.fill(given)
    assert x.to_numpy().tolist() == [stored, stored]


@kinds
@pytest.mark.parametrize(("dtype", "bits"), [(qd.i64, 63), (qd.u64, 64), (qd.i32, 31)])
def test_a_float_just_above_an_integer_type_gives_a_warning(
    kind: str, dtype: Any, bits: int
) -> None:
    x = make(kind, dtype, 2)
    with pytest.warns(qd.OctantsWarning, match=f"OCT534: .* becomes {2**bits - 1} in {dtype}"):
        x.from_numpy(np.array([0.0, 2.0**bits]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x.from_numpy(np.array([0.0, 2.0 ** (bits - 1)]))


@kinds
def test_a_number_that_stays_gives_none(kind: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = make(kind, qd.i32, 2)
        x[0] = 3.0
        x.fill(np.float64(4.0))
        assert x.to_numpy().tolist() == [4, 4]
        truth = make(kind, qd.u1, 1)
        truth[0] = 0.5
        assert truth[0]
        vectors = qd.Vector.field(2, qd.i32, shape=1)
        vectors[0] = [1.0, 2.0]
        assert vectors.to_numpy().tolist() == [[1, 2]]
    with pytest.warns(qd.OctantsWarning, match="OCT534"):
        vectors[0] = [1.5, 2.0]


@kinds
def test_slices(kind: str) -> None:
    x = make(kind, qd.i32, (3, 4))
    values = np.arange(12, dtype=np.int32).reshape(3, 4)
    x.from_numpy(values)
    keys: tuple[Any, ...] = (
        slice(1, 3),
        (slice(None), 1),
        (0, slice(-3, None, 2)),
        ...,
        (..., 2),
        (slice(3, 0, -1), slice(0, 0)),
    )
    for key in keys:
        assert np.array_equal(x[key], values[key])
        x[key] = values[key] + 100
        values[key] += 100
        assert np.array_equal(x.to_numpy(), values)
    x[:, 3] = 7
    assert x[:, 3].tolist() == [7, 7, 7]
    with pytest.raises(ValueError, match="read-only"):
        x[1:][0, 0] = 1
    with pytest.raises(IndexError, match="OCT530"):
        x[:, :, 0]
    with pytest.raises(IndexError, match="out of range|from 0 to 2"):
        x[3, :]
    with pytest.raises(ValueError, match="shape"):
        x[0:2] = np.zeros(3, np.int32)


def test_slices_of_vectors_and_of_nothing() -> None:
    v = qd.Vector.field(2, qd.f32, shape=3)
    v[1:] = [1, 2]
    assert v[...].tolist() == [[0, 0], [1, 2], [1, 2]]
    v[:1] = qd.Vector([3, 4])
    assert v[:, ...].shape == (3, 2)
    assert v[0].to_list() == [3, 4]
    one = qd.field(qd.f32, shape=())
    one[...] = 2
    assert one[...] == 2
    shifted = qd.field(qd.f32, shape=3, offset=-1)
    assert shifted[:].shape == (3,)
    with pytest.raises(TypeError, match="OCT531.*offset"):
        shifted[-1:]


def test_views_of_ndarrays_show_and_take_values() -> None:
    x = qd.array([0, 1, 2, 3, 4])
    x[1:3] = 9
    view = x[2:5]
    view[1:] = [5, 6]
    assert x.tolist() == [0, 9, 9, 5, 6]
    assert repr(view) == "<qd.BufferView of 3 elements from 2: [9 5 6]>"
    assert np.asarray(view).tolist() == view.tolist() == [9, 5, 6]


@kinds
def test_a_tape_sees_which_elements_a_slice_writes(kind: str) -> None:
    create = qd.field if kind == "field" else qd.ndarray
    x, y = (create(qd.f64, 4, needs_grad=True) for _ in "xy")
    loss = qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel
    def square(x: qd.Tensor, y: qd.Tensor):
        for i in x:
            y[i] = x[i] * x[i]

    @qd.kernel
    def total(y: qd.Tensor):
        for i in y:
            loss[None] += y[i]

    x.from_numpy(np.array([1.0, 2.0, 3.0, 4.0]))
    with qd.ad.Tape(loss=loss):
        square(x, y)
        y[1:3] = 5.0
        total(y)
    assert (loss[None], x.grad.to_numpy().tolist()) == (27, [2, 0, 0, 8])


@pytest.mark.parametrize("make", [qd.Vector.field, qd.Vector.ndarray])
def test_arrays_of_vectors_have_no_components(make: Any) -> None:
    """Python would set an attribute that nothing reads."""
    qd.init(arch=qd.cpu)
    x = make(3, qd.f32, shape=4)
    with pytest.raises(AttributeError, match=r"no attribute `y`, .* write `x\[i\].y = \.\.\.`"):
        x.y = 3.0
    assert not hasattr(x, "y")
    x[1].y = 3.0
    assert x.to_numpy()[1].tolist() == [0.0, 3.0, 0.0]
    x.purpose = "other attributes are those of the program"
