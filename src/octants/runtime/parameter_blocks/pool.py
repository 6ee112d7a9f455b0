"""The parameter blocks of launches, and the storage that goes with them.

Where the host shares the memory of the device, both are one piece; else the slots are in memory of
the host, from which a launch copies them, and the storage is in memory of the device. There a
launch may use it after the call has returned: each stream has blocks of its own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from octants.runtime.device import Allocation, Device

_ALIGNMENT = 64
Block = tuple[Any, ...]


class Pool(list[Block]):
    """Blocks that no launch uses, of one kernel; it is equal to itself only."""

    __slots__ = ("__weakref__",)
    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__
    __ne__ = object.__ne__


SHARED_SOURCE = """
def launch(seed, number, outside{parameters}):
    try:
        block = pool.pop()
    except IndexError:
        block = new_block()
    view, base = block[0], block[1]
    {refuse}
    try:
        {pack}
    except (error, OverflowError, TypeError, ValueError, AttributeError):
        repack(block, seed, number, outside, ({arguments}))
    run(base)
    results = {results}
    if captures and launched(run, kernel, owner, (base, {sizes}), block, ({arrays})):
        return results
    pool.append(block)
    return results
"""

APART_SOURCE = """
def launch(seed, number, outside{parameters}):
    pool = {pool}
    try:
        block = pool.pop()
    except IndexError:
        block = new_block()
    view = block[0]
    {unpack}
    {refuse}
    try:
        {pack}
    except (error, OverflowError, TypeError, ValueError, AttributeError):
        repack(block, seed, number, outside, ({arguments}))
    {prepare}
    run(block[3])
    {fetch}
    results = {results}
    base = block[3]
    if captures and launched(run, kernel, owner, (base, {sizes}), block, ({arrays})):
        return results
    pool.append(block)
    return results
"""


def shared_blocks(size: int, structs: int) -> Callable[[], Block]:
    """A function that makes blocks: bytes, their address, what keeps them alive, structs, rooms.

    The structs are references to ``structs`` frozen structs whose slots are filled.
    """

    def make() -> Block:
        view, address, owner = _aligned(size)
        return view, address, owner, [no_struct] * structs, {}

    return make


def apart_blocks(
    device: Device, slots: int, storage: int, fetched: int, structs: int
) -> Callable[[], Block]:
    """The same where the storage is apart.

    A block is: the bytes of the slots; the address of the storage; memory for what is fetched from
    there; the address of the slots; what keeps all alive; structs; rooms.
    """

    def make() -> Block:
        view, address, owner = _aligned(slots)
        allocation = device.allocate(storage) if storage else None
        place = 0 if allocation is None else allocation.address
        kept = owner, allocation
        return view, place, np.empty(fetched, np.uint8), address, kept, [no_struct] * structs, {}

    return make


STRUCTS = -2
"""Where a block has its structs."""


def no_struct() -> Any:
    """Stands for the reference to a struct where none has filled the slots; equal to nothing."""
    return no_struct


def room(device: Device, number: int, block: Block, nbytes: int) -> int:
    """The address of so many bytes, or more, that a block has for one array; it may grow."""
    rooms: dict[int, Allocation] = block[-1]
    found = rooms.get(number)
    if found is None or found.nbytes < nbytes:
        found = rooms[number] = device.allocate(max(_ALIGNMENT, nbytes))
    return found.address


def _aligned(size: int) -> tuple[memoryview, int, Any]:
    memory = bytearray(size + _ALIGNMENT)
    owner = (ctypes.c_char * len(memory)).from_buffer(memory)
    start = -ctypes.addressof(owner) % _ALIGNMENT
    view = memoryview(memory)[start : start + size]
    return view, ctypes.addressof(owner) + start, owner
