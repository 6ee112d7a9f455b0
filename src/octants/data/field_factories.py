"""Makes fields: ``field(f32, (3, 4), needs_grad=True)`` and its relatives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from octants.data import current_runtime
from octants.data.axes import LETTERS, Axis, check_extents, check_offset, check_shape
from octants.data.element_types import (
    check_device,
    check_dtype,
    check_element_shape,
    needed_companions,
    require_differentiable,
)
from octants.data.errors import WrongArrayOption, describe
from octants.data.field import Field, MatrixField, ScalarField
from octants.data.tree import Mirror, SNode
from octants.data.tree_roots import outermost_block
from octants.deferred_import import Deferred
from octants.types.companions import Companion
from octants.types.enums import Layout
from octants.types.quantised_types import QuantType
from octants.types.scalars import DType

if TYPE_CHECKING:
    from octants.data import quant_field
else:
    quant_field = Deferred("octants.data.quant_field")


def field(
    dtype: Any,
    shape: Any = None,
    order: str | None = None,
    name: str = "",
    offset: Any = None,
    needs_grad: bool = False,
    needs_dual: bool = False,
    device: int | None = None,
) -> Any:
    """Create a field; all elements are zero at first.

    Example::

        x = qd.field(qd.f32, shape=(64, 64), needs_grad=True)
        x.fill(1.0)
        x[3, 4] = 2.0

    Args:
        dtype: a scalar, vector, matrix or struct type.
        shape: an integer or a tuple of integers; () for a single element. Without a shape, place
            the field: ``root.dense(i, n).place(x)``.
        order: the axes from the outermost in memory to the innermost; ``"ji"`` is column-major.
        name: a name for messages.
        offset: the index of the first element.
        needs_grad: allocate ``x.grad``, of the same shape; needs a floating-point type.
        needs_dual: allocate ``x.dual``, likewise.
        device: the number of the GPU, where there are several; by default that of `init`. It needs
            a shape; other fields are on the device of their `FieldsBuilder`.

    Raises:
        OctantsRuntimeTypeError: for a wrong dtype.
        OctantsValueError: for a wrong shape, or a device that there is not.
    """
    if hasattr(dtype, "members"):
        if order is not None:
            advice = "build the blocks with `qd.root.dense(...)`"
            raise WrongArrayOption("field", "order", "is not for fields of structs", advice).at()
        options: dict[str, Any] = {"name": name, "offset": offset, "device": device}
        return dtype.field(shape, needs_grad=needs_grad, needs_dual=needs_dual, **options)
    options = {"order": order, "name": name, "offset": offset, "device": device}
    return make_field(dtype, shape, needs_grad=needs_grad, needs_dual=needs_dual, **options)


def make_field(
    dtype: Any,
    shape: Any = None,
    *,
    element_shape: tuple[int, ...] | None = None,
    order: str | None = None,
    name: str = "",
    offset: Any = None,
    needs_grad: bool = False,
    needs_dual: bool = False,
    layout: Layout = Layout.AOS,
    ndim: int | None = None,
    device: int | None = None,
) -> Any:
    """A field of scalars, vectors or matrices; see `field`.

    `layout` says whether the components of an element stand together (AOS) or each in an array of
    its own (SOA). With ``ndim=1`` a matrix of one column is a vector.
    """
    if isinstance(dtype, QuantType):
        options: dict[str, Any] = {"needs_grad": needs_grad, "needs_dual": needs_dual}
        options |= {"order": order, "offset": offset, "device": device}
        form = check_element_shape("field", element_shape or (), ndim)
        return quant_field.make_quant_field(dtype, shape, form, name, options)
    scalar, element_shape = check_dtype("field", dtype, element_shape)
    element_shape = check_element_shape("field", element_shape, ndim)
    check_layout("field", layout)
    needed = needed_companions(needs_grad, needs_dual)
    require_differentiable("field", scalar, needed)
    check_device("field", device)
    if shape is None:
        _require_no_shape_options(order, offset)
        require_no_device("field", device)
        return _new_field(scalar, element_shape, name, needed)
    extents = check_shape("field", shape)
    axes = _check_order(order, len(extents))
    origin = check_offset("field", offset, len(extents))
    check_extents("field", extents, origin)
    made = _new_field(scalar, element_shape, name, needed)
    _place_in_new_blocks(made, extents, axes, origin, layout, device)
    made.has_own_blocks = True
    return made


def _new_field(
    dtype: DType, element_shape: tuple[int, ...], name: str, needed: tuple[Companion, ...]
) -> Field:
    cls = MatrixField if element_shape else ScalarField
    return cls(dtype, element_shape, name, needed)


def _place_in_new_blocks(
    made: Field,
    extents: tuple[int, ...],
    axes: tuple[int, ...],
    origin: tuple[int, ...] | None,
    layout: Layout,
    device: int | None,
) -> None:
    with current_runtime.runtime().lock:
        outermost = outermost_block(device)
        parts: list[Any] = [made]
        if layout is Layout.SOA and made.element_shape:
            parts = [(made, component) for component in np.ndindex(made.element_shape)]
        for part in parts:
            dense_blocks(outermost, extents, axes).place(part, offset=origin)
        mirror = Mirror(outermost.tree)
        for companion in made.needed:
            for node in made.place_nodes.values():
                mirror.place(node, made.companion_array(companion))


def dense_blocks(outermost: SNode, extents: tuple[int, ...], axes: tuple[int, ...]) -> SNode:
    """Blocks for a field of these extents, with the axes in this order from the outside."""
    if axes == tuple(range(len(extents))):
        every = tuple(map(Axis, axes))
        return outermost.dense(every, extents) if axes else outermost
    block = outermost
    for axis in axes:
        block = block.dense(Axis(axis), extents[axis])
    return block


# -- options ---------------------------------------------------------------------------------------


def _require_no_shape_options(order: Any, offset: Any) -> None:
    for option, value in (("order", order), ("offset", offset)):
        if value is not None:
            advice = "give a shape too, or build the blocks with `qd.root.dense(...)`"
            raise WrongArrayOption("field", option, "needs a shape", advice).at()


def require_no_device(what: str, device: Any) -> None:
    """An error if a device is named for a field that a tree gives its memory."""
    if device is not None:
        advice = "give a shape too, or place the field in a `qd.FieldsBuilder(device=...)`"
        raise WrongArrayOption(what, "device", "needs a shape", advice).at()


def _check_order(order: str | None, rank: int) -> tuple[int, ...]:
    """The numbers of the axes from the outermost in memory to the innermost."""
    letters = LETTERS[:rank]
    if order is None:
        return tuple(range(rank))
    if sorted(str(order)) != sorted(letters):
        problem = f"cannot be {describe(order)} for a shape of {rank} axes"
        advice = f"it has each of the letters {', '.join(letters)} once"
        raise WrongArrayOption("field", "order", problem, advice).at()
    return tuple(letters.index(letter) for letter in order)


def check_layout(what: str, layout: Any) -> None:
    """An error if a layout is none."""
    if not isinstance(layout, Layout):
        advice = "it is `qd.Layout.AOS` or `qd.Layout.SOA`"
        raise WrongArrayOption(what, "layout", f"cannot be {describe(layout)}", advice).at()
