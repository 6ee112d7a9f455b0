"""Host memory: zeroed, aligned, freed when its last reference is dropped; and numpy views of it.

Large blocks that are freed are pooled for later allocations of the same size: memory fresh from the
system costs a page fault for each four kilobytes, which takes longer than clearing them.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from octants.diagnostics.exceptions import OctantsMemoryError
from octants.runtime.capture import noted, thread_capture
from octants.runtime.device import StagingBuffer
from octants.runtime.memory.fill import set_elements
from octants.runtime.memory.staging_buffer import PageableStagingBuffer

ALIGNMENT = 64
_MOST_WORK = 10_000


_POOLED = range(1 << 17, (1 << 26) + 1)
"""The bytes of blocks that are pooled: below, the allocator of C does so."""
_MOST_POOLED = 1 << 28
"""Of all blocks in the pool."""

_pool: dict[int, list[np.ndarray[Any, np.dtype[np.uint8]]]] = {}
"""The blocks that nothing uses, by their bytes."""


class _Block:
    """Memory that goes back to the pool when the last view of it is dropped."""

    __slots__ = ("__array_interface__", "_memory")

    def __init__(self, nbytes: int, *, clears: bool) -> None:
        try:
            memory = _pool[nbytes].pop()
        except LookupError:
            memory = np.zeros(nbytes, np.uint8)
        else:
            if clears:
                memory.fill(0)
        self._memory = memory
        self.__array_interface__ = memory.__array_interface__

    def __del__(self) -> None:
        if _pool is not None:  # the process does not end
            _return_to_pool(self._memory)


def _return_to_pool(memory: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
    """Pool a block; blocks of other sizes are freed if there are too many bytes."""
    nbytes = memory.nbytes
    others = sum(size * len(blocks) for size, blocks in list(_pool.items()) if size != nbytes)
    own = _pool.get(nbytes, ())
    if others + nbytes * (len(own) + 1) > _MOST_POOLED:
        for size in [*_pool]:
            if size != nbytes:
                _pool.pop(size, None)
    if nbytes * (len(own) + 1) <= _MOST_POOLED:
        _pool.setdefault(nbytes, []).append(memory)


def free_pooled_memory() -> None:
    """Free the blocks that nothing uses."""
    _pool.clear()


class HostAllocation:
    """An allocation of host memory; `bytes` is a numpy view that keeps it alive."""

    __slots__ = ("address", "bytes", "nbytes")

    def __init__(self, nbytes: int, *, clears: bool = True) -> None:
        # Pages of fresh memory are zero already: nothing is touched before it is used.
        whole = nbytes + ALIGNMENT
        is_pooled = whole in _POOLED
        block = _Block(whole, clears=clears) if is_pooled else np.zeros(whole, np.uint8)
        memory = np.asarray(block)
        start = -address_of(memory) % ALIGNMENT
        self.nbytes = nbytes
        self.bytes: np.ndarray[Any, np.dtype[np.uint8]] = memory[start : start + nbytes]
        self.address = address_of(memory) + start


def allocate(nbytes: int, *, clears: bool = True) -> HostAllocation:
    """Allocate ``nbytes`` at a multiple of 64: of zeros, if it ``clears`` them.

    Raises:
        OctantsMemoryError: the system is out of memory.
    """
    if nbytes < 0:
        raise ValueError(f"{nbytes} bytes")
    try:
        return HostAllocation(nbytes, clears=clears)
    except (MemoryError, ValueError, OverflowError):  # numpy: "Maximum allowed size exceeded"
        if not _pool:
            raise OctantsMemoryError(f"the system cannot allocate {nbytes} bytes") from None
    free_pooled_memory()
    return allocate(nbytes, clears=clears)


class HostMemory:
    """The memory methods of a `Device` whose memory is the host's."""

    shares_memory = True

    def allocate(self, nbytes: int, _: str = "", /) -> HostAllocation:
        """Allocate ``nbytes`` of zeros at a multiple of 64.

        Raises:
            OctantsMemoryError: the system is out of memory.
        """
        allocation = allocate(nbytes)
        capture = thread_capture()
        if capture is not None:
            capture.allocated(self.clear, allocation)
        return allocation

    def allocate_uninitialised(self, nbytes: int, what: str = "", /) -> HostAllocation:
        """Allocate memory with unspecified contents."""
        return self.allocate(nbytes, what) if thread_capture() else allocate(nbytes, clears=False)

    def staging_buffer(self, nbytes: int, written: int) -> StagingBuffer:
        """Allocate a staging buffer; a launch may write the first ``written`` bytes of its memory.

        Raises:
            OctantsMemoryError: the system is out of memory.
        """
        return PageableStagingBuffer(self, nbytes, written)

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

    def copy_each(self, pieces: tuple[tuple[int, int, int], ...]) -> None:
        """Make several copies: of each the target, the source, and the bytes. Not in a capture."""
        for target, source, nbytes in pieces:
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

    def clear_each(self, ranges: tuple[tuple[int, int], ...]) -> None:
        """Set several ranges to zero: addresses and bytes. Not in a capture."""
        for address, nbytes in ranges:
            ctypes.memset(address, 0, nbytes)

    def set_elements(self, address: int, element: bytes, count: int) -> None:
        """Fill ``count`` contiguous elements with the bytes of one."""
        set_elements(self, address, element, count)


def view_memory(
    address: int, dtype: np.dtype[Any] | type, shape: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    """View row-major memory at an address, which the caller keeps alive, as a numpy array."""
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
    """Describe an array at ``offset`` of ``nbytes`` of memory, for `runtime.memory.array_access`.

    Nothing is read, so the host need not share the memory. The result keeps ``owner`` alive.
    """
    memory = describe_bytes(address, nbytes, owner)
    part: np.ndarray[Any, Any] = np.ndarray(shape, dtype, memory, offset, strides)
    return part


def describe_bytes(
    address: int, nbytes: int, owner: Any = None
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Describe the bytes at an address; views of the result keep ``owner`` alive."""
    memory: Any = (ctypes.c_ubyte * max(1, nbytes)).from_address(address)
    memory.owner = owner
    return np.frombuffer(memory, np.uint8)


def shares_memory(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    """Whether two arrays share a byte; also True if that takes too long to decide."""
    try:
        most: Any = _MOST_WORK  # the types of some versions of numpy name -1 and 0 only
        shared: bool = np.shares_memory(one, other, max_work=most)
        return shared
    except RuntimeError:  # numpy's TooHardError, which has moved between its versions
        return True


def overlaps_itself(shape: Sequence[int], strides: Sequence[int], size: int) -> bool:
    """Whether elements of ``size`` bytes may overlap; False only if they certainly do not."""
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


_DATA_OFFSET = object.__basicsize__  # of the data pointer in numpy's array object


def _address_by_interface(array: np.ndarray[Any, Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _address_by_peeking(array: np.ndarray[Any, Any]) -> int:
    return ctypes.c_size_t.from_address(id(array) + _DATA_OFFSET).value


def _peeking_works() -> bool:
    samples: list[np.ndarray[Any, Any]] = [
        np.zeros(3),
        np.zeros((2, 2), np.int8),
        np.arange(8.0)[2:],
    ]
    return all(_address_by_peeking(x) == _address_by_interface(x) for x in samples)


address_of = _address_by_peeking if _peeking_works() else _address_by_interface
"""The address of an array's first element; numpy's own interface takes microseconds for it."""
