"""Reading and writing fields and ndarrays from the host."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

from octants.data import axes as ax
from octants.data.dlpack_import import from_dlpack
from octants.data.field_factories import field, make_field
from octants.data.ndarray import make_ndarray, ndarray
from octants.data.tree_roots import root
from octants.diagnostics.exceptions import (
    OctantsIndexError,
    OctantsRuntimeError,
    OctantsRuntimeTypeError,
    OctantsValueError,
    OctantsWarning,
)
from octants.types.enums import Layout
from octants.types.matrix_values import Matrix, Vector
from octants.types.scalars import (
    ALL,
    convert,
    f16,
    f32,
    f64,
    i8,
    i32,
    i64,
    integer_range,
    u1,
    u8,
    u64,
)
from tests.devices import shares_memory

MAKERS = [
    pytest.param(make_field, id="field"),
    pytest.param(make_ndarray, id="ndarray"),
    pytest.param(lambda *args, **named: make_field(*args, layout=Layout.SOA, **named), id="soa"),
    pytest.param(lambda *args, **named: _interleaved(*args, **named), id="interleaved"),
]
every_kind = pytest.mark.parametrize("make", MAKERS)


def _interleaved(dtype: Any, shape: Any, **named: Any) -> Any:
    """A field with a split axis between two others."""
    x = make_field(dtype, **named)
    extents = (shape,) if isinstance(shape, int) else shape
    block = root.node
    for axis, extent in enumerate(extents):
        outer = 2 if extent % 2 == 0 else 1
        block = block.dense(ax.axes(axis), outer).place(field(i8))
        block = block.dense(ax.axes(axis), extent // outer).place(field(i8))
    block.place(field(i8), x, field(f64))
    return x


# -- scalars ---------------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_every_type_is_read_as_it_was_written(make: Any, dtype: Any) -> None:
    x = make(dtype, (2, 3))
    values = (
        [True]
        if dtype is u1
        else [1.5, -0.0, float("inf")]
        if dtype.is_float
        else list(integer_range(dtype))
    )
    for value in values:
        x[1, 2] = value
        assert x[1, 2] == value
        assert type(x[1, 2]) is type(value)
        assert x.to_numpy().dtype == dtype.numpy
    assert x.to_numpy().ravel().tolist()[:5] == [0] * 5


@every_kind
def test_floats_are_rounded_to_their_type(make: Any) -> None:
    x = make(f32, 2)
    x[0] = 0.1
    assert x[0] == float(np.float32(0.1))
    x[1] = 1e300
    assert x[1] == float("inf")
    h = make(f16, 1)
    h[0] = 1e6
    assert h[0] == float("inf")


@every_kind
def test_indices_of_all_sorts(make: Any) -> None:
    x = make(i32, (4, 6))
    for index in [(1, 2), [1, 2], (np.int64(1), np.int8(2)), (True, 2), Vector([1, 2])]:
        x[index] += 1
    assert x[1, 2] == 5
    assert x.to_numpy().sum() == 5


@every_kind
@pytest.mark.parametrize("index", [(-1, 0), (4, 0), (0, 6), (0, -1)])
def test_index_out_of_range(make: Any, index: Any) -> None:
    x = make(i32, (4, 6))
    with pytest.raises(OctantsIndexError, match="out of range on axis"):
        x[index]
    with pytest.raises(OctantsRuntimeError, match="out of range on axis"):
        x[index] = 1
    with pytest.raises(IndexError):
        x[index]
    assert not x.to_numpy().any()


@every_kind
@pytest.mark.parametrize("index", [0, None, (), (0, 0, 0), (0,)])
def test_wrong_number_of_indices(make: Any, index: Any) -> None:
    with pytest.raises(OctantsIndexError, match="has 2 axes"):
        make(i32, (4, 6))[index]


@every_kind
@pytest.mark.parametrize(
    "index", [(1.0, 0), (slice(2), 0.5), ("a", 0), (np.zeros(2), 0), (np.zeros(2), ...)]
)
def test_index_that_is_no_integer(make: Any, index: Any) -> None:
    with pytest.raises(OctantsRuntimeTypeError, match="an index is an integer"):
        make(i32, (4, 6))[index]


def test_one_index_is_not_a_component_of_a_vector_without_axes() -> None:
    v = make_field(f32, (), element_shape=(3,))
    with pytest.raises(OctantsIndexError):
        v[0]
    v[None] = [1, 2, 3]
    assert v[None][2] == 3


@every_kind
@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (f32, "a"),
        (f32, None),
        (f32, [1]),
        (f32, 1j),
        (f32, np.complex64(1)),
        (i32, "1"),
        (u1, "yes"),
        (f32, np.zeros(1)),
    ],
)
def test_value_of_a_wrong_type(make: Any, dtype: Any, value: Any) -> None:
    x = make(dtype, 3)
    with pytest.raises(OctantsRuntimeError):
        x[0] = value
    assert x[0] == 0
    assert x.version == 0


@pytest.mark.parametrize(
    ("dtype", "value", "stored"),
    [(i8, 128, -128), (i8, -129, 127), (u8, -1, 255), (u64, 1 << 64, 0)],
)
def test_integers_wrap(dtype: Any, value: int, stored: int) -> None:
    x = field(dtype, 3)
    for store in (lambda: x.fill(value), lambda: x.__setitem__(0, value)):
        with pytest.warns(OctantsWarning, match=f"{value} becomes {stored}"):
            store()
        assert x[0] == stored


@pytest.mark.parametrize(
    ("dtype", "values", "stored"),
    [
        (u8, [1, 2, 300], (2, 300, 44)),
        (u8, [1.0, 2.5, 4.0], (1, 2.5, 2)),
        (i32, [1.0, np.nan, 2.0], (1, np.nan, 0)),
        (u64, [5, 7, -1], (2, -1, 2**64 - 1)),
        (i64, np.array([5, 2**63, 7], np.uint64), (1, 2**63, -(2**63))),
    ],
)
def test_numbers_of_an_array_that_change_are_reported(
    dtype: Any, values: Any, stored: tuple[int, Any, int]
) -> None:
    x, source, view = field(dtype, 3), np.array(values), ndarray(dtype, 3)
    index, given, changed = stored
    message = f"{given} at \\({index},\\) becomes {changed} in"
    for store in (
        lambda: x.from_numpy(source),
        lambda: x.__setitem__(slice(None), source),
        lambda: view[:].from_numpy(source),
    ):
        with pytest.warns(OctantsWarning, match=message):
            store()
    assert x[index] == view[index] == changed


def test_numbers_of_an_array_that_stay_are_not_reported() -> None:
    field(u8, 3).from_numpy(np.array([0, 1, 255]))
    field(i32, 3).from_numpy(np.array([0.0, -1.0, 2.0**31 - 1]))
    field(u1, 3).from_numpy(np.array([0, 2, 3]))
    field(f32, 3).from_numpy(np.array([0.1, 1e300, 2.0]))


@pytest.mark.filterwarnings("error")
def test_numbers_of_other_libraries() -> None:
    x, n = field(f32, 3), field(i64, 3)
    x[0], x[1], x[2] = np.float64(1.5), np.array(2.5), True
    n[0], n[1], n[2] = np.int8(-3), np.array(4), np.bool_(True)
    doubles = field(f64, 3)
    doubles[0], doubles[1], doubles[2] = np.float32(1.5), np.float64(1e300), np.float32("inf")
    assert doubles.to_numpy().tolist() == [1.5, 1e300, np.inf]
    assert x.to_numpy().tolist() == [1.5, 2.5, 1]
    assert n.to_numpy().tolist() == [-3, 4, 1]


def test_iteration_ends() -> None:
    x = field(i32, 3)
    x.from_numpy(np.array([1, 2, 3]))
    assert list(x) == [1, 2, 3]


# -- vectors and matrices --------------------------------------------------------------------------


@every_kind
def test_vectors(make: Any) -> None:
    v = make(f32, 4, element_shape=(3,))
    v[0] = [1, 2, 3]
    v[1] = np.array([4, 5, 6])
    v[2] = Vector([7, 8, 9])
    v[3] = v[0]
    assert v.to_numpy().tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9], [1, 2, 3]]
    v[0][1] = 20
    v[1].x = 40
    v[2].zy = [1, 2]
    v[3][0:2] = [8, 9]
    assert v.to_numpy().tolist() == [[1, 20, 3], [40, 5, 6], [7, 2, 1], [8, 9, 3]]
    v[0] += 1
    v[1] = v[2] * 2 + v[3]
    assert v.to_numpy()[:2].tolist() == [[2, 21, 4], [22, 13, 5]]
    assert (v[0].x, v[0][-1], v[0].norm_sqr()) == (2, 4, 4 + 441 + 16)
    v[0] = 5
    assert v[0].to_list() == [5, 5, 5]


@every_kind
def test_matrices(make: Any) -> None:
    m = make(f64, (2, 2), element_shape=(2, 3))
    m[0, 1] = [[1, 2, 3], [4, 5, 6]]
    m[1, 0][0, 1] = 7
    m[1, 0][1] = [1, 1, 2]
    m[1, 1][:, 2] = [8, 9]
    expected = np.zeros((2, 2, 2, 3))
    expected[0, 1] = [[1, 2, 3], [4, 5, 6]]
    expected[1, 0] = [[0, 7, 0], [1, 1, 2]]
    expected[1, 1, :, 2] = [8, 9]
    assert np.array_equal(m.to_numpy(), expected)
    assert m[0, 1][1, 2] == 6
    assert (m[0, 1] @ Vector([1, 1, 1])).to_list() == [6, 15]
    assert m[0, 1].transpose().to_list() == [[1, 4], [2, 5], [3, 6]]


@every_kind
def test_an_element_is_a_view(make: Any) -> None:
    v = make(f32, 4, element_shape=(3,))
    w = v[1]
    w[0] = 5
    assert v[1].to_list() == [5, 0, 0]
    v[1] = [7, 8, 9]
    assert w.to_list() == [7, 8, 9]
    for detached in (
        copy.copy(w),
        copy.deepcopy(w),
        pickle.loads(pickle.dumps(w)),
        +w,
        w[0:3],
        Vector(w),
    ):
        detached[0] = 0
        assert type(detached) is Vector
    assert v[1].to_list() == [7, 8, 9]


@every_kind
@pytest.mark.parametrize(
    ("dtype", "given"),
    [
        (f32, [2**24 + 1, -(2**60) - 1, 1e-46]),
        (f32, [2**70, 0, 0.1]),
        (f64, [2**53 + 1, 0.1, -0.0]),
        (i32, [2**31 - 1, -(2**31), 0]),
        (u64, [2**64 - 1, 2**63, 1]),
        (u8, [255, 0, 7]),
    ],
)
def test_components_of_a_list(make: Any, dtype: Any, given: list[Any]) -> None:
    v, each = (make(dtype, 2, element_shape=(3,)) for _ in range(2))
    v[1] = given
    for k, value in enumerate(given):
        each[1][k] = value
    assert v.to_numpy().tobytes() == each.to_numpy().tobytes()
    assert v.to_numpy()[1].tolist() == [convert(value, dtype) for value in given]
    assert [v[1][k] for k in range(3)] == [v[1].x, v[1].y, v[1].z] == v.to_numpy()[1].tolist()


@every_kind
def test_wrong_components(make: Any) -> None:
    v = make(f32, 4, element_shape=(3,))
    with pytest.raises(OctantsValueError, match=r"shape \(3,\) is needed, not \(2,\)"):
        v[0] = [1, 2]
    with pytest.raises(OctantsRuntimeTypeError, match="cannot store"):
        v[0] = [1, 2, "a"]
    with pytest.raises(OctantsRuntimeTypeError, match="cannot store"):
        v[0] = [1, [2], 3]
    with pytest.raises(OctantsIndexError, match="index 3 is out of range on axis 0"):
        v[0][3] = 1
    with pytest.raises(OctantsIndexError, match="has 1 axes"):
        v[0][0, 0]
    with pytest.raises(OctantsRuntimeTypeError, match="an index is an integer"):
        v[0][1.5]
    with pytest.raises(AttributeError):
        v[0].w
    assert v.version == 0


def test_matrix_of_one_column() -> None:
    m = make_field(f32, 4, element_shape=(3, 1))
    v = make_field(f32, 4, element_shape=(3, 1), ndim=1)
    assert (m.n, m.m, m.ndim, m.element_shape) == (3, 1, 2, (3, 1))  # type: ignore[attr-defined]
    assert (v.n, v.m, v.ndim, v.element_shape) == (3, 1, 1, (3,))  # type: ignore[attr-defined]
    assert m.to_numpy().shape == v.to_numpy().shape == (4, 3)
    assert m.to_numpy(keep_dims=True).shape == v.to_numpy(keep_dims=True).shape == (4, 3, 1)  # type: ignore[call-arg]
    values = np.arange(12.0).reshape(4, 3)
    for x in (m, v):
        for given in (values, values[..., None]):
            x.fill(0)
            x.from_numpy(given)
            assert np.array_equal(x.to_numpy(), values)
    assert type(m[0]) is not type(v[0])
    assert make_field(f32, 4, element_shape=(1, 3)).to_numpy().shape == (4, 1, 3)


# -- all at once -----------------------------------------------------------------------------------


@every_kind
def test_fill(make: Any) -> None:
    x, v, m = (
        make(f32, (2, 4)),
        make(i32, 4, element_shape=(2,)),
        make(f64, 2, element_shape=(2, 2)),
    )
    x.fill(1.5)
    v.fill([1, 2])
    m.fill(Matrix([[1, 2], [3, 4]]))
    assert (x.to_numpy() == 1.5).all()
    assert v.to_numpy().tolist() == [[1, 2]] * 4
    assert m.to_numpy().tolist() == [[[1, 2], [3, 4]]] * 2
    v.fill(7)
    assert (v.to_numpy() == 7).all()
    for array, value in [(x, "a"), (x, None), (x, [1, 2]), (v, [1, 2, 3]), (v, 1j)]:
        with pytest.raises(OctantsRuntimeError):
            array.fill(value)


@every_kind
def test_from_numpy_and_back(make: Any) -> None:
    x = make(f32, (4, 6), element_shape=(2,))
    values = np.random.default_rng(1).random((4, 6, 2)).astype(np.float32)
    for given in (values, values.astype(np.float64), np.asfortranarray(values), values[::-1][::-1]):
        x.fill(0)
        x.from_numpy(given)
        assert np.array_equal(x.to_numpy(), values)
    assert x.to_numpy(dtype=np.float64).dtype == np.float64
    assert x.to_numpy(dtype=f16).dtype == np.float16
    assert x.to_numpy(dtype=complex).dtype == complex
    assert np.array_equal(np.asarray(x), values)
    assert x.to_numpy().flags.c_contiguous
    assert x.to_numpy().flags.owndata or x.to_numpy().base.flags.owndata


def test_to_numpy_copies() -> None:
    x = field(f32, 3)
    x.to_numpy()[0] = 5
    np.array(x)[0] = 5
    assert x[0] == 0


@pytest.mark.filterwarnings("ignore:OCT534")
def test_integers_from_floats_are_truncated_and_saturated() -> None:
    x, n, u, w = field(i8, 6), field(i64, 4), field(u64, 3), field(i32, 2)
    x.from_numpy(np.array([1.7, -1.7, 300, -300, np.nan, np.inf]))
    assert x.to_numpy().tolist() == [1, -1, 127, -128, 0, 127]
    n.from_numpy(np.array([9.3e18, -9.3e18, 2.0**62, -1.5], np.float32))
    assert n.to_numpy().tolist() == [2**63 - 1, -(2**63), 2**62, -1]
    u.from_numpy(np.array([-1.0, 1.9e19, 2.0**63]))
    assert u.to_numpy().tolist() == [0, 2**64 - 1, 2**63]
    w.from_numpy(np.array([2**32 + 5, -1], np.int64))
    assert w.to_numpy().tolist() == [5, -1]
    assert field(f32, 2).to_numpy(dtype=i32).tolist() == [0, 0]


def test_integers_from_half_floats_give_no_warning() -> None:
    n = field(i64, 2)
    with warnings.catch_warnings(action="error"):
        n.from_numpy(np.array([60000.0, -2.0], np.float16))
    assert n.to_numpy().tolist() == [60000, -2]


def test_booleans() -> None:
    x = field(u1, 3)
    x.from_numpy(np.array([0, 2, -1]))
    assert x.to_numpy().tolist() == [False, True, True]
    x[0] = 3
    assert x[0] is True


@every_kind
def test_a_number_of_numpy_is_an_array_without_axes(make: Any) -> None:
    x = make(f32, ())
    x[None] = 3.0
    x.from_numpy(x.to_numpy() * 0.5)
    assert x[None] == 1.5


@every_kind
def test_wrong_arrays(make: Any) -> None:
    x = make(f32, (4, 6))
    for given in (np.zeros((6, 4)), np.zeros(24), np.zeros(()), np.zeros((4, 6, 1))):
        with pytest.raises(OctantsValueError, match=r"shape \(4, 6\) is needed"):
            x.from_numpy(given)
    for given in ([[1.0] * 6] * 4, None, 3, "x"):
        with pytest.raises(OctantsRuntimeTypeError, match="takes a numpy array"):
            x.from_numpy(given)
    for given in (np.zeros((4, 6), complex), np.zeros((4, 6), "U1"), np.full((4, 6), None)):
        with pytest.raises(OctantsRuntimeTypeError, match="array of numbers"):
            x.from_numpy(given)
    with pytest.raises(TypeError):
        x.from_torch(np.zeros((4, 6)))
    assert x.version == 0


@every_kind
@pytest.mark.parametrize("source", [param.values[0] for param in MAKERS])
def test_copy_from(make: Any, source: Any) -> None:
    x, y = make(f32, (2, 4), element_shape=(2,)), source(f64, (2, 4), element_shape=(2,))
    values = np.random.default_rng(1).random((2, 4, 2))
    y.from_numpy(values)
    x.copy_from(y)
    assert np.array_equal(x.to_numpy(), values.astype(np.float32))
    x.copy_from(x)
    assert np.array_equal(x.to_numpy(), values.astype(np.float32))
    with pytest.raises(ValueError, match="is needed, not"):
        x.copy_from(source(f32, (4, 2), element_shape=(2,)))
    with pytest.raises(TypeError, match="a field or an ndarray"):
        x.copy_from(values)


# -- sharing ---------------------------------------------------------------------------------------


@shares_memory
def test_shared_memory_has_the_strides_of_the_layout() -> None:
    x = field(f32, (4, 5), order="ji", needs_grad=True)
    shared = x.to_numpy(copy=False)
    assert shared.strides == (4, 16)
    shared[1, 2] = 7
    assert x[1, 2] == 7
    m = make_field(f32, (4, 5), element_shape=(2, 1), layout=Layout.SOA)
    part = m.to_numpy(copy=False)
    assert part.shape == (4, 5, 2)
    part[3, 4, 1] = 8
    assert m[3, 4][1, 0] == 8
    assert m.to_numpy(keep_dims=True, copy=False).shape == (4, 5, 2, 1)  # type: ignore[call-arg]
    assert np.array(x, copy=False if np.__version__ >= "2" else True).shape == (4, 5)


@shares_memory
def test_shared_memory_outlives_its_array() -> None:
    x = field(f32, 1000)
    x.fill(3)
    shared = x.to_numpy(copy=False)
    del x
    assert (shared == 3).all()


@shares_memory
def test_what_cannot_be_shared() -> None:
    x = _interleaved(f32, (4, 6))
    with pytest.raises(OctantsValueError, match="is split over several blocks"):
        x.to_numpy(copy=False)
    with pytest.raises(ValueError, match="its elements are f32"):
        field(f32, 3).to_numpy(np.float64, copy=False)


@shares_memory
def test_dlpack() -> None:
    x = make_field(f32, (4, 3), element_shape=(2,))
    shared = np.from_dlpack(x)
    x[3, 2] = [5, 6]
    assert shared.shape == (4, 3, 2)
    assert shared[3, 2].tolist() == [5, 6]
    assert x.__dlpack_device__() == (1, 0)
    assert "dltensor" in repr(x.to_dlpack())
    y = ndarray(f64, (4, 3, 2))
    y.from_dlpack(x)
    assert y[3, 2, 1] == 6
    with pytest.raises(TypeError, match="__dlpack__"):
        y.from_dlpack([1])


@shares_memory
@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="numpy is too old")
def test_versioned_dlpack() -> None:
    assert "versioned" in repr(field(f32, 3).to_dlpack(versioned=True))


# -- text ------------------------------------------------------------------------------------------


def test_text() -> None:
    x = field(f32, (2, 2), name="x", needs_grad=True)
    zeros = "\n[[0. 0.]\n [0. 0.]]"
    assert repr(x) == f"<qd.field `x`, (2, 2){zeros}>"
    assert repr(x.grad) == f"<qd.gradient of field `x`, (2, 2){zeros}>"
    x[0, 1] = 3
    assert str(x) == "[[0. 3.]\n [0. 0.]]"
    assert repr(field(i32)) == "<qd.field of i32, not placed>"
    assert (
        repr(make_ndarray(f32, 1, element_shape=(3,)))
        == "<qd.ndarray f32 (1,), elements of (3,): [[0. 0. 0.]]>"
    )


@pytest.mark.parametrize("shape", [(), 5, 2047, 4096, (100, 41), (3, 700, 2)])
def test_fill_repeats_vectors_and_matrices(shape: Any) -> None:
    vectors = Vector.field(3, f32, shape=shape)
    vectors.fill([1.5, -2.0, 3.0])
    expected = np.broadcast_to(np.array([1.5, -2.0, 3.0], np.float32), (*vectors.shape, 3))
    np.testing.assert_array_equal(vectors.to_numpy(), expected)
    matrices = Matrix.ndarray(2, 2, f64, shape or 1)
    matrices.fill([[1, 2], [3, 4]])
    found = matrices.to_numpy().reshape(-1, 4)
    assert (found == [1, 2, 3, 4]).all()
    placed = Vector.field(3, f32)
    other = field(f32)
    size = int(np.prod(vectors.shape)) or 1
    root.dense(ax.i, size).place(placed, other)
    placed.fill(Vector([4.0, 5.0, 6.0]))
    assert (placed.to_numpy() == [4.0, 5.0, 6.0]).all() and not other.to_numpy().any()


@pytest.mark.parametrize("dtype", [u8, f32, f64])
@pytest.mark.parametrize("shape", [1 << 17, (1 << 17) + 3, (3, 50001)])
def test_fill_repeats_numbers(shape: Any, dtype: Any) -> None:
    array = make_ndarray(dtype, shape)
    array.fill(7)
    assert (array.to_numpy() == 7).all()
    one, two = field(dtype), field(dtype)
    root.dense(ax.i, int(np.prod(shape))).place(one, two)  # which alternate
    one.fill(5)
    assert (one.to_numpy() == 5).all() and not two.to_numpy().any()


@pytest.mark.parametrize("element", [(3,), (2, 2)])
def test_elements_that_lie_amid_others_are_copied(element: tuple[int, ...]) -> None:
    size = 3000
    one, two, between = (
        Vector.field(3, f32) if len(element) == 1 else Matrix.field(*element, f32) for _ in range(3)
    )
    root.dense(ax.i, size).place(one, between, two)
    numbers = np.arange(size * int(np.prod(element)), dtype=np.float32).reshape(size, *element)
    one.from_numpy(numbers)
    between.fill(0.5)
    np.testing.assert_array_equal(one.to_numpy(), numbers)
    two.copy_from(one)
    one.from_numpy(numbers[::-1].astype(np.float64))
    np.testing.assert_array_equal(two.to_numpy(), numbers)
    np.testing.assert_array_equal(one.to_numpy(), numbers[::-1])
    two.fill(numbers[1])
    np.testing.assert_array_equal(two.to_numpy(), np.broadcast_to(numbers[1], numbers.shape))
    np.testing.assert_array_equal(between.to_numpy(), 0.5)
    packed = make_ndarray(f32, size, element_shape=element)
    packed.copy_from(one)
    np.testing.assert_array_equal(packed.to_numpy(), numbers[::-1])


@shares_memory
def test_a_copy_between_arrays_that_share_memory() -> None:
    numbers = np.arange(3000, dtype=np.float32)
    for first, second in ((slice(0, 2000), slice(500, 2500)), (slice(500, 2500), slice(0, 2000))):
        memory = numbers.copy()
        from_dlpack(memory[first]).copy_from(from_dlpack(memory[second]))
        np.testing.assert_array_equal(memory[first], numbers[second])


@shares_memory
def test_components_are_exchanged_in_their_own_memory() -> None:
    numbers = np.arange(6000, dtype=np.float32).reshape(3000, 2)
    vectors = Vector.field(2, f32)
    root.dense(ax.i, 3000).place(field(f32), vectors)
    vectors.from_numpy(numbers)
    vectors.from_numpy(np.from_dlpack(vectors)[:, ::-1])
    np.testing.assert_array_equal(vectors.to_numpy(), numbers[:, ::-1])
