"""Derives the types that a kernel is specialised for from the arguments of a call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from octants.diagnostics.library_errors import MaskedArrayGiven
from octants.runtime.arguments.conversions import (
    describe,
    interface,
    is_on_other_device,
    needs_copy,
    not_on_device,
)
from octants.runtime.arguments.parameters import (
    Annotation,
    Leaf,
    StructAnnotation,
    has_interface,
    is_torch,
)
from octants.runtime.device import Device
from octants.types import scalars
from octants.types.companions import Companion
from octants.types.masked_arrays import is_masked
from octants.types.parameter_annotations import (
    AnyTensor,
    NdarrayAnnotation,
    OptionalTensor,
    Template,
)
from octants.types.scalars import DType
from octants.types.specialisation_signature import (
    ArgumentType,
    FieldHandle,
    NdarrayHandle,
    NdarrayType,
    QuantHandle,
    ScalarType,
    StructArgument,
    StructHandle,
    TemplateValue,
)

PRIMAL, ADJOINT = Companion.PRIMAL, Companion.ADJOINT


def argument_type(leaf: Leaf, value: Any, device: Device) -> ArgumentType:
    """The type that a kernel is specialised for, given one argument.

    Args:
        leaf: The parameter.
        value: The argument.
        device: The device that the kernel runs on.

    Raises:
        OctantsArgumentError: the parameter's annotation does not allow the argument.
    """
    annotation = leaf.annotation
    if isinstance(annotation, ScalarType):
        return annotation
    if isinstance(annotation, Template):
        _check_template(leaf, annotation, value)
        return value.argument_type if isinstance(value, NdarrayHandle) else TemplateValue(value)
    if isinstance(annotation, OptionalTensor):
        if value is None:
            return TemplateValue(None)
        return argument_type(leaf.if_given(), value, device)
    if isinstance(annotation, AnyTensor):
        if isinstance(value, (FieldHandle, QuantHandle, StructHandle)):
            return TemplateValue(value)
        return array_type(leaf, value, device)
    if isinstance(value, FieldHandle):
        _check_annotation(leaf, annotation, _type_of_field(value))
        if annotation.boundary == "clamp":
            raise leaf.error('required boundary="clamp", but a field is given', "pass an ndarray")
        return TemplateValue(value)
    if isinstance(value, QuantHandle):
        problem = "required an array, but a quantised field is given"
        raise leaf.error(problem, "annotate the parameter with `qd.template()`")
    found = array_type(leaf, value, device, annotation.element_dim)
    _check_annotation(leaf, annotation, found)
    companions = (PRIMAL,) if annotation.needs_grad is False else found.companions
    return replace(found, companions=companions, clamped=annotation.boundary == "clamp")


def build_argument(annotation: Annotation, types: Sequence[ArgumentType]) -> ArgumentType:
    """The argument type of a parameter, from the types of its leaves."""
    kind, rest = _assemble(annotation, list(types))
    assert not rest
    return kind


def _assemble(
    annotation: Annotation, types: list[ArgumentType]
) -> tuple[ArgumentType, list[ArgumentType]]:
    if not isinstance(annotation, StructAnnotation):
        return types[0], types[1:]
    members = []
    for name, member in annotation.members:
        kind, types = _assemble(member, types)
        members.append((name, kind))
    return StructArgument(tuple(members), annotation.python_type), types


def array_type(
    leaf: Leaf, value: Any, device: Device, element_dim: int | None = None
) -> NdarrayType:
    """The type of an array argument of any library.

    Args:
        leaf: The parameter.
        value: The argument.
        device: The device that the kernel runs on.
        element_dim: How many of the last axes belong to an element; None: 0.

    Raises:
        OctantsArgumentError: it is no array, or one that kernels cannot access.
    """
    if isinstance(value, NdarrayHandle):
        return value.argument_type
    if isinstance(value, np.ndarray):
        return _numpy_type(leaf, value, device, element_dim or 0)
    if is_torch(type(value)):
        return _torch_type(leaf, value, device, element_dim or 0)
    if has_interface(type(value)) and not device.shares_memory:
        return _interface_type(leaf, value, device, element_dim or 0)
    if device.shares_memory and is_on_other_device(value):
        raise not_on_device(leaf, value)
    kind = "an `array.array` of Python" if _is_of_python(value) else describe(value)
    raise leaf.error(f"{kind} is not an array", _array_to_pass(value))


def _is_of_python(value: Any) -> bool:
    return type(value).__module__ == "array"


def _array_to_pass(value: Any) -> str:
    """The remedy for an argument that is no array."""
    if type(value).__module__.startswith("jax."):
        return "under a transformation of JAX, call the kernel by `qd.jax.function`"
    if isinstance(value, (bytes, bytearray)):
        return "pass `numpy.frombuffer(x, dtype)`, an array of its bytes"
    is_like_array = isinstance(value, (list, tuple, memoryview)) or _is_of_python(value)
    if is_like_array or hasattr(value, "__array_interface__"):
        return "pass `numpy.asarray(x)`, of the dtype that the kernel needs"
    if hasattr(value, "__array__"):
        return "pass an array of its numbers, such as `x.to_numpy()` or `numpy.asarray(x)`"
    return "pass an ndarray of Octants, a numpy array or a CPU torch tensor"


def _numpy_type(
    leaf: Leaf, value: np.ndarray[Any, Any], device: Device, element_dim: int
) -> NdarrayType:
    if is_masked(value):
        raise leaf.error("kernels have no masked arrays", MaskedArrayGiven.remedy)
    dtype = _dtype(leaf, value.dtype)
    is_copied = needs_copy(value) or not device.shares_memory
    strided = not value.flags.c_contiguous and not is_copied
    return _split_shape(leaf, dtype, value.shape, element_dim, (PRIMAL,), strided)


def _interface_type(leaf: Leaf, value: Any, device: Device, element_dim: int) -> NdarrayType:
    if device.address_of(value) is None:
        raise not_on_device(leaf, value)
    given = interface(value)
    strided = given.get("strides") is not None
    dtype = _dtype(leaf, np.dtype(given["typestr"]))
    return _split_shape(leaf, dtype, tuple(given["shape"]), element_dim, (PRIMAL,), strided)


def _dtype(leaf: Leaf, given: np.dtype[Any]) -> DType:
    try:
        return scalars.from_numpy(given.newbyteorder("="))
    except KeyError:
        remedy = "convert it with `astype`"
        if given.names:
            remedy = f"pass an array of one of its fields, such as `x[{given.names[0]!r}]`"
        problem = f"an array of dtype {given} has no counterpart in the language"
        raise leaf.error(problem, remedy) from None


def _torch_type(leaf: Leaf, value: Any, device: Device, element_dim: int) -> NdarrayType:
    is_sent = value.device.type == "cpu" and not device.shares_memory
    if value.device.type == "meta":
        raise leaf.error(
            "the torch tensor is on meta, so it has no elements",
            "make it on a device, such as by `torch.empty_like(x, device='cpu')`",
        )
    if value.device.type != "cpu" and device.shares_memory:
        raise leaf.error(
            f"the torch tensor is on {value.device}; this arch reads CPU memory",
            "pass `x.cpu()`",
        )
    if value.device.type != "cpu" and device.address_of(value) is None:
        raise not_on_device(leaf, value)
    if value.is_nested:
        raise leaf.error("the torch tensor is nested", "pass `x.to_padded_tensor(number)`")
    if str(value.layout) != "torch.strided":
        raise leaf.error("the torch tensor is sparse", "pass `x.to_dense()`")
    if value.is_neg():
        raise leaf.error(
            "the torch tensor is a view of negated numbers, as `x.conj().imag` is",
            "pass `x.resolve_neg()`",
        )
    name = str(value.dtype).removeprefix("torch.")
    try:
        dtype = scalars.from_numpy("bool" if name == "bool" else name)
    except (KeyError, TypeError):
        raise leaf.error(
            f"a tensor of dtype {name} has no counterpart in the language",
            "convert it with `.to(...)`",
        ) from None
    differentiable = dtype.is_float and (value.requires_grad or value.grad is not None)
    companions = (PRIMAL, ADJOINT) if differentiable else (PRIMAL,)
    strided = not value.is_contiguous() and not is_sent
    return _split_shape(leaf, dtype, tuple(value.shape), element_dim, companions, strided)


def _split_shape(
    leaf: Leaf,
    dtype: DType,
    shape: tuple[int, ...],
    element_dim: int,
    companions: tuple[Companion, ...],
    strided: bool,
) -> NdarrayType:
    rank = len(shape) - element_dim
    if rank < 0:
        raise leaf.error(
            f"an array of shape {shape} has too few axes for elements of {_axes(element_dim)}",
            "pass an array with more axes: the last ones are those of its vectors or matrices",
        )
    return NdarrayType(dtype, rank, shape[rank:], companions, strided)


def _axes(count: int) -> str:
    return f"{count} {'axis' if count == 1 else 'axes'}"


def _type_of_field(field: FieldHandle) -> NdarrayType:
    companions = tuple(field.layouts())
    return NdarrayType(field.dtype, len(field.shape), field.element_shape, companions)


def _check_template(leaf: Leaf, annotation: Template, value: Any) -> None:
    """Check a field or an ndarray against the annotation of a template."""
    if annotation.element_type is None and annotation.ndim is None:
        return
    stated = NdarrayAnnotation(annotation.element_type, annotation.ndim)
    if isinstance(value, FieldHandle):
        _check_annotation(leaf, stated, _type_of_field(value))
    elif isinstance(value, NdarrayHandle):
        _check_annotation(leaf, stated, value.argument_type)


def _check_annotation(leaf: Leaf, annotation: NdarrayAnnotation, found: NdarrayType) -> None:
    if annotation.dtype is not None and annotation.dtype is not found.dtype:
        raise leaf.error(
            f"required dtype={annotation.dtype}, but an array of {found.dtype} is given",
            f"make the array of {annotation.dtype}, or annotate it with `dtype=qd.{found.dtype}`",
        )
    if annotation.ndim is not None and annotation.ndim != found.rank:
        raise leaf.error(
            f"required ndim={annotation.ndim}, but an array with {_axes(found.rank)} is given",
            f"reshape the array, or annotate it with `ndim={found.rank}`",
        )
    wanted = annotation.element_shape
    if wanted is not None and wanted != found.element_shape:
        raise leaf.error(
            f"required element_shape={wanted}, but elements of shape {found.element_shape} are"
            " given"
        )
    axes = annotation.element_dim
    if axes is not None and axes != len(found.element_shape):
        raise leaf.error(
            f"required element_dim={axes}, but elements of shape {found.element_shape} are given"
        )
    if annotation.needs_grad and ADJOINT not in found.companions:
        raise leaf.error(
            "required needs_grad=True, but the array has no gradient",
            "make it with `needs_grad=True`",
        )
