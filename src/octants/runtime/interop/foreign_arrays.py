"""Arrays of other libraries in the memory of a device that the host does not share."""

from __future__ import annotations

from typing import Any

import numpy as np

from octants.runtime.arguments.conversions import interface, interface_strides, torch_strides
from octants.runtime.arguments.parameters import has_interface, is_torch
from octants.runtime.device import Device
from octants.runtime.memory.host import describe

ForeignView = np.ndarray[Any, Any]
"""See `runtime.memory.array_access`."""


def foreign_part(device: Device, value: Any) -> ForeignView | None:
    """The part of a device's memory that an array of another library takes; None for others.

    Nobody keeps the array alive.
    """
    if is_torch(type(value)):
        shape, strides = tuple(value.shape), torch_strides(value)
        name = str(value.dtype).removeprefix("torch.")
    elif has_interface(type(value)):
        shape, strides = tuple(interface(value)["shape"]), interface_strides(value)
        name = interface(value)["typestr"]
    else:
        return None
    address = device.address_of(value)
    try:
        dtype = np.dtype(name)
    except TypeError:  # a type that numpy has not
        return None
    return None if address is None else place(address, dtype, shape, strides)


def place(
    address: int, dtype: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...]
) -> ForeignView:
    """The part of memory whose first element is at an address."""
    reach = [(extent - 1) * step for extent, step in zip(shape, strides, strict=True) if extent]
    before = -sum(min(step, 0) for step in reach)
    nbytes = before + sum(max(step, 0) for step in reach) + dtype.itemsize
    return describe(address - before, nbytes, dtype, shape, strides, before)
