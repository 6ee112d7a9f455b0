"""Ndarrays: row-major arrays that are passed to kernels as arguments."""

from __future__ import annotations

import math
import struct
import weakref
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from octants.data import current_runtime, torch_and_dlpack_conversion
from octants.data.array_base import E, Tensor
from octants.data.axes import check_shape
from octants.data.component_views import HasNoComponents
from octants.data.element_types import (
    check_device,
    check_dtype,
    check_element_shape,
    needed_companions,
    require_differentiable,
)
from octants.data.errors import MissingCompanion
from octants.data.host_element_access import HostWindow, make_window
from octants.data.ndarray_view import BufferView, bounds_of
from octants.data.tree import COMPANION_WORDS
from octants.data.zeroed_device_memory import Storage
from octants.diagnostics.exceptions import OctantsValueError
from octants.internal_members import internal
from octants.lazy_dataclass import dataclass
from octants.runtime.device import Device
from octants.types import enums
from octants.types.companions import Companion
from octants.types.layouts import Layout, Term, row_major
from octants.types.masked_arrays import refuse_masked
from octants.types.matrix_types import matrix, vector
from octants.types.scalars import DType
from octants.types.specialisation_signature import NdarrayHandle, NdarrayType

if TYPE_CHECKING:
    from octants.runtime.interop.dlpack import DlpackView


@dataclass(frozen=True, slots=True)
class NdarrayTypeMetadata:
    """The result of `Ndarray.get_type`; all ndarrays are arrays of structures."""

    element_type: Any
    shape: tuple[int, ...]
    needs_grad: bool
    layout: enums.Layout = enums.Layout.AOS


