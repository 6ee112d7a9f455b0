"""Fields, ndarrays, tensors: what they can be made of, and how long they live."""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any

import numpy as np
import pytest

from octants.data import axes as ax
from octants.data import current_runtime
from octants.data.array_base import Tensor
from octants.data.field import Field, MatrixField, ScalarField
from octants.data.field_factories import field
from octants.data.ndarray import MatrixNdarray, Ndarray, ScalarNdarray, VectorNdarray, ndarray
from octants.data.tensor_factories import Backend, MatrixTensor, VectorTensor, tensor
from octants.data.tree_roots import FieldsBuilder, root
from octants.diagnostics.exceptions import (
    OctantsMemoryError,
    OctantsRuntimeError,
    OctantsRuntimeTypeError,
    OctantsValueError,
)
from octants.runtime.devices.devices_in_use import DevicesInUse
from octants.runtime.devices.null import NullDevice
from octants.types import default_types
from octants.types.companions import Companion
from octants.types.enums import Layout
from octants.types.matrix_types import matrix, vector
from octants.types.matrix_values import Matrix, Vector
from octants.types.parameter_annotations import AnyTensor
from octants.types.scalars import f16, f32, f64, i32, i64, u1
from octants.types.specialisation_signature import FieldHandle, NdarrayHandle, NdarrayType
from tests.devices import shares_memory

both = pytest.mark.parametrize("make", [field, ndarray])


@both
@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(f64, f64), (int, i32), (float, f32), (bool, u1), (np.float16, f16), (np.dtype("i8"), i64)],
)
def test_dtypes(make: Any, dtype: Any, expected: Any) -> None:
    assert make(dtype, 3).dtype is expected


@both
def test_default_types(make: Any) -> None:
    default_types.set_defaults(i64, f64)
    assert (make(int, 3).dtype, make(float, 3).dtype) == (i64, f64)
    assert make(vector(2, float), 3).dtype is f64


@both
@pytest.mark.parametrize(
    "dtype", [None, "f33", complex, np.complex64, str, 3, [f32, i32], object()]
)
def test_wrong_dtypes(make: Any, dtype: Any) -> None:
    with pytest.raises(OctantsRuntimeTypeError):
        make(dtype, 3)


@both
def test_types_of_elements(make: Any) -> None:
    assert make(vector(3, f32), 4).element_shape == (3,)
    assert make(matrix(2, 3, f64), 4).element_shape == (2, 3)
    assert make(vector(3, f32), 4)[0].to_list() == [0, 0, 0]


@both
@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (3, (3,)),
        ((3,), (3,)),
        ([3, 4], (3, 4)),
        (np.int64(3), (3,)),
        ((np.int8(3),), (3,)),
        ((), ()),
    ],
)
def test_shapes(make: Any, shape: Any, expected: Any) -> None:
    assert make(f32, shape).shape == expected


@both
@pytest.mark.parametrize("shape", ["a", 2.0, (1.5,), (2, "a"), ((2, 3),), -1, (3, -1), True, {3}])
def test_wrong_shapes(make: Any, shape: Any) -> None:
    with pytest.raises(OctantsValueError, match="the shape cannot be"):
        make(f32, shape)


@both
@pytest.mark.parametrize("shape", [2**31, (1, 2**32 + 5), 2**63])
def test_indices_that_no_i32_can_hold(make: Any, shape: Any) -> None:
    with pytest.raises(OctantsValueError, match="OCT507.*indices are i32"):
        make(f32, shape)


def test_indices_of_nested_blocks_that_no_i32_can_hold() -> None:
    with pytest.raises(OctantsValueError, match="OCT507.*4294967296 elements"):
        root.dense(ax.i, 1 << 16).dense(ax.i, 1 << 16).place(field(f32))


@pytest.mark.parametrize("offset", [2**31 - 8, -(2**31) - 1])
def test_offsets_with_indices_that_no_i32_can_hold(offset: int) -> None:
    with pytest.raises(OctantsValueError, match="OCT507.*16 elements from index"):
        field(f32, 16, offset=offset)


def test_extents_of_zero() -> None:
    with pytest.raises(OctantsValueError):
        field(f32, (3, 0))
    x = ndarray(f32, (3, 0), needs_grad=True)
    x.fill(1)
    x.from_numpy(np.zeros((3, 0)))
    assert x.to_numpy().shape == (3, 0)
    assert x.extent[0] == x.extent[1]
    assert ndarray(f32, (0, 3)).nbytes == 0


