"""Wraps arrays of numpy and torch as stored arrays, for tapes."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from octants import driver
from octants.data import torch_and_dlpack_conversion
from octants.data.tape_array_protocol import StoredArray
from octants.launch.kernel_device import device_of_array
from octants.runtime.arguments.parameters import is_torch
from octants.runtime.memory.array_access import HOST, Parts, parts_of
from octants.runtime.memory.host import address_of
from octants.types.companions import Companion

Array = np.ndarray[Any, Any]


class ForeignArray(StoredArray):
    """An array with any strides, whose memory another library owns.

    `parts` gives access to it; see `runtime.memory.array_access`. `address` is that of the first
    element.
    """

    def __init__(
        self, owner: Any, elements: Array, parts: Parts = HOST, address: int | None = None
    ) -> None:
        self.owner = owner
        self.elements = elements
        self.parts = parts
        self.address = address_of(elements) if address is None else address
        self._layout = _layout_of(owner)
        self._identity: Hashable = None
        self._gradient: ForeignArray | None = None
        self._extent: tuple[int, int] | None = None

    def companion_array(self, companion: Companion) -> Any:
        if companion is Companion.PRIMAL:
            return self
        gradient = getattr(self.owner, "grad", None)
        if companion is not Companion.ADJOINT or gradient is None:
            return None
        known = self._gradient
        if known is None or known.owner is not gradient or not known.is_current:
            known = self._gradient = foreign_array(gradient)
        return known

    @property
    def is_current(self) -> bool:
        """Whether the owner has the memory, the shape and the strides that it had."""
        return _layout_of(self.owner) == self._layout

    @property
    def shared_version(self) -> int:
        return torch_and_dlpack_conversion.writes_of(self.owner)

    @property
    def identity(self) -> Hashable:
        if self._identity is None:
            elements = self.elements
            self._identity = self.address, elements.shape, elements.strides, elements.dtype.str
        return self._identity

    @property
    def extent(self) -> tuple[int, int]:
        if self._extent is None:
            self._extent = self._find_extent()
        return self._extent

    def _find_extent(self) -> tuple[int, int]:
        first, elements = self.address, self.elements
        if elements.flags.c_contiguous:
            return first, first + elements.nbytes
        steps = zip(elements.shape, elements.strides, strict=True)
        reach = [(extent - 1) * stride for extent, stride in steps]
        before, after = (sum(f(step, 0) for step in reach) for f in (min, max))
        return first + before, first + after + elements.itemsize

    @property
    def nbytes(self) -> int:
        return int(self.elements.nbytes)

    def snapshot(self) -> Any:
        return self.parts.save(self.elements)

    def read(self) -> Array:
        return self.parts.read(self.elements)

    def restore(self, snapshot: Any) -> None:
        self.parts.restore(self.elements, snapshot)

    def clear(self, region: tuple[int, ...] = ()) -> None:
        index: Any = (*region, Ellipsis)
        self.parts.clear(self.elements[index])


def _layout_of(owner: Any) -> Hashable:
    """The properties of a tensor that change in place, by `w.data = ...` or `w.t_()`."""
    if not is_torch(type(owner)):
        return None
    return owner.data_ptr(), owner.shape, owner.stride()


def foreign_array(array: Any) -> ForeignArray | None:
    """Wrap an array of numpy, torch, or another library; None for anything else.

    The elements of an array of numpy keep the type and the shape that it has now.
    """
    if isinstance(array, np.ndarray):
        return ForeignArray(array, array.view(np.ndarray))
    if is_torch(type(array)) and array.device.type == "cpu":
        return ForeignArray(array, array.detach().numpy(), HOST, array.data_ptr())
    number = device_of_array(array)
    device = driver.device() if number is None else driver.device_at(number)
    parts = parts_of(device)
    found = parts.find(array)
    return None if found is None else ForeignArray(array, found.part, parts)
