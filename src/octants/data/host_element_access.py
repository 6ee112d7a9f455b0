"""Lets the host read and write the elements of an array: by a window on its storage.

A window is a `HostWindow` where the host shares the memory, a `FarWindow` where it does not, and a
`LateWindow` while the device is still starting.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from octants.data.zeroed_device_memory import LateStorage, Storage
from octants.runtime.capture import captures, refuse_read, thread_capture
from octants.runtime.device import Device
from octants.runtime.memory.array_access import (
    HOST,
    DeviceParts,
    Parts,
    Saved,
    is_number,
    is_scalar,
)
from octants.types.layouts import Layout
from octants.types.scalars import DType

Array = np.ndarray[Any, Any]
ElementRange = tuple[int, ...]
_BLOCK = 2048  # numbers of a repeated vector that are copied at once
_MANY = 1 << 17  # numbers from which on a number is repeated so, too
_MOST_COMPONENTS = 16  # of elements that are copied component by component
_MOST_PUT_OFF = 1 << 20  # bytes of a write that are copied rather than waited for


class HostWindow:
    """The elements of one array in a storage, as the host sees them.

    An index or `ElementRange` has the array's indices, from 0, and then those of the element. An
    axis that is split over several blocks is several axes of `_parts`; `_splits` has, for each axis
    of the array, the (divisor, extent) of each.
    """

    __slots__ = ("_is_packed", "_parts", "_splits", "offset", "rank", "shape", "storage")

    def __init__(
        self,
        storage: Storage,
        offset: int,
        layout: Layout,
        dtype: DType,
        element_shape: tuple[int, ...] = (),
    ) -> None:
        self.storage = storage
        self.offset = offset
        self.rank = len(layout.shape)
        self.shape = (*layout.shape, *element_shape)
        splits, strides = _split_axes(layout, dtype)
        splits += [[(1, extent)] for extent in element_shape]
        strides += layout.element_strides
        self._splits = splits if any(len(split) != 1 for split in splits) else None
        self._describe([extent for split in splits for _, extent in split], dtype.numpy, strides)

    def _describe(self, extents: Sequence[int], dtype: Any, strides: Sequence[int]) -> None:
        """Make the array of the parts, of which an extent and a stride stand for each axis."""
        self._parts: Array = np.ndarray(extents, dtype, self.storage.bytes, self.offset, strides)
        self._is_packed = self._parts.flags.c_contiguous and self._parts.size > 0

    # -- whole arrays and regions ---------------------------------------------------------------

    def read(self, region: ElementRange = ()) -> Array:
        """A copy of what lies at ``region``, row-major."""
        refuse_read()
        shape = self.shape[len(region) :]
        found = self._parts[self._locate(region)] if region else self._parts
        return self._copy(found).reshape(shape)

    def _copy(self, part: Array) -> Array:
        """A row-major copy of a part that has the components of elements last."""
        axes = len(self.shape) - self.rank
        if not axes or part.size < _BLOCK or part.flags.c_contiguous:
            return np.array(part, order="C")
        copy = np.empty(part.shape, part.dtype)
        _store(copy, part, axes)
        return copy

    def write(self, values: Any, region: ElementRange = ()) -> None:
        """Store values that broadcast to what lies at ``region``."""
        location = region
        if self._splits is not None:
            location, shape = self._locate(region), self.shape[len(region) :]
            if shape:
                parts = self._splits[len(region) :]
                extents = [extent for split in parts for _, extent in split]
                values = np.broadcast_to(values, shape).reshape(extents)
        axes = len(self.shape) - self.rank
        if region or self._parts.size < (_BLOCK if axes else _MANY):
            self._parts[location] = values
        elif not _repeat(self._parts, values):
            _store(self._parts, values, axes)
        if captures and (capture := thread_capture()) is not None:
            capture.wrote(self._at(region), values)

    def clear(self) -> None:
        """Set all elements to zero."""
        self._parts.fill(0)
        capture = thread_capture()
        if capture is not None:
            capture.wrote(self._parts, 0)

    def contiguous_range(self) -> tuple[Device, int, int] | None:
        """See `StoredArray.contiguous_range`."""
        if self._is_packed and not captures:
            return self.storage.device, self.address, self._parts.nbytes
        return None

    def item(self, index: ElementRange) -> Any:
        """One element as a Python number."""
        if captures:
            refuse_read()
        return self._parts.item(self._locate(index))

    def interface(self) -> dict[str, Any] | None:
        """How libraries that share the device's memory see it; None for none."""
        part = self.part()
        return None if part is None else self.parts.interface(part)

    def find(self, value: Any) -> Any:
        """The elements of another library's array of this type and shape, if no host is needed.

        None for others. What it gives can be written.
        """
        found, own = self.parts.find(value), self._parts
        if found is None or (found.part.shape, found.part.dtype) != (own.shape, own.dtype):
            return None
        return found

    def stands_like(self, other: HostWindow) -> bool:
        """Whether what `save` gives can be written to another window without the host."""
        return self._parts.shape == other._parts.shape and self._splits == other._splits

    def save(self) -> Any:
        """A copy of all elements, for `restore`, with ``nbytes``; where the elements are."""
        copy = self._copy(self._parts)
        capture = thread_capture()
        if capture is not None:
            capture.saved(self._parts, copy)
        return copy.reshape(self.shape)

    def saved_for(self, other: HostWindow) -> Any:
        """All elements, as what can be written to a window that `stands_like` this without the
        host: the memory itself, or a copy of it where both windows have bytes in common.
        """
        part = self.part()
        is_free = part is not None and other.parts is HOST and thread_capture() is None
        return part if is_free and not np.may_share_memory(part, other._parts) else self.save()

    def restore(self, saved: Any) -> None:
        """Write back what `save` gave."""
        self.write(saved)

    def view(self, region: ElementRange = ()) -> Array | None:
        """The memory itself at ``region`` as a numpy array; None where it cannot be."""
        if captures:
            refuse_read()
        return self.part(region)

    def part(self, region: ElementRange = ()) -> Array | None:
        """The part of memory at ``region``, for `parts`; None where an axis of it is split."""
        if self._splits is not None and any(len(s) != 1 for s in self._splits[len(region) :]):
            return None
        return self._at(region)

    def _at(self, region: ElementRange) -> Array:
        """The elements at a region, as an array also if it is one."""
        index: Any = (*self._locate(region), Ellipsis)
        part: Array = self._parts[index]
        return part

    def _locate(self, region: ElementRange) -> ElementRange:
        if self._splits is None:
            return region
        return tuple(
            index // divisor % extent
            for index, split in zip(region, self._splits, strict=False)
            for divisor, extent in split
        )

    # -- bytes ----------------------------------------------------------------------------------

    @property
    def parts(self) -> Parts:
        """How the elements are reached."""
        return self.storage.parts

    @property
    def address(self) -> int:
        """The address of the first element."""
        address: int = self.storage.address + self.offset
        return address

    @property
    def extent(self) -> tuple[int, int]:
        """The addresses of the first byte, and past the last one."""
        start = self.address
        if self._is_packed or self._parts.size == 0:
            return start, start + self._parts.nbytes
        reach = [
            (extent - 1) * stride
            for extent, stride in zip(self._parts.shape, self._parts.strides, strict=True)
        ]
        before = sum(step for step in reach if step < 0)
        after = sum(step for step in reach if step > 0)
        return start + before, start + after + self._parts.itemsize

    @property
    def nbytes(self) -> int:
        """The bytes of the elements."""
        return self._parts.nbytes


