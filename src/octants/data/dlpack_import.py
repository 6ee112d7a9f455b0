"""Ndarrays in the memory of other libraries' arrays, imported by DLPack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octants.data import current_runtime, torch_and_dlpack_conversion
from octants.data.axes import check_extents
from octants.data.element_types import needed_companions, require_differentiable
from octants.data.errors import CannotShare, WrongArray, WrongArrayOption, describe
from octants.data.ndarray import Ndarray, class_of
from octants.deferred_import import Deferred
from octants.runtime.device import Device
from octants.types import scalars
from octants.types.companions import Companion
from octants.types.layouts import row_major
from octants.types.scalars import DType

if TYPE_CHECKING:
    from octants.runtime.interop import dlpack
else:
    dlpack = Deferred("octants.runtime.interop.dlpack")

_WHAT = "from_dlpack()"


def from_dlpack(
    source: Any, *, element_dim: int = 0, needs_grad: bool = False, needs_dual: bool = False
) -> Ndarray:
    """An ndarray in the memory of an array of another library, which offers ``__dlpack__``.

    Nothing is copied: what one writes the other reads, and the memory stays as long as either needs
    it. If the other library writes the memory under a tape, see `mark_written`; torch counts
    the writes to its tensors on a GPU itself.

    Example::

        values = np.zeros(100, np.float32)
        x = qd.from_dlpack(values)  # kernels and numpy share the memory

    Args:
        source: an array that is row-major, in the memory that kernels use: that of the CPU, or of
            the GPU of `init`, where the work that its library has queued on it is done first. If it
            is read-only, the host and kernels can only read the ndarray.
        element_dim: how many of the last axes are those of an element: 1 for vectors, 2 for
            matrices.
        needs_grad: allocate `x.grad`, of the same shape, in memory of Octants.
        needs_dual: allocate `x.dual`, likewise.

    Raises:
        OctantsValueError: the memory cannot be shared.
        OctantsRuntimeTypeError: `source` is no such array.
    """
    if element_dim not in (0, 1, 2):
        advice = "elements are numbers, vectors or matrices"
        raise WrongArrayOption(
            _WHAT, "element_dim", f"cannot be {describe(element_dim)}", advice
        ).at()
    device = _device_of(source)
    needed = needed_companions(needs_grad, needs_dual)
    return ndarray_of(_import(device, source), device, element_dim, needed)


def ndarray_of(
    part: dlpack.DlpackView, device: Device, element_dim: int, needed_arrays: tuple[Companion, ...]
) -> Ndarray:
    """An ndarray in the memory of a view, whose elements have the last axes.

    Raises:
        OctantsValueError: its elements are not row-major.
        OctantsRuntimeTypeError: they are of a type that the language has not.
    """
    dtype, rank = _dtype(part), len(part.shape) - element_dim
    if rank < 0:
        needed = f"an array of at least {element_dim} axes"
        raise WrongArray(_WHAT, f"one of shape {part.shape}", needed).at()
    _check_order(part)
    require_differentiable("ndarray", dtype, needed_arrays)
    shape, element_shape = part.shape[:rank], part.shape[rank:]
    check_extents(_WHAT, shape)
    return class_of(element_shape)(
        dtype, shape, element_shape, needed_arrays, imported=part, device=device.number
    )


def _device_of(source: Any) -> Device:
    """The device of this kind that DLPack reports the array on, else that of `init`."""
    devices, where = current_runtime.runtime().devices, dlpack.device_of(source)
    own, number = devices.default.dlpack_device
    is_other = where is not None and where[0] == own == dlpack.GPU and where[1] != number
    return devices.at(where[1]) if is_other and where is not None else devices.default


def _import(device: Device, source: Any) -> dlpack.DlpackView:
    where = dlpack.device_of(source)
    if where is None or not hasattr(source, "__dlpack__"):
        needed = "an array that offers `__dlpack__`"
        raise WrongArray(_WHAT, describe(source), needed).at()
    if where[0] in (dlpack.CPU[0], dlpack.PINNED) and device.shares_memory:
        values = torch_and_dlpack_conversion.from_dlpack(_WHAT, source)
        address = values.__array_interface__["data"][0]
        is_read_only = not values.flags.writeable
        layout = address, values.shape, values.strides, values.dtype
        return dlpack.DlpackView(*layout, dlpack.CPU, is_read_only, (values, source))
    part: dlpack.DlpackView | None = device.import_array(source, "the array")
    if part is None:
        problem = (
            f"the array is in the memory of {_device_name(where)}, and kernels run on {device!r}"
        )
        advice = "copy it to the memory of the device first, or pass it to a kernel as it is"
        raise CannotShare(_WHAT, problem, advice).at()
    return part


def _device_name(where: tuple[int, int]) -> str:
    kind, number = where
    names = {dlpack.CPU[0]: "the CPU", dlpack.PINNED: "the CPU", dlpack.GPU: f"GPU {number}"}
    return names.get(kind, f"device {where}")


def _dtype(part: dlpack.DlpackView) -> DType:
    try:
        if part.dtype is not None:
            return scalars.from_numpy(part.dtype)
    except KeyError:
        pass
    given = "one of a type that the language has not"
    given = given if part.dtype is None else f"one of {part.dtype}"
    raise WrongArray(_WHAT, given, "an array of numbers", "convert it first").at()


def _check_order(part: dlpack.DlpackView) -> None:
    assert part.dtype is not None
    wanted = row_major(part.shape, part.dtype.itemsize)
    axes = zip(part.shape, part.strides, wanted, strict=True)
    if 0 not in part.shape and any(n > 1 and has != needs for n, has, needs in axes):
        problem = f"its elements of shape {part.shape} are not row-major"
        advice = "make it so (`x.contiguous()`), or pass it to a kernel as it is"
        raise CannotShare(_WHAT, problem, advice).at()
