"""Reads, writes, saves and restores arrays wherever their memory is.

A *part* is described by a numpy array. In memory that the host shares, that is the memory itself.
For other memory it has the address, the shape and the strides, so that indexing it gives parts
again; but its elements must not be accessed, except through `DeviceParts`.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from octants.runtime.capture import refuse, refuse_read, thread_capture
from octants.runtime.device import Device
from octants.runtime.interop.foreign_arrays import foreign_part
from octants.runtime.memory.address_runs import Runs, order_of, packed_strides
from octants.runtime.memory.host import address_of, describe, describe_bytes, view_memory

Part = np.ndarray[Any, Any]
_MUCH = 4  # a read includes gaps if it is at most so many times the bytes of the elements


class Parts(Protocol):
    """Access to the parts of one kind of memory."""

    def read(self, part: Part) -> Part:
        """Read the elements into a row-major array of the host."""

    def write(self, part: Part, values: Any) -> None:
        """Store values that broadcast to the part."""

    def clear(self, part: Part) -> None:
        """Set the elements to zero."""

    def save(self, part: Part) -> Any:
        """Copy the elements within their memory if possible, for `restore`.

        The copy has ``nbytes``, and can be indexed like the part.
        """

    def restore(self, part: Part, saved: Any) -> None:
        """Write back what `save` returned; bytes between elements keep their values."""

    def holds(self, part: Part, saved: Any) -> bool:
        """Whether the elements equal what `save` returned, bit by bit.

        A capture does not know what they will hold at a replay: False, unless the host may not
        write them.
        """

    def interface(self, part: Part, /) -> dict[str, Any] | None:
        """The ``__cuda_array_interface__`` of a part in discrete memory; None elsewhere."""

    def find(self, value: Any, /) -> Saved | None:
        """The elements of an array of another library in this discrete memory, else None."""


class HostParts:
    """Access to memory that the host shares."""

    def read(self, part: Part) -> Part:
        refuse_read()
        return np.array(part, order="C")

    def write(self, part: Part, values: Any) -> None:
        part[...] = values
        capture = thread_capture()
        if capture is not None:
            capture.wrote(part, values)

    def clear(self, part: Part) -> None:
        self.write(part, 0)

    def save(self, part: Part) -> Part:
        copy: Part = part.copy()
        capture = thread_capture()
        if capture is not None:
            capture.saved(part, copy)
        return copy

    def restore(self, part: Part, saved: Part) -> None:
        self.write(part, saved)

    def holds(self, part: Part, saved: Part) -> bool:
        if thread_capture() is not None:
            return not part.flags.writeable
        return _equal_bits(part, saved)

    def interface(self, _: Part) -> None:
        return None

    def find(self, _: Any) -> None:
        return None


HOST = HostParts()


class Saved:
    """A part in the memory of a device, mostly a copy, with its owner."""

    __slots__ = ("device", "nbytes", "owner", "part")

    def __init__(self, part: Part, owner: Any, device: Device) -> None:
        self.part = part
        self.owner = owner
        self.device = device
        self.nbytes = part.nbytes

    def __getitem__(self, index: tuple[Any, ...]) -> Saved:
        every = index if index[-1:] == (Ellipsis,) else (*index, Ellipsis)
        return Saved(self.part[every], self.owner, self.device)


class DeviceParts:
    """Access to device memory that the host cannot access."""

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
        allocation = self.device.allocate_uninitialised(part.nbytes)
        self.device.write(allocation.address, memory)
        self._scatter(runs, allocation.address)

    def fill(self, address: int, value: Any, dtype: np.dtype[Any], count: int) -> None:
        """Set ``count`` contiguous elements of memory that the caller keeps alive."""
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
        allocation = self.device.allocate_uninitialised(max(1, part.nbytes))
        address = allocation.address
        if part.flags.c_contiguous and part.size:
            self.device.copy(address, address_of(part), part.nbytes)
            memory = describe_bytes(address, part.nbytes)
            return Saved(np.ndarray(part.shape, part.dtype, memory), allocation, self.device)
        part, turned = _forward(part)
        if part.size:
            self._gather(Runs(part), address)
        copy = describe(address, part.nbytes, part.dtype, part.shape, packed_strides(part))
        return Saved(copy[turned], allocation, self.device)

    def restore(self, part: Part, saved: Saved) -> None:
        if saved.device is not self.device:
            self._fetch(part, saved)
            return
        _keep(part, saved)
        source = saved.part
        if part.flags.c_contiguous and source.flags.c_contiguous and part.size:
            self.device.copy(address_of(part), address_of(source), part.nbytes)
            return
        part, turned = _forward(part)
        if part.size == 0:
            return
        source = source[turned]
        if min(source.strides, default=0) < 0 or order_of(source) != order_of(part):
            self.write(part, self.read(source))
            return
        if Runs(source).axes:  # an indexed copy, with gaps
            saved = self.save(source)
            source = saved.part
        self._scatter(Runs(part), address_of(source))

    def holds(self, part: Part, saved: Saved) -> bool:
        return thread_capture() is None and _equal_bits(self.read(part), self.read(saved.part))

    def interface(self, part: Part) -> dict[str, Any] | None:
        address, typestr = address_of(part), part.dtype.str
        return self.device.interface_of(address, part.shape, part.strides, typestr)

    def find(self, value: Any) -> Saved | None:
        part = foreign_part(self.device, value)
        return None if part is None else Saved(part, value, self.device)

    def _fetch(self, part: Part, saved: Saved) -> None:
        """Copy a part of another device's memory; through the host if one of them has gaps."""
        refuse(
            "a copy from one device to another cannot be replayed",
            "copy before or after the capture",
        )
        source = saved.part
        if not (part.flags.c_contiguous and source.flags.c_contiguous):
            self.write(part, DeviceParts(saved.device).read(source))
        elif part.size:
            to, of = address_of(part), address_of(source)
            self.device.copy_from(to, saved.device, of, part.nbytes)

    def _gather(self, runs: Runs, packed: int) -> None:
        """Copy runs to contiguous memory."""
        for rows in runs.rows():
            to, of = (packed + rows.offset, rows.packed_step), (rows.address, rows.step)
            self._copy(to, of, runs.nbytes, rows.count)

    def _scatter(self, runs: Runs, packed: int) -> None:
        """Copy contiguous memory to runs."""
        for rows in runs.rows():
            to, of = (rows.address, rows.step), (packed + rows.offset, rows.packed_step)
            self._copy(to, of, runs.nbytes, rows.count)

    def _copy(self, to: tuple[int, int], of: tuple[int, int], nbytes: int, count: int) -> None:
        if count == 1:
            self.device.copy(to[0], of[0], nbytes)
        else:
            self.device.copy_rows(*to, *of, nbytes, count)