@both
@pytest.mark.parametrize("needed", ["needs_grad", "needs_dual"])
def test_integers_have_no_gradient(make: Any, needed: str) -> None:
    with pytest.raises(OctantsRuntimeError, match="i32 has no"):
        make(i32, 3, **{needed: True})


def test_companions_of_fields() -> None:
    x, n = field(f32), field(i32, 3)
    root.dense(ax.i, 3).place(x)
    assert not x.has_grad()
    assert n.grad is None
    assert n.dual is None
    for missing in (x.grad, x.dual):
        with pytest.raises(OctantsRuntimeError, match="has no"):
            missing[0]
        with pytest.raises(OctantsRuntimeError, match="has no"):
            missing.shape
    with pytest.raises(OctantsRuntimeError, match="has no gradient"):
        x.address(Companion.ADJOINT)
    with pytest.raises(OctantsRuntimeError, match="has no gradient"):
        n.address(Companion.ADJOINT)


def test_companions_cannot_come_late() -> None:
    x = field(f32)
    root.dense(ax.i, 3).place(x)
    gradient = x.grad
    x[0]
    with pytest.raises(OctantsRuntimeError, match="allocated already"):
        root.dense(ax.i, 3).place(gradient)
    with pytest.raises(OctantsRuntimeTypeError, match="until its first use"):
        root.dense(ax.i, 3).place(x.grad)
    root.lazy_grad()
    assert not x.has_grad()


def test_companions_of_ndarrays() -> None:
    x = ndarray(f32, (2, 3), needs_grad=True, needs_dual=True)
    assert (x.has_grad(), x.has_dual()) == (True, True)
    x.grad[1, 2] = 4
    assert x[1, 2] == 0
    assert x.grad.primal is x
    assert x.grad.grad is None
    assert (x.grad.companion, x.dual.companion) == (Companion.ADJOINT, Companion.TANGENT)
    assert x.address(Companion.ADJOINT) == x.grad.address(Companion.PRIMAL)
    y = ndarray(f32, 3)
    assert y.grad is None
    with pytest.raises(OctantsRuntimeError, match="has no gradient"):
        y.address(Companion.ADJOINT)


def test_the_gradient_of_an_ndarray_may_outlive_it() -> None:
    x = ndarray(f32, 3, needs_grad=True)
    gradient = x.grad
    del x
    gradient[0] = 3
    assert gradient[0] == 3
    assert gradient.primal is gradient


def test_argument_types() -> None:
    x = Matrix.ndarray(2, 3, f64, (4, 5), needs_grad=True)
    companions = (Companion.PRIMAL, Companion.ADJOINT)
    assert x.argument_type == NdarrayType(f64, 2, (2, 3), companions)
    assert x.argument_key == Matrix.ndarray(2, 3, f64, (1, 1), needs_grad=True).argument_key
    assert x.argument_key != x.grad.argument_key


@shares_memory
def test_ndarrays_are_row_major() -> None:
    x = Vector.ndarray(3, f32, (4, 5))
    assert x.to_numpy(copy=False).strides == (60, 12, 4)
    assert x.address(Companion.PRIMAL) % 64 == 0
    assert x.to_numpy(copy=False).__array_interface__["data"][0] == x.address(Companion.PRIMAL)


def test_classes() -> None:
    assert type(field(f32, 3)) is ScalarField
    assert type(Vector.field(3, f32, 3)) is MatrixField
    assert type(ndarray(f32, 3)) is ScalarNdarray
    assert type(Vector.ndarray(3, f32, 3)) is VectorNdarray
    assert type(Matrix.ndarray(3, 2, f32, 3)) is MatrixNdarray
    for x in (field(f32, 3), ndarray(f32, 3)):
        assert isinstance(x, (Tensor, AnyTensor))
        assert isinstance(x, FieldHandle) != isinstance(x, NdarrayHandle)
        assert not isinstance(x, (VectorTensor, MatrixTensor))
    assert isinstance(Vector.field(3, f32, 3), VectorTensor)
    assert isinstance(Matrix.ndarray(3, 2, f32, 3), MatrixTensor)
    assert not isinstance(3, VectorTensor)


@pytest.mark.parametrize(
    "options",
    [
        {"order": "ik"},
        {"order": "i"},
        {"order": "ii"},
        {"order": 3},
        {"offset": 1},
        {"offset": "ab"},
        {"offset": (1, 2, 3)},
        {"offset": (1.5, 2)},
    ],
)
def test_wrong_options_of_a_field(options: Any) -> None:
    with pytest.raises(OctantsValueError):
        field(f32, (3, 4), **options)


@pytest.mark.parametrize("options", [{"order": "i"}, {"offset": 1}])
def test_options_that_need_a_shape(options: Any) -> None:
    with pytest.raises(OctantsValueError, match="needs a shape"):
        field(f32, **options)