class FarWindow(HostWindow):
    """The elements of an array in memory that the host does not share.

    What is written most, one element or all of them, is written by addresses alone.
    """

    __slots__ = ()

    def read(self, region: ElementRange = ()) -> Array:
        if self._is_packed and not region:
            elements = np.empty(self._parts.nbytes, np.uint8)
            self.parts.device.read(self.address, elements)
            return elements.view(self._parts.dtype).reshape(self.shape)
        shape = self.shape[len(region) :]
        return self.parts.read(self._at(region)).reshape(shape)

    def write(self, values: Any, region: ElementRange = ()) -> None:
        if is_number(values) and not captures:
            elements, storage = self._parts, self.storage
            parts: Any = storage.parts
            if region:
                address = self._address_of(self._locate(region))
                if address is not None:
                    parts.fill(address, values, elements.dtype, 1)
                    return
            elif self._is_packed:
                address = storage.address + self.offset
                parts.fill(address, values, elements.dtype, elements.size)
                return
        if isinstance(values, Saved):
            self.parts.restore(self._at(region) if region else self._parts, values)
            return
        if not region and not captures and self._are_packed_elements(values):
            self.parts.device.write(self.address, values)
            return
        part = self._at(region)
        if not is_scalar(values):
            values = np.broadcast_to(values, self.shape[len(region) :]).reshape(part.shape)
        self.parts.write(part, values)

    def _are_packed_elements(self, values: Any) -> bool:
        """Whether values are all elements, as they are in memory."""
        return (
            self._is_packed
            and isinstance(values, np.ndarray)
            and values.dtype == self._parts.dtype
            and values.shape == self.shape
            and values.flags.c_contiguous
        )

    def _address_of(self, index: ElementRange) -> int | None:
        """The address of the element at an index of `_parts`; None if it has several elements."""
        if len(index) < self._parts.ndim:
            return None
        steps = zip(index, self._parts.strides, strict=True)
        return self.address + sum(number * step for number, step in steps)

    def clear(self) -> None:
        if self._is_packed and not captures:
            self.parts.device.clear(self.address, self._parts.nbytes)
        else:
            self.parts.clear(self._parts)

    @property
    def parts(self) -> DeviceParts:
        parts = self.storage.parts
        assert isinstance(parts, DeviceParts)
        return parts

    def item(self, index: ElementRange) -> Any:
        return self.read(index).item()

    def save(self) -> Any:
        return self.parts.save(self._parts)

    def saved_for(self, other: HostWindow) -> Any:
        device = self.parts.device
        (start, end), (first, last) = self.extent, other.extent
        if other.storage.device is device and start < last and first < end:
            return self.save()
        return Saved(self._parts, self.storage, device)

    def view(self, region: ElementRange = ()) -> Array | None:  # noqa: ARG002
        return None


