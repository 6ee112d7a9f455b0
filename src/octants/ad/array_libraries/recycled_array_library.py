"""Arrays of Octants that are used again in each call of a step, for an `ArrayFunction`.

A tape is fast if it records the same launches on the same arrays as one before it
(`ad.overwrites.repeated_tapes`). So a step that is called again and again has ndarrays of its own:
a call copies its inputs into them, and its outputs from them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from octants.ad.array_libraries.array_library_protocol import Shaped
from octants.ad.array_libraries.device_array_library import DeviceArray, DeviceArrays
from octants.data.ndarray import Ndarray, make_ndarray
from octants.runtime.device import Device
from octants.types.companions import Companion

PRIMAL, ADJOINT = Companion.PRIMAL, Companion.ADJOINT


_REFERENCES = max(map(sys.getrefcount, [object()]))
"""The count of references to an object that is in one list."""


class RecycledArrays(DeviceArrays):
    """Arrays at addresses of one device, which kernels access in ndarrays that are used again.

    `begin` begins a call; its arrays are valid until the next one. An address of None stands for
    zeros.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._known: list[Ndarray] = []
        self._used = 0

    def begin(self) -> None:
        """Begin a call, which uses the ndarrays of the one before it again, in the same order."""
        self._used = 0

    def end(self) -> bool:
        """End a call; return whether there must be no other one.

        There must be none if another library has shared the memory of an ndarray. One that the
        program has kept is not used again.
        """
        if any(each.explicit_identity is None for each in self._known):
            self._known.clear()
            return True
        if max(map(sys.getrefcount, self._known), default=0) > _REFERENCES:
            self._known.clear()
        return False

    def at(self, address: Any, what: Shaped, *, is_read_only: bool = False) -> DeviceArray:
        """The array at an address."""
        number = self._device.number
        return DeviceArray(address, what.shape, what.dtype, number, is_read_only=is_read_only)

    def copy(self, array: Any, dtype: np.dtype[Any] | None = None) -> Any:
        """The array to be written: kernels access a copy anyway."""
        source = array if dtype is None else array.astype(dtype)
        what = Shaped(source.shape, source.dtype)
        return self.at(source.address, what)

    def zeros(self, what: Shaped, like: Sequence[Any]) -> Any:  # noqa: ARG002
        return self.at(None, what)

    def begin_gradient(self, made: Ndarray, array: Any, adjoint: Any) -> None:
        self.store(made.address(ADJOINT), adjoint, Shaped(array.shape, array.dtype))

    def ndarray(self, array: Any, element_dim: int, needs_grad: bool) -> Ndarray:
        rank = len(array.shape) - element_dim
        shape, element_shape = array.shape[:rank], array.shape[rank:]
        number, self._used = self._used, self._used + 1
        made = self._known[number] if number < len(self._known) else None
        if (
            made is None
            or (made.shape, made.element_shape) != (shape, element_shape)
            or made.has_grad() != needs_grad
            or (made.dtype.numpy, made.is_read_only) != (array.dtype, array.is_read_only)
        ):
            made = make_ndarray(
                array.dtype, shape, element_shape=element_shape, needs_grad=needs_grad
            )
            made.is_read_only = array.is_read_only
            self._known[number:] = [made]
        self.store(made.address(PRIMAL), array, Shaped(array.shape, array.dtype))
        return made

    def store(self, address: int, array: Any, what: Shaped) -> None:
        """Store the elements of an array, or zeros, at an address, as an array of another type."""
        nbytes = what.dtype.itemsize * what.size
        if not nbytes:
            return
        source = None if array is None else array.astype(what.dtype).address
        if source is None:
            self._device.clear(address, nbytes)
        else:
            self._device.copy(address, source, nbytes)

    def result(self, argument: Any, array: Any) -> Any:  # noqa: ARG002
        return DeviceArray.of(argument)
