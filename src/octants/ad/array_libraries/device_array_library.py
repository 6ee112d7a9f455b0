"""Arrays in the memory of a GPU, which a library names by addresses, for an `ArrayFunction`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from octants.ad.array_libraries.array_library_protocol import ArrayLibrary, Shaped
from octants.data import current_runtime
from octants.data.dlpack_import import ndarray_of
from octants.data.element_types import needed_companions
from octants.data.ndarray import Ndarray, make_ndarray
from octants.runtime.device import Device
from octants.runtime.interop.dlpack import DlpackView
from octants.types.companions import Companion
from octants.types.layouts import row_major


class DeviceArray:
    """A row-major array in the memory of a device.

    Args:
        address: where its elements are.
        shape: its extents.
        dtype: the type of its elements.
        device: the number of the device; None: it is found by the address.
        owner: keeps the memory alive; None: the caller does, as long as it uses the array.
        is_read_only: whether kernels must not write it.
    """

    def __init__(
        self,
        address: int,
        shape: Sequence[int],
        dtype: np.dtype[Any],
        device: int | None = None,
        owner: Any = None,
        *,
        is_read_only: bool = False,
    ) -> None:
        self.address = address
        self.shape = tuple(shape)
        self.dtype = dtype
        self._owner = owner
        self.is_read_only = is_read_only
        if device is None:
            default = current_runtime.device()
            found = default.number_of(self)
            device = default.number if found is None else found
        self.device = device

    @classmethod
    def of(cls, ndarray: Ndarray) -> DeviceArray:
        """The elements of an ndarray, in its memory."""
        shape = (*ndarray.shape, *ndarray.element_shape)
        address, dtype = ndarray.address(Companion.PRIMAL), np.dtype(ndarray.dtype.numpy)
        return cls(address, shape, dtype, ndarray.device, ndarray)

    @classmethod
    def from_numpy(cls, values: np.ndarray[Any, Any], device: int) -> DeviceArray:
        """A copy of an array of the host on a device."""
        made = make_ndarray(values.dtype, values.shape, device=device)
        made.from_numpy(values)
        return cls.of(made)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return self.size * self.dtype.itemsize

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The description that other libraries, and other parts of Octants, read."""
        data = self.address, self.is_read_only
        return {"version": 3, "shape": self.shape, "typestr": self.dtype.str, "data": data}

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> DeviceArray:
        """A part: one of the first axis, some in a row, or with None all, behind a new axis."""
        if key is None:
            return self._part(self.address, (1, *self.shape))
        step = self.dtype.itemsize * math.prod(self.shape[1:])
        if isinstance(key, slice):
            first, end, _ = key.indices(len(self))
            shape = max(0, end - first), *self.shape[1:]
            return self._part(self.address + step * first, shape)
        return self._part(self.address + step * key, self.shape[1:])

    def _part(self, address: int, shape: tuple[int, ...]) -> DeviceArray:
        options = {"is_read_only": self.is_read_only}
        return DeviceArray(address, shape, self.dtype, self.device, self, **options)

    def assign(self, other: DeviceArray | None) -> None:
        """Copy the elements of an array of the same shape; None: zeros."""
        device = _device(self.device)
        if self.nbytes and other is None:
            device.clear(self.address, self.nbytes)
        elif self.nbytes and other is not None:
            device.copy(self.address, other.astype(self.dtype).address, self.nbytes)

    def astype(self, dtype: np.dtype[Any]) -> DeviceArray:
        """The array, or one of another type with its elements, which the host converts."""
        if dtype == self.dtype:
            return self
        return DeviceArray.from_numpy(self.ndarray().to_numpy().astype(dtype), self.device)

    def item(self) -> Any:
        """The only element."""
        return self.ndarray().to_numpy().item()

    def __float__(self) -> float:
        return float(self.item())

    def tolist(self) -> Any:
        """The elements, in lists."""
        return self.ndarray().to_numpy().tolist()

    def ndarray(self, element_dim: int = 0, *, needs_grad: bool = False) -> Ndarray:
        """An ndarray in this memory, whose elements have the last axes."""
        device = _device(self.device)
        view = DlpackView(
            self.address,
            self.shape,
            row_major(self.shape, self.dtype.itemsize),
            self.dtype,
            device.dlpack_device,
            self.is_read_only,
            (self._owner, self),
        )
        made = ndarray_of(view, device, element_dim, needed_companions(needs_grad, False))
        made.is_untracked = False  # nothing writes the array while the function runs
        return made


class DeviceArrays(ArrayLibrary):
    """Arrays in the memory of GPUs, which kernels use where they are."""

    def is_array(self, value: Any) -> bool:
        return isinstance(value, DeviceArray)

    def shaped(self, array: Any) -> Shaped:
        return Shaped(array.shape, array.dtype)

    def copy(self, array: Any, dtype: np.dtype[Any] | None = None) -> Any:
        return self.join([array.astype(dtype or array.dtype)[None]])[0]

    def of_number(self, number: Any, like: Any) -> Any:
        return DeviceArray.from_numpy(np.array(number, like.dtype).reshape(like.shape), like.device)

    def zeros(self, what: Shaped, like: Sequence[Any]) -> Any:
        device = _device(like[0].device) if like else current_runtime.device()
        memory = device.allocate(max(1, what.size * what.dtype.itemsize), "an array of a function")
        return DeviceArray(memory.address, what.shape, what.dtype, device.number, memory)

    def assign(self, target: Any, values: Any) -> None:
        target.assign(values if self.is_array(values) else None)

    def join(self, arrays: Sequence[Any]) -> Any:
        first = arrays[0]
        shape = sum(map(len, arrays)), *first.shape[1:]
        found = self.zeros(Shaped(shape, first.dtype), arrays)
        end = 0
        for each in arrays:
            found[end : end + len(each)].assign(each)
            end += len(each)
        return found

    def argument(
        self,
        array: Any,
        element_dim: int,
        adjoint: Any = None,
        *,
        observed: bool = False,  # noqa: ARG002 (ndarrays notice writes of the host)
    ) -> Any:
        made = self.ndarray(array, element_dim, adjoint is not None)
        if adjoint is not None:
            self.begin_gradient(made, array, None if adjoint is True else adjoint)
        return made

    def begin_gradient(self, made: Ndarray, array: Any, adjoint: Any) -> None:  # noqa: ARG002
        """Begin the gradient of the ndarray for an array with an adjoint; None: with zeros."""
        if adjoint is not None:
            DeviceArray.of(made.grad).assign(adjoint)

    def ndarray(self, array: Any, element_dim: int, needs_grad: bool) -> Ndarray:
        found: Ndarray = array.ndarray(element_dim, needs_grad=needs_grad)
        return found

    def of_ndarray(self, ndarray: Ndarray, like: Any) -> Any:  # noqa: ARG002
        return DeviceArray.of(ndarray)

    def result(self, argument: Any, array: Any) -> Any:  # noqa: ARG002
        return array

    def gradient(self, argument: Any) -> Any:
        return DeviceArray.of(argument.grad)


def _device(number: int) -> Device:
    return current_runtime.runtime().devices.at(number)
