"""The text of each error of the data layer."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from octants.data import axes as ax
from octants.data import current_runtime, errors
from octants.data.dlpack_import import from_dlpack
from octants.data.field_factories import field
from octants.data.ndarray import ndarray
from octants.data.tensor_factories import tensor
from octants.data.tree_roots import FieldsBuilder, root
from octants.diagnostics.errors import UserError
from octants.diagnostics.exceptions import OctantsError, OctantsMemoryError, OctantsWarning
from octants.runtime.devices.devices_in_use import DevicesInUse
from octants.runtime.devices.null import NullDevice
from octants.types.enums import Layout
from octants.types.matrix_types import vector
from octants.types.matrix_values import Vector
from octants.types.scalars import f32, i8, i32
from tests.devices import shares_memory
from tests.golden_files import check_golden

CASES: dict[str, Callable[[], Any]] = {}


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    CASES[function.__name__] = function
    return function


@case
def wrong_dtype() -> None:
    field("f33", 3)


@case
def wrong_extents() -> None:
    field(f32, (3, -1))


@case
def extent_too_large() -> None:
    field(f32, 2**31)


@case
def wrong_view() -> None:
    ndarray(f32, 3)[::2]


@case
def gradient_assigned() -> None:
    x = ndarray(f32, 3, needs_grad=True)
    x.grad = np.ones(3, np.float32)  # type: ignore[misc]


@case
def wrong_element_shape() -> None:
    Vector.field(0, f32, 3)


@case
def not_differentiable() -> None:
    ndarray(i32, 3, needs_grad=True)


@case
def wrong_array_option() -> None:
    tensor(f32, (3, 4), layout=Layout.SOA)


@case
def out_of_memory() -> None:
    class Full(NullDevice):
        def allocate(self, nbytes: int, what: str) -> Any:
            raise OctantsMemoryError("no")

    current_runtime.start(DevicesInUse(Full()))
    ndarray(f32, (1000, 1000))


@case
def companion_on_other_device() -> None:
    other = NullDevice()
    other.number = 1
    current_runtime.start(DevicesInUse(NullDevice(), 0, lambda _: other))
    x = field(f32, name="x")
    root.dense(ax.i, 3).place(x)
    builder = FieldsBuilder(device=1)
    builder.dense(ax.i, 3).place(x.grad)
    builder.finalize()
    x.fill(1.0)
    x.grad.fill(1.0)


@case
def read_only() -> None:
    values = np.zeros(3, np.float32)
    values.flags.writeable = False
    from_dlpack(values).fill(1.0)


@case
def builder_is_finalized() -> None:
    builder = FieldsBuilder()
    builder.finalize()
    builder.dense(ax.i, 3)


@case
def not_placed() -> None:
    field(f32, name="x")[0]


@case
def placed_twice() -> None:
    root.dense(ax.i, 3).place(field(f32, 3, name="x"))


@case
def cannot_place() -> None:
    root.dense(ax.i, 3).place(np.zeros(3))


@case
def wrong_axes() -> None:
    root.dense(ax.i, (3, 4))


@case
def tree_is_allocated() -> None:
    x = field(f32)
    block = root.dense(ax.i, 3).place(x)
    x[0]
    block.place(field(f32))


@case
def not_finalized() -> None:
    x = field(f32, name="x")
    FieldsBuilder().dense(ax.i, 3).place(x)
    x[0]


@case
def wrong_companion_shape() -> None:
    x = field(f32, name="x")
    root.dense(ax.i, 3).place(x)
    root.dense(ax.i, 4).place(x.grad, offset=1)
    x[0]


@case
def companion_without_field() -> None:
    x = field(f32, name="x")
    root.dense(ax.i, 3).place(x.grad)
    x.grad[0]


@case
def missing_companion() -> None:
    field(f32, name="x").grad[0]


@case
def unsupported_node() -> None:
    root.hash(ax.i, 3)


@case
def used_after_reset() -> None:
    x = field(f32, 3, name="x")
    current_runtime.start(DevicesInUse(NullDevice()))
    x[0]


@case
def used_after_destroy() -> None:
    builder, x = FieldsBuilder(), field(f32, name="x")
    builder.dense(ax.i, 3).place(x)
    builder.finalize().destroy()
    x[0]


@case
def uneven_components() -> None:
    v = Vector.field(2, f32, name="v")
    for k, extent in enumerate((3, 4)):
        root.dense(ax.i, extent).place(v.get_scalar_field(k))
    v[0]


@case
def missing_components() -> None:
    v = Vector.field(2, f32, name="v")
    root.dense(ax.i, 3).place(v.get_scalar_field(1))
    v[0]


@case
def wrong_number_of_indices() -> None:
    field(f32, (3, 4), name="x")[1]


@case
def wrong_index() -> None:
    field(f32, 3, name="x")["0:2"]


@case
def index_out_of_range() -> None:
    field(f32, (3, 4), name="x")[1, -1]


@case
def wrong_value() -> None:
    field(i32, 3, name="n")[0] = "1"


@case
def not_one_number() -> None:
    float(field(f32, 2, name="x"))


@case
def not_iterable() -> None:
    list(field(f32, (), name="x"))


@case
def wrong_array_shape() -> None:
    field(f32, (3, 4), name="x").from_numpy(np.zeros((4, 3)))


@case
def wrong_array() -> None:
    field(f32, (3, 4), name="x").from_numpy([[1.0] * 4] * 3)


@case
def cannot_share() -> None:
    x = field(f32, name="x")
    root.dense(ax.i, 2).place(field(f32)).dense(ax.i, 3).place(x)
    x.to_numpy(copy=False)


@case
def cannot_copy() -> None:
    copy.deepcopy([field(f32, 3, name="x")])


OF_SHARED_MEMORY = ("read_only",)  # else what is imported is refused, or copied


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=shares_memory if n in OF_SHARED_MEMORY else ()) for n in CASES]
)
def test_message(name: str) -> None:
    with pytest.raises(OctantsError) as caught:
        CASES[name]()
    diagnostic = caught.value.diagnostic
    assert diagnostic is not None
    expected = getattr(errors, "".join(word.capitalize() for word in name.split("_")))
    assert diagnostic.code == expected.code
    assert isinstance(caught.value, expected.exception)
    check_golden(f"errors/{diagnostic.code}_{name}", str(caught.value))


@pytest.mark.parametrize("element", [f32, vector(2, f32)])
@pytest.mark.parametrize("make", [field, ndarray])
def test_a_loop_of_a_kernel_without_its_decorator(make: Any, element: Any) -> None:
    x = make(element, shape=3)
    with pytest.raises(OctantsError, match="put `@qd.kernel` above it"):
        for i in x:
            x[i] = 1.0


def test_a_warning() -> None:
    with pytest.warns(OctantsWarning) as warned:
        field(i8, 3, name="n").fill(200)
    check_golden("errors/OCT534_value_changes", str(warned[0].message))


def test_every_error_is_tested() -> None:
    classes = {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, UserError) and kind is not UserError
    }
    tested = {"".join(word.capitalize() for word in name.split("_")) for name in CASES}
    assert tested | {errors.ValueChanges.__name__} == set(classes)
    codes = [kind.code for kind in classes.values()]
    assert len(set(codes)) == len(codes)
