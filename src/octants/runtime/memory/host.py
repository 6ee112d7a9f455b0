"""Memory of the host: zeroed, aligned, freed when nobody refers to it."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from octants.diagnostics.exceptions import OctantsMemoryError
from octants.runtime.capture import noted, own_capture
from octants.runtime.memory.fill import set_elements

ALIGNMENT = 64
_MOST_WORK = 10_000


class HostAllocation:
    """A piece of host memory; `bytes` is a numpy view of it that keeps it alive."""

    __slots__ = ("address", "bytes", "nbytes")

    def __init__(self, nbytes: int) -> None:
        # Pages of fresh memory are zero already: nothing is touched before it is used.
        memory = np.zeros(nbytes + ALIGNMENT, np.uint8)
        start = -address_of(memory) % ALIGNMENT
        self.nbytes = nbytes
        self.bytes: np.ndarray[Any, np.dtype[np.uint8]] = memory[start : start + nbytes]
        self.address = address_of(memory) + start


def allocate(nbytes: int) -> HostAllocation:
    """``nbytes`` of zeros at a multiple of 64; `OctantsMemoryError` if the system has none."""
    if nbytes < 0:
        raise ValueError(f"{nbytes} bytes")
    try:
        return HostAllocation(nbytes)
    except (MemoryError, ValueError, OverflowError):  # numpy: "Maximum allowed size exceeded"
        raise OctantsMemoryError(f"the system has no {nbytes} bytes of memory left") from None


class HostMemory:
    """What a `Device` does with memory, where its memory is the host's."""

    shares_memory = True

    def allocate(self, nbytes: int, _: str = "", /) -> HostAllocation:
        """``nbytes`` of zeros at a multiple of 64; `OctantsMemoryError` if there are none."""
        allocation = allocate(nbytes)
        capture = own_capture()
        if capture is not None:
            capture.allocated(self.clear, allocation)
        return allocation

    def read(self, address: int, into: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        """Copy memory to the host."""
        ctypes.memmove(address_of(into), address, into.nbytes)

    @noted
    def write(self, address: int, values: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        """Copy from the host."""
        ctypes.memmove(address, address_of(values), values.nbytes)

    @noted
    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy within the memory."""
        ctypes.memmove(target, source, nbytes)

    @noted
    def copy_rows(
        self, target: int, target_step: int, source: int, source_step: int, nbytes: int, rows: int
    ) -> None:
        """Copy pieces within the memory."""
        for row in range(rows):
            ctypes.memmove(target + row * target_step, source + row * source_step, nbytes)

    @noted
    def clear(self, address: int, nbytes: int) -> None:
        """Set memory to zero."""
        ctypes.memset(address, 0, nbytes)

    def set_elements(self, address: int, element: bytes, count: int) -> None:
        """Set elements that stand in a row, by copies."""
        set_elements(self, address, element, count)


def view_memory(
    address: int, dtype: np.dtype[Any] | type, shape: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    """Row-major memory at an address, which the caller keeps alive, as a numpy array."""
    count = math.prod(shape)
    if count == 0:
        return np.zeros(shape, dtype)
    memory = (ctypes.c_char * (count * np.dtype(dtype).itemsize)).from_address(address)
    return np.frombuffer(memoryview(memory), dtype).reshape(shape)


def describe(
    address: int,
    nbytes: int,
    dtype: np.dtype[Any],
    shape: Sequence[int],
    strides: Sequence[int],
    offset: int = 0,
    owner: Any = None,
) -> np.ndarray[Any, Any]:
    """An array, for `memory_partition`, at ``offset`` of ``nbytes`` that the host need not share.

    Nothing is read. It keeps ``owner`` alive.
    """
    memory = describe_bytes(address, nbytes, owner)
    part: np.ndarray[Any, Any] = np.ndarray(shape, dtype, memory, offset, strides)
    return part


def describe_bytes(
    address: int, nbytes: int, owner: Any = None
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The bytes at an address; what numpy makes of them keeps ``owner`` alive."""
    memory: Any = (ctypes.c_ubyte * max(1, nbytes)).from_address(address)
    memory.owner = owner
    return np.frombuffer(memory, np.uint8)


def shares_memory(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    """Whether two arrays have a byte in common; True also where that takes too long to tell."""
    try:
        shared: bool = np.shares_memory(one, other, max_work=_MOST_WORK)  # type: ignore[arg-type]
        return shared
    except RuntimeError:  # numpy's TooHardError, which has moved between its versions
        return True


def overlaps_itself(shape: Sequence[int], strides: Sequence[int], size: int) -> bool:
    """Whether elements of ``size`` bytes may overlap: False only if they certainly do not."""
    if 0 in shape:
        return False
    span = size
    axes = sorted((abs(stride), extent) for extent, stride in zip(shape, strides, strict=True))
    for stride, extent in axes:
        if extent > 1:
            if stride < span:
                return True
            span += (extent - 1) * stride
    return False


def address_of(array: np.ndarray[Any, Any]) -> int:
    """The address of an array's first element."""
    address: int = array.__array_interface__["data"][0]
    return address
