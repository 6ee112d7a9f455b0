"""Describes arrays of other libraries in discrete memory of a device."""

from __future__ import annotations

from typing import Any

import numpy as np

from octants.runtime.arguments.conversions import (
    interface,
    interface_strides,
    numpy_type,
    torch_strides,
    torch_type,
)
from octants.runtime.arguments.parameters import has_interface, is_torch
from octants.runtime.device import Device
from octants.runtime.memory.host import describe

ForeignView = np.ndarray[Any, Any]
"""See `runtime.memory.array_access`."""


def foreign_part(device: Device, value: Any) -> ForeignView | None:
    """A view of an array of another library in a device's memory; None elsewhere.

    The view does not keep the array alive.
    """
    if is_torch(type(value)):
        shape, strides = tuple(value.shape), torch_strides(value)
        dtype = numpy_type(torch_type(value))
    elif has_interface(type(value)):
        shape, strides = tuple(interface(value)["shape"]), interface_strides(value)
        dtype = numpy_type(interface(value)["typestr"])
    else:
        return None
    address = device.address_of(value)
    return None if address is None or dtype is None else view_at(address, dtype, shape, strides)


def view_at(
    address: int, dtype: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...]
) -> ForeignView:
    """A view of memory whose first element is at an address."""
    reach = [(extent - 1) * step for extent, step in zip(shape, strides, strict=True) if extent]
    before = -sum(min(step, 0) for step in reach)
    nbytes = before + sum(max(step, 0) for step in reach) + dtype.itemsize
    return describe(address - before, nbytes, dtype, shape, strides, before)