def test_wrong_options_of_vectors() -> None:
    with pytest.raises(OctantsValueError, match="Layout.SOA"):
        Vector.field(3, f32, 4, layout="SOA")
    for n in (0, 2.5, "a", -1):
        with pytest.raises(OctantsValueError, match="an element cannot have the shape"):
            Vector.field(n, f32, 4)
    with pytest.raises(OctantsRuntimeTypeError, match="have one type"):
        Vector.field(2, [f32, i32], 4)
    assert Vector.field(2, [f32, f32], 4).dtype is f32
    with pytest.raises(OctantsValueError, match="ndim"):
        Matrix.field(2, 3, f32, 4, ndim=1)
    with pytest.raises(OctantsValueError, match="component"):
        Vector.field(3, f32, 4).get_scalar_field(3)


@pytest.mark.parametrize(
    ("indices", "dimensions"),
    [
        (3, 4),
        ("i", 4),
        (ax.i, (4, 5)),
        (ax.ij, (4, 5, 6)),
        (ax.i + ax.i, (2, 3)),
        (ax.i, 0),
        (ax.i, -1),
        (ax.i, 2.5),
        (ax.i, "a"),
        (ax.i, None),
    ],
)
def test_wrong_blocks(indices: Any, dimensions: Any) -> None:
    with pytest.raises(OctantsValueError):
        root.dense(indices, dimensions)
    assert not root.node.children


def test_one_extent_for_all_axes() -> None:
    x = field(f32)
    root.dense(ax.ij, 4).place(x)
    assert x.shape == (4, 4)


@pytest.mark.parametrize("number", [-1, 12, 1.5, "i"])
def test_wrong_axes(number: Any) -> None:
    with pytest.raises(OctantsValueError, match="there is no axis"):
        ax.axes(number)


def test_axes_by_number() -> None:
    x = field(f32)
    root.dense(ax.axes(0, 2, 11), (2, 3, 4)).place(x)
    assert x.shape == (2, 3, 4)


@pytest.mark.parametrize("given", [3, None, np.zeros(3), "x", (1, 2)])
def test_what_cannot_be_placed(given: Any) -> None:
    with pytest.raises(OctantsRuntimeTypeError, match="not a field"):
        root.dense(ax.i, 4).place(field(f32), given)


def test_a_kind_of_block_that_does_not_exist() -> None:
    with pytest.raises(OctantsRuntimeError, match="hash"):
        root.hash(ax.i, 4)


# -- tensors ---------------------------------------------------------------------------------------


def test_backends() -> None:
    assert isinstance(tensor(f32, 3), Ndarray)
    assert isinstance(tensor(f32, 3, backend=Backend.FIELD), Field)
    assert isinstance(Vector.tensor(3, f32, 4, backend=Backend.FIELD), VectorTensor)
    assert isinstance(Matrix.tensor(3, 2, f32, 4, needs_grad=True), MatrixTensor)
    assert isinstance(tensor(vector(3, f32), 4), VectorTensor)
    assert Backend.NDARRAY.name == "NDARRAY"
    assert list(Backend) == [0, 1]


@shares_memory
@pytest.mark.parametrize("backend", Backend)
def test_layout_of_a_tensor(backend: Backend) -> None:
    x = tensor(f32, (4, 5), layout=(1, 0), backend=backend, needs_grad=True)
    assert (x.layout, x.shape) == ((1, 0), (4, 5))
    assert x.to_numpy(copy=False).strides == (4, 16)
    assert x.grad.to_numpy(copy=False).strides == (4, 16)
    assert tensor(f32, (4, 5), backend=backend).layout is None
    assert tensor(f32, (4, 5), layout=(0, 1), backend=backend).layout == (0, 1)


@pytest.mark.parametrize(
    "options",
    [
        {"backend": "field"},
        {"backend": 0},
        {"layout": (1, 1)},
        {"layout": (0,)},
        {"layout": Layout.SOA},
        {"layout": "ji"},
    ],
)
def test_wrong_options_of_a_tensor(options: Any) -> None:
    with pytest.raises(OctantsValueError, match="tensor: `"):
        tensor(f32, (3, 4), **options)


def test_unknown_options_of_a_vector_tensor() -> None:
    with pytest.raises(OctantsValueError, match=r"use `layout=\(1, 0\)`"):
        Vector.tensor(3, f32, (3, 4), order="ji")


# -- life ------------------------------------------------------------------------------------------


