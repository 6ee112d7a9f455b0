"""Parts of memory that arrays take: read, written, saved and put back, wherever they are.

A part is described by a numpy array. In memory that the host shares it is the memory itself. Of
other memory it has the address, the shape and the strides, so that indexing it gives parts again;
but its elements must not be asked for: only `DeviceParts` knows where they are.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from octants.runtime.device import Allocation, Bytes, Device
from octants.runtime.memory import address_of
from octants.runtime.runs import Runs, order_of, packed_strides

Part = np.ndarray[Any, Any]
_MUCH = 4  # times the bytes of the elements: so many are read with them rather than left out


class Parts(Protocol):
    """How the parts of some memory are reached."""

    def read(self, part: Part) -> Part:
        """The elements, row-major on the host."""

    def write(self, part: Part, values: Any) -> None:
        """Store values that broadcast to the part."""

    def clear(self, part: Part) -> None:
        """Set the elements to zero."""

    def save(self, part: Part) -> Any:
        """A copy of the elements, for `restore`: where they are, if it can be.

        It has ``nbytes``, and can be indexed like the part.
        """

    def restore(self, part: Part, saved: Any) -> None:
        """Write back what `save` gave, and nothing between the elements."""

    def holds(self, part: Part, saved: Any) -> bool:
        """Whether the elements are what `save` gave, bit by bit."""


class HostParts:
    """Parts of memory that the host shares."""

    def read(self, part: Part) -> Part:
        return np.array(part, order="C")

    def write(self, part: Part, values: Any) -> None:
        part[...] = values

    def clear(self, part: Part) -> None:
        part[...] = 0

    def save(self, part: Part) -> Part:
        copy: Part = part.copy()
        return copy

    def restore(self, part: Part, saved: Part) -> None:
        part[...] = saved

    def holds(self, part: Part, saved: Part) -> bool:
        return _equal_bits(part, saved)


HOST = HostParts()


class Saved:
    """A copy of a part in the memory of a device."""

    __slots__ = ("allocation", "nbytes", "part")

    def __init__(self, part: Part, allocation: Allocation) -> None:
        self.part = part
        self.allocation = allocation
        self.nbytes = part.nbytes

    def __getitem__(self, index: tuple[Any, ...]) -> Saved:
        every = index if index[-1:] == (Ellipsis,) else (*index, Ellipsis)
        return Saved(self.part[every], self.allocation)


class DeviceParts:
    """Parts of a device's memory that the host cannot touch."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def read(self, part: Part) -> Part:
        part, turned = _forward(part)
        if part.size == 0:
            return np.empty(part.shape, part.dtype)
        runs = Runs(part)
        if runs.axes and runs.span > _MUCH * part.nbytes:
            saved = self.save(part)
            return np.array(self.read(saved.part)[turned], order="C")
        cover = np.empty(runs.span, np.uint8)
        self.device.read(runs.address, cover)
        values: Part = np.ndarray(part.shape, part.dtype, cover, 0, part.strides)
        return np.array(values[turned], order="C")

    def write(self, part: Part, values: Any) -> None:
        part, turned = _forward(part)
        if part.size == 0:
            return
        memory = np.empty(part.nbytes, np.uint8)
        packed: Part = np.ndarray(part.shape, part.dtype, memory, 0, packed_strides(part))
        packed[turned] = values
        runs = Runs(part)
        if not runs.axes:
            self.device.write(runs.address, memory)
            return
        allocation = self.device.allocate(part.nbytes)
        self.device.write(allocation.address, memory)
        self._scatter(runs, allocation.address)

    def clear(self, part: Part) -> None:
        part, _ = _forward(part)
        if part.size == 0:
            return
        runs = Runs(part)
        if runs.axes:
            zeros = self.device.allocate(part.nbytes)
            self._scatter(runs, zeros.address)
        else:
            self.device.clear(runs.address, runs.nbytes)

    def save(self, part: Part) -> Saved:
        part, turned = _forward(part)
        allocation = self.device.allocate(max(1, part.nbytes))
        address = allocation.address
        if part.size:
            self._gather(Runs(part), address)
        copy = describe(address, part.nbytes, part.dtype, part.shape, packed_strides(part))
        return Saved(copy[turned], allocation)

    def restore(self, part: Part, saved: Saved) -> None:
        part, turned = _forward(part)
        if part.size == 0:
            return
        source = saved.part[turned]
        if order_of(source) != order_of(part):
            self.write(part, self.read(source))
            return
        if Runs(source).axes:  # an index of what was saved, with gaps
            saved = self.save(source)
            source = saved.part
        self._scatter(Runs(part), address_of(source))

    def holds(self, part: Part, saved: Saved) -> bool:
        return _equal_bits(self.read(part), self.read(saved.part))

    def _gather(self, runs: Runs, packed: int) -> None:
        """Copy runs to one piece of memory."""
        for rows in runs.rows():
            to, of = (packed + rows.offset, rows.packed_step), (rows.address, rows.step)
            self._copy(to, of, runs.nbytes, rows.count)

    def _scatter(self, runs: Runs, packed: int) -> None:
        """Copy one piece of memory to runs."""
        for rows in runs.rows():
            to, of = (rows.address, rows.step), (packed + rows.offset, rows.packed_step)
            self._copy(to, of, runs.nbytes, rows.count)

    def _copy(self, to: tuple[int, int], of: tuple[int, int], nbytes: int, count: int) -> None:
        if count == 1:
            self.device.copy(to[0], of[0], nbytes)
        else:
            self.device.copy_rows(*to, *of, nbytes, count)


def parts_of(device: Device) -> Parts:
    """How the parts of a device's memory are reached."""
    return HOST if device.shares_memory else DeviceParts(device)


def describe(
    address: int,
    nbytes: int,
    dtype: np.dtype[Any],
    shape: Sequence[int],
    strides: Sequence[int],
    offset: int = 0,
    owner: Any = None,
) -> Part:
    """An array at ``offset`` of ``nbytes`` of memory that the host may or may not share.

    Nothing is read. It keeps ``owner`` alive.
    """
    memory = describe_bytes(address, nbytes, owner)
    part: Part = np.ndarray(shape, dtype, memory, offset, strides)
    return part


def describe_bytes(address: int, nbytes: int, owner: Any = None) -> Bytes:
    """The bytes at an address; what numpy makes of them keeps ``owner`` alive."""
    memory: Any = (ctypes.c_ubyte * max(1, nbytes)).from_address(address)
    memory.owner = owner
    return np.frombuffer(memory, np.uint8)


def _forward(part: Part) -> tuple[Part, tuple[Any, ...]]:
    """A part without negative strides, and the index that gives the one from the other."""
    turned = tuple(slice(None, None, -1 if step < 0 else None) for step in part.strides)
    index = (*turned, Ellipsis)
    return part[index], index


def _equal_bits(one: Part, other: Part) -> bool:
    one, other = np.ascontiguousarray(one), np.ascontiguousarray(other)
    return np.array_equal(one.reshape(-1).view(np.uint8), other.reshape(-1).view(np.uint8))
