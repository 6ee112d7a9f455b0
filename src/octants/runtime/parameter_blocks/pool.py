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


def block_maker(
    device: Device, slots: int, storage: int, results: int, structs: int
) -> Callable[[], Block]:
    """A function that makes the blocks of a kernel.

    A block is a tuple: the bytes of the slots, and of the storage if the host shares it; the
    address of the slots; that of the storage; host memory for results that are read from discrete
    storage; the owners of these; references to frozen structs; temporaries by number.

    Args:
        device: The device.
        slots: The bytes of the slots.
        storage: The bytes of the storage.
        results: The bytes of the results.
        structs: The number of frozen structs.
    """
    inside, outside = (storage, 0) if device.shares_memory else (0, storage)

    def make() -> Block:
        view, base, owner = _aligned(slots + inside)
        allocation = device.allocate(outside) if outside else None
        start = base + slots if allocation is None else allocation.address
        kept = owner, allocation
        memory = np.empty(results, np.uint8)
        return view, base, start, memory, kept, [no_struct] * structs, {}

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