class LateWindow(FarWindow):
    """The elements of an array in a `LateStorage`."""

    __slots__ = ("_description",)

    storage: LateStorage

    def _describe(self, *description: Any) -> None:
        self._description = description

    def __getattr__(self, name: str) -> Any:
        """Describe the memory when an attribute of that is first needed."""
        if name not in ("_parts", "_is_packed"):
            raise AttributeError(name)
        super()._describe(*self._description)
        return object.__getattribute__(self, name)

    def write(self, values: Any, region: ElementRange = ()) -> None:
        if self.storage.is_ready:
            super().write(values, region)
            return
        small = isinstance(values, np.ndarray) and values.nbytes <= _MOST_PUT_OFF
        if small or is_scalar(values):
            kept = values.copy() if small else values
            if self.storage.puts_off(lambda: self.write(kept, region)):
                return
        super().write(values, region)

    def clear(self) -> None:
        if self.storage.is_ready or not self.storage.puts_off(self.clear):
            super().clear()

    def contiguous_range(self) -> tuple[Device, int, int] | None:
        return super().contiguous_range() if self.storage.is_ready else None


def make_window(
    storage: Storage,
    offset: int,
    layout: Layout,
    dtype: DType,
    element_shape: tuple[int, ...] = (),
) -> HostWindow:
    """The window on an array in a storage, which begins at ``offset``."""
    kind = HostWindow if storage.parts is HOST else FarWindow
    if isinstance(storage, LateStorage):
        kind = LateWindow
    return kind(storage, offset, layout, dtype, element_shape)


def _repeat(target: Array, values: Any) -> bool:
    """Store a number, or a small vector or matrix, in each element; whether it was worth it.

    That is so if all elements lie in one piece. numpy copies vectors element by element; in blocks
    of some kilobytes it is five times as fast, and 1.4 times with numbers of several bytes.
    """
    shape = values.shape if isinstance(values, np.ndarray) else ()
    size, is_element = math.prod(shape), target.shape[target.ndim - len(shape) :] == shape
    if not 0 < size <= _BLOCK // 16 or not is_element or target.size < 2 * _BLOCK:
        return False
    if target.itemsize * size == 1 or not target.flags.c_contiguous:
        return False
    length = _BLOCK // size * size
    flat = target.reshape(-1)
    first, whole = flat[:length], flat.size // length * length
    first.reshape(-1, *shape)[...] = values
    flat[length:whole].reshape(-1, length)[...] = first
    flat[whole:] = first[: flat.size - whole]
    return True


def _store(target: Array, values: Any, axes: int) -> None:
    """Store values that broadcast to a target, whose last axes are those of elements.

    Where elements lie amid others, numpy's inner loop has the length of an element. Component by
    component it has that of the array, which is two to four times as fast.
    """
    components = target.shape[target.ndim - axes :]
    is_packed = target.flags.c_contiguous
    if is_packed and isinstance(values, np.ndarray):
        is_packed = values.flags.c_contiguous or values.shape != target.shape
    few = 1 < math.prod(components) <= _MOST_COMPONENTS
    if is_packed or not few:
        target[...] = values
        return
    if isinstance(values, np.ndarray) and np.may_share_memory(values, target):
        values = values.copy()  # as numpy does
    given = np.broadcast_to(values, target.shape)
    for index in np.ndindex(*components):
        component = (..., *index)
        target[component] = given[component]


def _split_axes(layout: Layout, dtype: DType) -> tuple[list[list[tuple[int, int]]], list[int]]:
    """The (divisor, extent) of the parts of each axis, outermost first; and their strides."""
    splits: list[list[tuple[int, int]]] = []
    strides: list[int] = []
    for axis, extent in enumerate(layout.shape):
        terms = [term for term in layout.terms if term.axis == axis]
        terms.sort(key=lambda term: -term.divisor)
        if not terms:  # an extent of 1 takes no part in the address
            splits.append([(1, extent)])
            strides.append(dtype.size)
        else:
            split = [(term.divisor, term.modulus or extent // term.divisor) for term in terms]
            splits.append(split)
            strides += [term.stride for term in terms]
    return splits, strides