def test_nothing_works_before_init(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `octants.api`, which would call `init` itself."""
    monkeypatch.setattr("octants.options._InForce.initialise", None)
    monkeypatch.setattr("octants.options._InForce.options", None)
    current_runtime.stop()
    for make in (
        lambda: field(f32, 3),
        lambda: field(f32),
        lambda: ndarray(f32, 3),
        lambda: root.dense(ax.i, 3),
        lambda: root.place(),
        lambda: root.lazy_grad(),
        FieldsBuilder,
    ):
        with pytest.raises(OctantsRuntimeError, match=r"call `qd.init\(\)`"):
            make()
    assert current_runtime.generation() == 0


@pytest.mark.parametrize("again", [True, False])
def test_nothing_works_after_reset(again: bool) -> None:
    x, n, block = (
        field(f32, 3, needs_grad=True),
        ndarray(f32, 3, needs_grad=True),
        root.dense(ax.i, 3),
    )
    unplaced, unused, v = field(f32), field(f32, 3), Vector.field(3, f32, 3)
    element = v[0]
    x[0] = 1
    before = current_runtime.generation()
    if again:
        current_runtime.start(DevicesInUse(NullDevice()))
        assert current_runtime.generation() > before
    else:
        current_runtime.stop()
    for use in (
        lambda: x[0],
        lambda: x.grad[0],
        lambda: x.fill(0),
        lambda: x.to_numpy(),
        lambda: x.layouts(),
        lambda: x.address(Companion.PRIMAL),
        lambda: n[0],
        lambda: n.grad[0],
        lambda: n.address(Companion.PRIMAL),
        lambda: n.address(Companion.ADJOINT),
        lambda: n.snapshot(),
        lambda: unused[0],
        lambda: unplaced[0],
        lambda: element.__setitem__(0, 1),
    ):
        with pytest.raises(OctantsRuntimeError, match="was made before the last"):
            use()
    if again:
        for use in (lambda: block.place(field(f32)), lambda: root.dense(ax.i, 3).place(unplaced)):
            with pytest.raises(OctantsRuntimeError, match="was made before the last"):
                use()
        assert field(f32, 3)[0] == 0
    assert not x.is_allocated
    assert "no longer usable" in repr(x)


@shares_memory
def test_retired_arrays_keep_shared_memory_alive() -> None:
    x = ndarray(f32, 3)
    shared = x.to_numpy(copy=False)
    current_runtime.start(DevicesInUse(NullDevice()))
    gc.collect()
    shared[0] = 3
    assert shared[0] == 3


def test_memory_of_an_ndarray_is_freed_at_once() -> None:
    import weakref

    x = ndarray(f32, 3, needs_grad=True)
    gc.disable()
    try:
        gone = [weakref.ref(each.window().storage.bytes) for each in (x, x.grad)]
        del x
        assert [each() for each in gone] == [None, None]
    finally:
        gc.enable()


class _Miserly(NullDevice):
    """A device with little memory, which comes back."""

    def __init__(self) -> None:
        super().__init__()
        self.refusals = 0

    def allocate(self, nbytes: int, what: str = "") -> Any:
        if self.refusals == 0 and nbytes < 10_000:
            return super().allocate(nbytes)
        self.refusals = max(0, self.refusals - 1)
        raise OctantsMemoryError("no")


def test_refusal_of_memory() -> None:
    device = _Miserly()
    current_runtime.start(DevicesInUse(device))
    with pytest.raises(MemoryError, match=r"ndarray of f32 of shape \(1000, 1000\) needs 3.8 MiB"):
        ndarray(f32, (1000, 1000))
    x = field(f64, (1000, 1000), name="x")
    with pytest.raises(OctantsMemoryError, match="with field `x`, needs 7.6 MiB"):
        x[0, 0]
    device.refusals = 1
    assert ndarray(f32, 3)[0] == 0


def test_first_use_from_several_threads() -> None:
    for _ in range(20):
        x, storages = field(f32, 100, needs_grad=True), []
        barrier = threading.Barrier(4)

        def use() -> None:
            barrier.wait()
            storages.append(x.grad.window().storage)  # noqa: B023

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(storages) == 4
        assert len(set(map(id, storages))) == 1


def test_torch_is_not_imported() -> None:
    import subprocess

    code = (
        "import sys; from octants.data import current_runtime;"
        "from octants.runtime.devices.devices_in_use import DevicesInUse;"
        "from octants.runtime.devices.null import NullDevice;"
        "current_runtime.start(DevicesInUse(NullDevice()));"
        "from octants.data.field_factories import field;"
        "x = field(float, 3); x.fill(1); x.to_numpy(); x.to_dlpack(); x.from_dlpack(x);"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