class Ndarray(Tensor[E], NdarrayHandle):
    """A row-major array of elements: made by `ndarray`, ``Vector.ndarray``, ``Matrix.ndarray``.

    Kernels take it as the argument of a parameter that is annotated with ``types.ndarray()``.
    """

    _kind = "ndarray"

    def __init__(
        self,
        dtype: DType,
        shape: tuple[int, ...],
        element_shape: tuple[int, ...] = (),
        needed: tuple[Companion, ...] = (),
        primal: Ndarray | None = None,
        companion: Companion = Companion.PRIMAL,
        imported: DlpackView | None = None,
        device: int | None = None,
    ) -> None:
        super().__init__()
        if primal is not None or imported is not None:
            self.explicit_identity = None
        self.imported = imported
        self.is_read_only = imported is not None and imported.is_read_only
        self.is_untracked = imported is not None and _may_change_uncounted(imported)
        self.dtype = dtype
        self.shape = shape
        self.element_shape = element_shape
        self.companion = companion
        self._primal = None if primal is None else weakref.ref(primal)
        companions = (Companion.PRIMAL, *needed)
        self.argument_type = NdarrayType(dtype, len(shape), element_shape, companions)
        runtime = current_runtime.runtime()
        found = runtime.device if device is None else runtime.devices.at(device)
        self.device = found.number
        self._storage: Storage | None = self._allocate(found)
        self._companions: dict[Companion, Ndarray] = {
            kind: type(self)(dtype, shape, element_shape, (), self, kind, device=self.device)
            for kind in needed
        }
        memory: Any = self._storage or imported
        address: int = memory.address
        self.head = struct.pack(f"<{len(shape)}qQ", *shape, address)
        self._addresses = {Companion.PRIMAL: address}
        for kind, array in self._companions.items():
            self._addresses[kind] = array._addresses[Companion.PRIMAL]
        runtime.register(self)

    def _allocate(self, device: Device) -> Storage | None:
        """The memory; None if it is imported, since mostly only launches use that."""
        if self.imported is not None:
            return None
        return Storage(device, self.nbytes, f"{self.describe()} of shape {self.shape}")

    def _strides(self) -> tuple[int, ...]:
        return row_major((*self.shape, *self.element_shape), self.dtype.size)

    def _layout(self) -> Layout:
        strides, rank = self._strides(), len(self.shape)
        terms = tuple(Term(axis, 1, 0, strides[axis]) for axis in range(rank))
        return Layout(self.shape, terms, strides[rank:])

    @internal
    def layouts(self) -> Mapping[Companion, Layout]:
        """The layout of the array and of every companion."""
        self.require_alive()
        return dict.fromkeys((Companion.PRIMAL, *self._companions), self._layout())

    @property
    def is_allocated(self) -> bool:
        """Whether the array has memory: as long as it can be used."""
        return self._end is None

    @property
    def extent(self) -> tuple[int, int]:
        """The addresses of the first byte, and past the last one."""
        start = self.address(Companion.PRIMAL)
        return start, start + self.nbytes

    @property
    def nbytes(self) -> int:
        """The bytes of the elements."""
        return self.dtype.size * math.prod((*self.shape, *self.element_shape))

    def _open(self) -> HostWindow:
        storage = self._storage
        if storage is None:
            assert self.imported is not None
            storage = Storage.of_others(self._device(), self.imported, self.nbytes)
        return make_window(storage, 0, self._layout(), self.dtype, self.element_shape)

    def _reopen(self) -> HostWindow:
        self.require_alive()
        self._opened = self._open()
        return self._opened

    def retire(self, *reason: Any) -> None:
        """Give up the memory; any later use is an error."""
        super().retire(*reason)
        self._addresses.clear()
        self.imported = self._storage = None
        self.__dict__.pop("head", None)

    # -- companions -----------------------------------------------------------------------------

    @property
    def primal(self) -> Ndarray:
        """The array whose gradient or dual this is, while it exists; itself if it is neither."""
        primal = None if self._primal is None else self._primal()
        return self if primal is None else primal

    def companion_array(self, companion: Companion) -> Ndarray | None:
        """The companion; None if it was not asked for."""
        return self if companion is Companion.PRIMAL else self._companions.get(companion)

    def get_type(self) -> NdarrayTypeMetadata:
        """The type of the elements, the shape, and whether there is a gradient, in one object."""
        element: Any = self.dtype
        if len(self.element_shape) == 1:
            element = vector(self.element_shape[0], self.dtype)
        elif self.element_shape:
            rows, columns = self.element_shape
            element = matrix(rows, columns, self.dtype)
        return NdarrayTypeMetadata(element, self.shape, self.has_grad())

    def has_grad(self) -> bool:
        """Whether there is a gradient."""
        return Companion.ADJOINT in self._companions

    def has_dual(self) -> bool:
        """Whether there is a dual."""
        return Companion.TANGENT in self._companions

    @internal
    def address(self, companion: Companion) -> int:
        """The address of the first element of the array, or of a companion."""
        try:
            return self._addresses[companion]
        except KeyError:
            self.require_alive()
            raise MissingCompanion(self.describe(), *COMPANION_WORDS[companion]).at() from None

    # -- the memory of others -------------------------------------------------------------------

    @property
    def identity(self) -> Hashable:
        """A key that two arrays share exactly if they are the same memory."""
        if self.imported is None:
            return super().identity
        return self.address(Companion.PRIMAL), (*self.shape, *self.element_shape), self.dtype

    @property
    def shared_version(self) -> int:
        """The number of writes through torch's tensors on this memory, as torch counts them."""
        if self.imported is None:
            return super().shared_version
        return (
            torch_and_dlpack_conversion.writes_of(self.imported.owner[1]) + super().shared_version
        )

    # -- elements -------------------------------------------------------------------------------

    @property
    def ndim(self) -> int:
        """The number of axes, without those of the element."""
        return len(self.shape)

    @property
    def element_type(self) -> DType:
        """The scalar type of the elements."""
        return self.dtype

    def _slice(self, key: Any) -> Any:
        """``x[i:j]`` of one axis: a view of its elements; else a copy, as of fields."""
        self.require_alive()
        if type(key) is slice and len(self.shape) == 1:
            return BufferView(self, *bounds_of(self.shape[0], key))
        return super()._slice(key)

    # -- copies ---------------------------------------------------------------------------------

    def to(self, device: int) -> Ndarray[E]:
        """The array on a device: itself if it is there, else a copy, with a gradient or a dual
        where this has one.

        The copy is one from GPU to GPU. Under a tape, the adjoint of the copy is added to that of
        this array. The gradient and the dual of the copy are zero.

        Args:
            device: The number of the GPU.

        Raises:
            OctantsValueError: There is no such device.
        """
        self.require_alive()
        check_device("to()", device)
        if device == self.device:
            return self
        needed = tuple(self._companions)
        copy = type(self)(self.dtype, self.shape, self.element_shape, needed, device=device)
        copy.copy_from(self)
        return copy

    def __reduce_ex__(self, _: Any) -> Any:
        """A copy, with copies of its gradient and its dual, in the memory of where it arrives.

        There it is on the device of `init`, as here, or on the one with the same number.
        """
        is_elsewhere = self.device != current_runtime.device().number
        return _unpickled, (*self._contents(), self.device if is_elsewhere else None)

    def _contents(self) -> tuple[Any, Any, Any, Any, Any]:
        self.require_alive()
        companions = {kind: array.to_numpy() for kind, array in self._companions.items()}
        return self.dtype, self.shape, self.element_shape, self.to_numpy(), companions

    def __copy__(self) -> Ndarray[E]:
        return _copied(*self._contents(), self.device)

    def __deepcopy__(self, memo: object) -> Ndarray[E]:
        return self.__copy__()

    def describe(self) -> str:
        """The array in the words of a message."""
        if self.companion is Companion.PRIMAL:
            return super().describe()
        return f"{COMPANION_WORDS[self.companion][0]} of {super().describe()}"

    def __repr__(self) -> str:
        element = f", elements of {self.element_shape}" if self.element_shape else ""
        if self._end is not None:
            return f"<qd.ndarray {self.dtype} {self.shape}{element}, no longer usable>"
        return f"<qd.ndarray {self.dtype} {self.shape}{element}{self.values_text()}>"


