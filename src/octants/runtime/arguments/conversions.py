"""Converts arguments to what a parameter block holds: numbers that fit their slots, addresses."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from octants.diagnostics.exceptions import OctantsError
from octants.diagnostics.library_errors import MaskedArrayGiven
from octants.runtime.arguments.parameters import Leaf, has_interface, is_torch
from octants.runtime.device import Device
from octants.runtime.memory.host import overlaps_itself
from octants.types import scalars
from octants.types.companions import Companion
from octants.types.layouts import row_major
from octants.types.masked_arrays import is_masked
from octants.types.matrix_values import Matrix
from octants.types.scalars import DType
from octants.types.specialisation_signature import NdarrayHandle, ScalarType

_OF_THE_CPU = (1, 3)  # kDLCPU and kDLCUDAHost of DLPack


def describe(value: Any) -> str:
    """Describe an argument for an error message."""
    if value is None or isinstance(value, (int, float, str)):
        return f"{value!r:.60}"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeioAEIO' or name == 'ndarray' else 'a'} {name}"


def check_scalar(leaf: Leaf, value: Any, dtype: DType) -> Any:
    """Convert an argument to a Python number that ``dtype`` can hold.

    Raises:
        OctantsArgumentError: it cannot be converted, or is out of range.
    """
    if dtype.is_float:
        if not hasattr(value, "__float__") or np.ndim(value) > 0:
            raise leaf.error(f"{describe(value)} cannot be converted to {dtype}")
        try:
            return scalars.convert(float(value), dtype)
        except OverflowError:
            raise leaf.error(f"an integer beyond all floats is no {dtype}") from None
    is_truth = str(getattr(value, "dtype", "")).endswith("bool") and np.ndim(value) == 0
    try:
        if dtype.is_bool:
            return bool(value if is_truth else operator.index(value))
    except TypeError:
        raise leaf.error(f"{describe(value)} cannot be converted to {dtype}") from None
    if isinstance(value, np.bool_):
        value = bool(value)
    try:
        number = operator.index(value)
    except TypeError:  # also of arrays: of floats, or of more than one element
        advice = "convert it with `int(...)`" if isinstance(value, (float, np.floating)) else ""
        raise leaf.error(f"{describe(value)} cannot be converted to {dtype}", advice) from None
    low, high = scalars.integer_range(dtype)
    if not low <= number <= high:
        raise leaf.error(f"{number} is out of the range of {dtype}, {low} to {high}")
    return number


MOST = 2**31 - 1
"""The most elements of an axis: indices are i32."""


def check_extents(leaf: Leaf, shape: Sequence[int]) -> None:
    """Check that an i32 can hold the indices of each axis."""
    for axis, extent in enumerate(shape):
        if extent > MOST:
            problem = f"axis {axis} has {extent} elements, and indices are i32"
            raise leaf.error(problem, f"an axis has at most {MOST} elements: use more axes")


def to_array(value: Any) -> np.ndarray[Any, Any]:
    """Convert a vector or matrix argument of any type to a new numpy array."""
    return np.array(value.to_list() if hasattr(value, "to_list") else value)


def components(
    strict: Callable[[Any], Sequence[Any]], kind: ScalarType, value: Any
) -> Sequence[Any]:
    """The components of a vector or matrix argument, in row-major order.

    They are not checked if the argument has the right shape, since packing rejects anything but
    numbers. ``strict`` converts the others.
    """
    shape = kind.element_shape
    if isinstance(value, (Matrix, np.ndarray)) and not is_masked(value):
        if value.shape == shape:
            array = value.to_numpy() if isinstance(value, Matrix) else value
            numbers: list[Any] = array.ravel().tolist()
            return numbers
    elif type(value) in (tuple, list) and len(shape) == 1 and len(value) == shape[0]:
        return tuple(value)
    return strict(value)


def flatten(leaf: Leaf, kind: ScalarType, value: Any) -> list[Any]:
    """The components of a vector or matrix argument, in row-major order, checked."""
    if is_masked(value):
        raise leaf.error("kernels have no masked arrays", MaskedArrayGiven.remedy)
    try:
        array = to_array(value)
    except (ValueError, TypeError):
        array = np.empty(())
    if array.dtype.kind in "US":  # a string among numbers, which makes strings of them
        array = np.array(value, object)
    if array.shape != kind.element_shape and array.shape != (*kind.element_shape, 1):
        raise leaf.error(
            f"required a value of shape {kind.element_shape}, but {describe(value)}"
            f" of shape {array.shape} is given"
        )
    return [check_scalar(leaf, item, kind.dtype) for item in array.ravel().tolist()]


def needs_copy(array: np.ndarray[Any, Any]) -> bool:
    """Whether kernels cannot access a numpy array: its bytes are swapped, or its addresses
    unaligned.
    """
    return not (array.dtype.isnative and array.flags.aligned)


def torch_address(tensor: Any, companion: Companion) -> int:
    """The address of a row-major tensor, or of its gradient, which is made row-major."""
    return _torch_memory(torch_companion(tensor, companion, strided=False))


def torch_strided_address(tensor: Any, companion: Companion) -> int:
    """The address of a tensor of any strides, or of its gradient."""
    return _torch_memory(torch_companion(tensor, companion, strided=True))


def _torch_memory(tensor: Any) -> int:
    """The address of a tensor, which has one unless it stands for others, or has no elements.

    Raises:
        ValueError: it has no memory.
    """
    try:
        address: int = tensor.data_ptr()
    except RuntimeError as error:
        raise ValueError from error
    if not address and tensor.numel():
        raise ValueError
    return address


def check_torch_memory(leaf: Leaf, tensor: Any) -> None:
    """Check that the elements of a tensor are in memory.

    Raises:
        OctantsArgumentError: it stands for others, or for zeros.
    """
    try:
        _torch_memory(tensor)
    except ValueError:
        problem = "the torch tensor has no memory: it stands for zeros, or for other tensors"
        advice = "pass `x.clone()` of zeros; while torch traces or batches a program, call the"
        raise leaf.error(problem, f"{advice} kernel by `qd.torch.function`") from None


def torch_companion(tensor: Any, companion: Companion, *, strided: bool) -> Any:
    """A tensor, or its gradient, which is created if a kernel could not write the present one.

    Unless it may be ``strided``, a gradient is row-major.
    """
    if companion is Companion.PRIMAL:
        return tensor
    gradient = _torch_gradient(tensor)
    fits = not overlaps_itself(gradient.shape, gradient.stride(), 1)
    if not (fits if strided else gradient.is_contiguous()):
        tensor.grad = gradient.contiguous()
    return tensor.grad


def strides_of(kind: str, value: Any, companion: Companion) -> tuple[int, ...]:
    """The strides of an array in bytes, or those of the gradient of a tensor, which must exist."""
    if kind == "torch":
        return torch_strides(value if companion is Companion.PRIMAL else value.grad)
    return interface_strides(value) if kind == "interface" else tuple(value.strides)


def torch_strides(tensor: Any) -> tuple[int, ...]:
    """The strides of a tensor in bytes."""
    size = tensor.element_size()
    return tuple(stride * size for stride in tensor.stride())


def torch_type(tensor: Any) -> str:
    """The name of the type of a tensor's elements."""
    return str(tensor.dtype).removeprefix("torch.")