def parts_of(device: Device) -> Parts:
    """The access to a device's memory."""
    return HOST if device.shares_memory else DeviceParts(device)


def is_number(value: Any) -> bool:
    """Whether this is a number of Python."""
    return type(value) in (float, int, bool)


def is_scalar(values: Any) -> bool:
    """Whether this is one number; faster than numpy for numbers of Python."""
    return is_number(values) or np.ndim(values) == 0


def _keep(*parts: Part | Saved) -> None:
    """Keep the memory of parts alive for the active capture."""
    capture = thread_capture()
    if capture is not None:
        for part in parts:
            capture.keep(part)


def _forward(part: Part) -> tuple[Part, tuple[Any, ...]]:
    """The part with all strides made positive, and the index that reverses axes in either
    direction.
    """
    turned = tuple(slice(None, None, -1 if step < 0 else None) for step in part.strides)
    index = (*turned, Ellipsis)
    return part[index], index


def _packed(part: Part, turned: tuple[Any, ...], values: Any) -> Part:
    """The bytes of values in the order of a part's addresses; no copy if they are in that order."""
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
    if one.nbytes != other.nbytes:
        return False
    word = np.uint8 if one.nbytes % 8 else np.uint64  # fewer, larger words take less time
    one, other = np.ascontiguousarray(one), np.ascontiguousarray(other)
    return np.array_equal(one.reshape(-1).view(word), other.reshape(-1).view(word))