class ScalarNdarray(Ndarray[E]):
    """An ndarray of numbers."""


class VectorNdarray(HasNoComponents, Ndarray[E]):
    """An ndarray of vectors."""

    @property
    def n(self) -> int:
        """The number of elements of a vector."""
        return self.element_shape[0]


class MatrixNdarray(HasNoComponents, Ndarray[E]):
    """An ndarray of matrices."""

    @property
    def n(self) -> int:
        """The number of rows."""
        return self.element_shape[0]

    @property
    def m(self) -> int:
        """The number of columns."""
        return self.element_shape[1]


_CLASSES = (ScalarNdarray, VectorNdarray, MatrixNdarray)


def _may_change_uncounted(imported: DlpackView) -> bool:
    """Whether others may write imported memory, and nothing counts these writes.

    Torch counts the writes through its tensors, but not those through `t.numpy()` or `t.data`: in
    memory of the host contents are compared, which costs less there. What is read-only is constant,
    except for numpy, where the memory may have another array that is not.
    """
    source = imported.owner[1]
    if torch_and_dlpack_conversion.is_torch_tensor(source):
        return bool(source.device.type == "cpu")
    return isinstance(source, np.ndarray) or not imported.is_read_only


def class_of(element_shape: tuple[int, ...]) -> type[Ndarray]:
    """The class of ndarrays whose elements have a shape."""
    return _CLASSES[len(element_shape)]


def _unpickled(
    dtype: DType,
    shape: tuple[int, ...],
    element_shape: tuple[int, ...],
    values: Any,
    companions: Mapping[Companion, Any],
    device: int | None = None,
) -> Ndarray:
    """The unpickled array; on the device of `init` if there is none with the number."""
    if device is not None:
        try:
            current_runtime.runtime().devices.at(device)
        except OctantsValueError:
            device = None
    return _copied(dtype, shape, element_shape, values, companions, device)


def _copied(
    dtype: DType,
    shape: tuple[int, ...],
    element_shape: tuple[int, ...],
    values: Any,
    companions: Mapping[Companion, Any],
    device: int | None,
) -> Ndarray:
    """A new array on a device with these contents."""
    needed = tuple(companions)
    copy = class_of(element_shape)(dtype, shape, element_shape, needed, device=device)
    copy.from_numpy(values)
    for kind, content in companions.items():
        copy._companions[kind].from_numpy(content)
    return copy