def numpy_type(name: str) -> np.dtype[Any] | None:
    """The type of numbers of that name; None if numpy has none."""
    try:
        dtype = np.dtype(name)
    except TypeError:
        return None
    return dtype if dtype.kind in "biuf" else None


def device_address(
    device: Device, leaf: Leaf, strided: bool, value: Any, companion: Companion
) -> int:
    """The address of an array of another library in a device's memory, or of its gradient."""
    given = torch_companion(value, companion, strided=strided)
    address = device.address_of(given)
    if address is None:
        raise not_on_device(leaf, value)
    return address


def not_on_device(leaf: Leaf, value: Any) -> OctantsError:
    """The error for an array of another library in memory that kernels cannot access."""
    device = getattr(value, "device", "another device")
    problem = f"the {describe(value).split()[-1]} is on {device}, where kernels do not run"
    move = "x.cpu()" if is_torch(type(value)) else 'jax.device_put(x, jax.devices("cpu")[0])'
    library = "" if is_torch(type(value)) else " (of JAX)"
    return leaf.error(problem, f"pass `{move}`{library}, or an array on the device of `init`")


def is_on_other_device(value: Any) -> bool:
    """Whether DLPack reports that an array is in no memory of the CPU."""
    tell = getattr(value, "__dlpack_device__", None)
    return tell is not None and tell()[0] not in _OF_THE_CPU


def interface(value: Any) -> Mapping[str, Any]:
    """The ``__cuda_array_interface__`` of an array."""
    given: Mapping[str, Any] = value.__cuda_array_interface__
    return given


def is_read_only(value: Any) -> bool:
    """Whether an array is read-only."""
    if isinstance(value, NdarrayHandle):
        return value.is_read_only
    if isinstance(value, np.ndarray):
        return not value.flags.writeable
    return has_interface(type(value)) and not is_torch(type(value)) and interface(value)["data"][1]


def interface_strides(value: Any) -> tuple[int, ...]:
    """The strides in bytes of an array with a ``__cuda_array_interface__``."""
    given = interface(value)
    if given.get("strides") is not None:
        return tuple(given["strides"])
    return row_major(given["shape"], np.dtype(given["typestr"]).itemsize)


def with_gradient(tensor: Any) -> int:
    """Create the gradient of a tensor that requires one, for programs that read it after a launch.

    Returns:
        0, the address for a kernel that does not access the gradient.
    """
    if tensor.requires_grad and tensor.is_leaf and tensor.grad is None:
        _torch_gradient(tensor)
    return 0


def _torch_gradient(tensor: Any) -> Any:
    """The gradient of a tensor, created as zeros if there is none."""
    if tensor.grad is None:
        tensor.grad = tensor.detach().new_zeros(tensor.shape)
    return tensor.grad
