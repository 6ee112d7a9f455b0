"""Memory as a tape sees it: who it is, what it overlaps with, and how it is saved and put back."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from octants.analysis.regions import FARTHEST, Box, Region
from octants.data.events import HostWrite
from octants.data.host_array import Tensor
from octants.data.stored import StoredArray
from octants.diagnostics.tape_errors import PartialOverlap
from octants.ir.core import Array, Companion, Space
from octants.launch.foreign import ForeignArray, foreign_array
from octants.launch.gradient import Outside
from octants.launch.specialisation import Specialisation
from octants.types.signature import FieldHandle, FieldSource


class Memory:
    """The primal contents of one array. Equal keys are the same memory.

    `is_foreign` arrays, numpy's and torch's, can be changed by others without our seeing it.
    """

    __slots__ = ("array", "is_field", "is_foreign", "key", "name")

    def __init__(self, array: StoredArray, name: str, *, is_foreign: bool = False) -> None:
        self.array = array
        self.key = array.identity
        self.name = name
        self.is_field = isinstance(array, FieldHandle)
        self.is_foreign = is_foreign

    @property
    def version(self) -> int:
        """Changes when the array was written by other means than launches."""
        return self.array.version

    @property
    def has_regions(self) -> bool:
        """Whether parts of it can be saved and put back."""
        return self._view() is not None

    def _view(self) -> np.ndarray[Any, Any] | None:
        """The elements of an array of ours by their indices; None where an axis is split."""
        return self.array.window().view() if isinstance(self.array, Tensor) else None

    def snapshot(self, region: Region = None) -> Any:
        """A copy of a region, for `restore`."""
        if region is None:
            return self.array.snapshot()
        view = self._view()
        assert view is not None
        return [view[_slices(box)].copy() for box in region]

    def restore(self, saved: Any, region: Region = None) -> None:
        """Write back what `snapshot` gave for a region."""
        if region is None:
            self.array.restore(saved)
            return
        view = self._view()
        assert view is not None
        for box, values in zip(region, saved, strict=True):
            view[_slices(box)] = values

    def restore_part(self, saved: Any, region: Region) -> None:
        """Write back a region of what `snapshot` gave for all."""
        parts = None if region is None else [saved[_slices(box)] for box in region]
        self.restore(saved if parts is None else parts, region)

    def holds(self, saved: Any) -> bool:
        """Whether the array is what `snapshot` gave, bit by bit."""
        now = self.array.snapshot()
        return np.array_equal(now.reshape(-1).view(np.uint8), saved.reshape(-1).view(np.uint8))

    def overlaps(self, other: Memory) -> bool:
        """Whether a write to one can change the other."""
        if self.key == other.key:
            return True
        if self.is_field and other.is_field:
            return False
        (start, end), (other_start, other_end) = self.array.extent, other.array.extent
        return start < other_end and other_start < end


def _slices(box: Box) -> tuple[slice, ...]:
    return tuple(slice(max(low, 0), max(high + 1, 0)) for low, high in box)


def memory_of(array: Any, name: str) -> Memory:
    """The memory of an array that a launch was given: ours, or one of numpy or torch."""
    if isinstance(array, StoredArray):
        return Memory(array, name)
    wrapped = foreign_array(array)
    assert wrapped is not None
    return Memory(wrapped, name, is_foreign=True)


def memory_of_write(write: HostWrite) -> Memory | None:
    """The memory that the host is about to write; None for a gradient or a dual."""
    if write.array.companion is not Companion.PRIMAL:
        return None
    return Memory(write.array, write.array.describe())


def region_of_write(write: HostWrite) -> Region:
    """The elements that the host is about to write."""
    rank = len(write.array.shape)
    indices = write.region[:rank]
    if not indices:
        return None
    return ((*((k, k) for k in indices), *[(0, FARTHEST)] * (rank - len(indices))),)


def memories_of(specialisation: Specialisation, arguments: tuple[Any, ...]) -> dict[int, Memory]:
    """The memories of the fields and ndarrays of a launch, by position in the module's arrays."""
    found = {}
    arrays = zip(specialisation.module.arrays, specialisation.sources, strict=True)
    for position, (array, source) in enumerate(arrays):
        if array.space is Space.FIELD:
            assert isinstance(source, FieldSource)
            found[position] = memory_of(source.field, array.name)
        elif array.space is Space.NDARRAY:
            value = specialisation.leaf(position).value(arguments)
            found[position] = memory_of(value, array.name)
    return found


def aliases_of(specialisation: Specialisation, memories: Mapping[int, Memory]) -> tuple[int, ...]:
    """For each array of a kernel, the position of the first one with the same memory.

    Arrays that overlap in other ways are an error if the kernel writes one of them: what their
    derivatives mean is not known when the kernel is compiled.
    """
    first: dict[Any, int] = {}
    aliases = list(range(len(specialisation.module.arrays)))
    for position, memory in memories.items():
        aliases[position] = first.setdefault(memory.key, position)
    if not all(memory.is_field for memory in memories.values()):
        _check_overlaps(specialisation, memories, aliases)
    return tuple(aliases)


def _check_overlaps(
    specialisation: Specialisation, memories: Mapping[int, Memory], aliases: list[int]
) -> None:
    arrays = specialisation.module.arrays
    written = {arrays.index(array) for array in specialisation.written}
    for one, other in itertools.combinations(memories, 2):
        if not memories[one].overlaps(memories[other]):
            continue
        if aliases[one] == aliases[other] and _is_alike(arrays[one], arrays[other]):
            continue
        if one in written or other in written:
            names = arrays[one].name, arrays[other].name
            raise PartialOverlap(specialisation.signature.kernel, *names).at(None)
        aliases[other] = other


def _is_alike(one: Array, other: Array) -> bool:
    return (one.dtype, one.rank, one.element_shape, one.space) == (
        other.dtype,
        other.rank,
        other.element_shape,
        other.space,
    )


def adjoint_of(array: Any) -> Any:
    """The gradient of an array of ours, where it has one in memory."""
    if array is None or not array.has_grad():
        return None
    return array.companion_array(Companion.ADJOINT)


def outside_memory(outside: Outside, position: int) -> Memory:
    """A launch-temporary array that crosses the tasks of a recorded launch."""
    elements = outside.numbers(position)
    return Memory(ForeignArray(outside, elements), outside.layout.arrays[position].name)
