"""Pools the parameter blocks of launches, with their storage.

Where the host shares the memory of the device, slots and storage are one piece. On a device with
discrete memory, the slots are on the host, from which a launch copies them, and the storage is on
the device. A launch may still use it after the call has returned, so each stream has blocks of its
own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from octants.runtime.device import Allocation, Device

_ALIGNMENT = 64
Block = tuple[Any, ...]


class ParameterBlockPool(list[Block]):
    """The free blocks of one kernel; a pool is equal to itself only."""

    __slots__ = ("__weakref__",)
    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__
    __ne__ = object.__ne__


def shared_blocks(size: int, structs: int) -> Callable[[], Block]:
    """Make blocks whose storage the host shares.

    A block is a tuple: the bytes, their address, their owner, references to the ``structs`` frozen
    structs whose slots are filled, temporaries by number.

    Args:
        size: The bytes of slots and storage.
        structs: The number of frozen structs.
    """

    def make() -> Block:
        view, address, owner = _aligned(size)
        return view, address, owner, [no_struct] * structs, {}

    return make


def discrete_blocks(
    device: Device, slots: int, storage: int, fetched: int, structs: int
) -> Callable[[], Block]:
    """Make blocks whose storage is in discrete memory of a device.

    A block is a tuple: the bytes of the slots, the address of the storage, host memory for results,
    the address of the slots, their owners, references to frozen structs, temporaries by number.

    Args:
        device: The device.
        slots: The bytes of the slots.
        storage: The bytes of the storage.
        fetched: The bytes of the results.
        structs: The number of frozen structs.
    """

    def make() -> Block:
        view, address, owner = _aligned(slots)
        allocation = device.allocate(storage) if storage else None
        start = 0 if allocation is None else allocation.address
        kept = owner, allocation
        return view, start, np.empty(fetched, np.uint8), address, kept, [no_struct] * structs, {}

    return make


STRUCTS = -2
"""The position of the structs in a block."""


def no_struct() -> Any:
    """The reference where no struct has filled the slots; it never returns a struct."""
    return no_struct


def temporary_address(device: Device, number: int, block: Block, nbytes: int) -> int:
    """The address of at least ``nbytes`` for a temporary of a block; its memory grows as needed."""
    temporaries: dict[int, Allocation] = block[-1]
    found = temporaries.get(number)
    if found is None or found.nbytes < nbytes:
        found = temporaries[number] = device.allocate(max(_ALIGNMENT, nbytes))
    return found.address


def _aligned(size: int) -> tuple[memoryview, int, Any]:
    memory = bytearray(size + _ALIGNMENT)
    owner = (ctypes.c_char * len(memory)).from_buffer(memory)
    start = -ctypes.addressof(owner) % _ALIGNMENT
    view = memoryview(memory)[start : start + size]
    return view, ctypes.addressof(owner) + start, owner