@overload
def ndarray(
    dtype: type[E],
    shape: Any,
    needs_grad: bool = False,
    needs_dual: bool = False,
    device: int | None = None,
) -> Ndarray[E]: ...
@overload
def ndarray(
    dtype: Any,
    shape: Any,
    needs_grad: bool = False,
    needs_dual: bool = False,
    device: int | None = None,
) -> Ndarray: ...
def ndarray(
    dtype: Any,
    shape: Any,
    needs_grad: bool = False,
    needs_dual: bool = False,
    device: int | None = None,
) -> Ndarray:
    """Create a row-major array, which kernels take as an argument; all elements are zero.

    Example::

        @qd.kernel
        def double(x: qd.types.ndarray(qd.f32, 1)):
            for i in x:
                x[i] *= 2.0

        x = qd.ndarray(qd.f32, 100, needs_grad=True)
        double(x)

    Args:
        dtype: a scalar, vector or matrix type.
        shape: an integer or a tuple of integers; extents may be 0.
        needs_grad: allocate ``x.grad``, of the same shape; needs a floating-point type.
        needs_dual: allocate ``x.dual``, likewise.
        device: the number of the GPU, where there are several; by default that of `init`. Kernels
            run on the GPU that their arrays are on.

    Raises:
        OctantsRuntimeTypeError: for a wrong dtype.
        OctantsValueError: for a wrong shape, or a device that there is not.
    """
    return make_ndarray(dtype, shape, needs_grad=needs_grad, needs_dual=needs_dual, device=device)


def zeros(
    shape: Any,
    dtype: Any = float,
    needs_grad: bool = False,
    needs_dual: bool = False,
    device: int | None = None,
) -> Ndarray:
    """Create an ndarray of zeros, with the arguments in the order of numpy; see `ndarray`."""
    return make_ndarray(dtype, shape, needs_grad=needs_grad, needs_dual=needs_dual, device=device)


def array(
    values: Any, dtype: Any = None, needs_grad: bool = False, device: int | None = None
) -> Ndarray:
    """Create an ndarray from a number, a list of numbers, or a numpy array.

    Example::

        x = qd.array([[0.5, 1.5], [2.5, 3.5]], dtype=qd.f64, needs_grad=True)

    Args:
        values: a number, nested lists of equal lengths, or a numpy array.
        dtype: the type of the elements. Without it, Python floats get the default float type,
            Python integers the default integer type, and numpy arrays keep theirs.
        needs_grad: allocate ``x.grad``, of the same shape.
        device: the number of the GPU; see `ndarray`.

    Raises:
        OctantsRuntimeTypeError: for anything but an array of numbers.
    """
    refuse_masked("array()", values)
    found = np.asarray(values)
    if dtype is None and not isinstance(values, (np.ndarray, np.generic)):
        dtype = {"f": float, "i": int}.get(found.dtype.kind)
    kind = found.dtype.newbyteorder("=") if dtype is None else dtype
    result = make_ndarray(kind, found.shape, needs_grad=needs_grad, device=device)
    result.from_numpy(found)
    return result


def from_numpy(values: Any, needs_grad: bool = False, device: int | None = None) -> Ndarray:
    """Create an ndarray with a copy of the numpy array `values`, of its shape and dtype.

    `needs_grad` allocates `x.grad`, of the same shape. `device` is the number of the GPU.
    """
    refuse_masked("from_numpy()", values)
    return array(np.asarray(values), needs_grad=needs_grad, device=device)


def make_ndarray(
    dtype: Any,
    shape: Any,
    *,
    element_shape: tuple[int, ...] | None = None,
    needs_grad: bool = False,
    needs_dual: bool = False,
    device: int | None = None,
) -> Ndarray:
    """An ndarray of scalars, vectors or matrices; see `ndarray`."""
    scalar, element_shape = check_dtype("ndarray", dtype, element_shape)
    element_shape = check_element_shape("ndarray", element_shape)
    needed = needed_companions(needs_grad, needs_dual)
    require_differentiable("ndarray", scalar, needed)
    extents = check_shape("ndarray", shape, least=0)
    check_device("ndarray", device)
    return class_of(element_shape)(scalar, extents, element_shape, needed, device=device)
