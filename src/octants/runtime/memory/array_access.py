"""Parts of memory that arrays take: read, written, saved and put back, wherever they are.

A part is described by a numpy array. In memory that the host shares it is the memory itself. Of
other memory it has the address, the shape and the strides, so that indexing it gives parts again;
but its elements must not be asked for: only `DeviceParts` knows where they are.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from octants.runtime.capture import own_capture, refuse_read
from octants.runtime.device import Device
from octants.runtime.interop.foreign_arrays import foreign_part
from octants.runtime.memory.address_runs import Runs, order_of, packed_strides
from octants.runtime.memory.host import address_of, describe, view_memory

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

    def interface(self, part: Part, /) -> dict[str, Any] | None:
        """What other libraries are told of memory that is not the host's; None for nothing."""

    def find(self, value: Any, /) -> Saved | None:
        """The elements of an array of another library that lies in memory not the host's."""


class HostParts:
    """Parts of memory that the host shares."""

    def read(self, part: Part) -> Part:
        refuse_read()
        return np.array(part, order="C")

    def write(self, part: Part, values: Any) -> None:
        part[...] = values
        capture = own_capture()
        if capture is not None:
            capture.wrote(part, values)

    def clear(self, part: Part) -> None:
        self.write(part, 0)

    def save(self, part: Part) -> Part:
        copy: Part = part.copy()
        capture = own_capture()
        if capture is not None:
            capture.saved(part, copy)
        return copy

    def restore(self, part: Part, saved: Part) -> None:
        self.write(part, saved)

    def holds(self, part: Part, saved: Part) -> bool:
        refuse_read()
        return _equal_bits(part, saved)

    def interface(self, _: Part) -> None:
        return None

    def find(self, _: Any) -> None:
        return None


HOST = HostParts()


class Saved:
    """A copy of a part in the memory of a device, and who keeps it alive."""

    __slots__ = ("nbytes", "owner", "part")

    def __init__(self, part: Part, owner: Any) -> None:
        self.part = part
        self.owner = owner
        self.nbytes = part.nbytes

    def __getitem__(self, index: tuple[Any, ...]) -> Saved:
        every = index if index[-1:] == (Ellipsis,) else (*index, Ellipsis)
        return Saved(self.part[every], self.owner)


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
        return np.asarray(values[turned], order="C")

    def write(self, part: Part, values: Any) -> None:
        _keep(part)
        if part.flags.c_contiguous and is_scalar(values):
            self.fill(address_of(part), values, part.dtype, part.size)
            return
        part, turned = _forward(part)
        if part.size == 0:
            return
        runs = Runs(part)
        memory = _packed(part, turned, values)
        if not runs.axes:
            self.device.write(runs.address, memory)
            return
        allocation = self.device.allocate(part.nbytes)
        self.device.write(allocation.address, memory)
        self._scatter(runs, allocation.address)

    def fill(self, address: int, value: Any, dtype: np.dtype[Any], count: int) -> None:
        """Set the ``count`` elements of one piece of memory, which nothing else keeps alive."""
        if count:
            self.device.set_elements(address, np.array(value, dtype).tobytes(), count)

    def clear(self, part: Part) -> None:
        _keep(part)
        if part.flags.c_contiguous and part.size:
            self.device.clear(address_of(part), part.nbytes)
            return
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
        _keep(part)
        part, turned = _forward(part)
        allocation = self.device.allocate(max(1, part.nbytes))
        address = allocation.address
        if part.size:
            self._gather(Runs(part), address)
        copy = describe(address, part.nbytes, part.dtype, part.shape, packed_strides(part))
        return Saved(copy[turned], allocation)

    def restore(self, part: Part, saved: Saved) -> None:
        _keep(part)
        part, turned = _forward(part)
        if part.size == 0:
            return
        source = saved.part[turned]
        if min(source.strides, default=0) < 0 or order_of(source) != order_of(part):
            self.write(part, self.read(source))
            return
        if Runs(source).axes:  # an index of what was saved, with gaps
            saved = self.save(source)
            source = saved.part
        self._scatter(Runs(part), address_of(source))

    def holds(self, part: Part, saved: Saved) -> bool:
        return _equal_bits(self.read(part), self.read(saved.part))

    def interface(self, part: Part) -> dict[str, Any] | None:
        address, typestr = address_of(part), part.dtype.str
        return self.device.interface_of(address, part.shape, part.strides, typestr)

    def find(self, value: Any) -> Saved | None:
        part = foreign_part(self.device, value)
        return None if part is None else Saved(part, value)

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


def is_number(value: Any) -> bool:
    """Whether this is a number of Python."""
    return type(value) in (float, int, bool)


def is_scalar(values: Any) -> bool:
    """Whether this is one number; numpy takes long to say so of a number of Python."""
    return is_number(values) or np.ndim(values) == 0


def _keep(part: Part) -> None:
    """Let a graph that is captured keep the memory of a part, of which it knows but the address."""
    capture = own_capture()
    if capture is not None:
        capture.keep(part)


def _forward(part: Part) -> tuple[Part, tuple[Any, ...]]:
    """A part without negative strides, and the index that gives the one from the other."""
    turned = tuple(slice(None, None, -1 if step < 0 else None) for step in part.strides)
    index = (*turned, Ellipsis)
    return part[index], index


def _packed(part: Part, turned: tuple[Any, ...], values: Any) -> Part:
    """The bytes of values in the order of a part's addresses; their own memory if they lie so."""
    strides = packed_strides(part)
    if isinstance(values, np.ndarray) and values.dtype == part.dtype:
        lying: Part = np.broadcast_to(values, part.shape)[turned]
        steps = zip(lying.shape, lying.strides, strides, strict=True)
        if all(extent == 1 or own == wanted for extent, own, wanted in steps):
            return view_memory(address_of(lying), np.uint8, (part.nbytes,))
    memory = np.empty(part.nbytes, np.uint8)
    packed: Part = np.ndarray(part.shape, part.dtype, memory, 0, strides)
    packed[turned] = values
    return memory


def _equal_bits(one: Part, other: Part) -> bool:
    one, other = np.ascontiguousarray(one), np.ascontiguousarray(other)
    return np.array_equal(one.reshape(-1).view(np.uint8), other.reshape(-1).view(np.uint8))
