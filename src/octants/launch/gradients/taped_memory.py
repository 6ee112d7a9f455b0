"""Identifies, saves and restores the memory of arrays, for tapes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from octants.analysis.indices.index_ranges import (
    LARGEST_INDEX,
    ArrayRegion,
    IndexRanges,
    tidy,
)
from octants.data.host_access_events import HostWrite
from octants.data.tape_array_protocol import StoredArray
from octants.diagnostics.tape_errors import PartialOverlap
from octants.hashing import blake2b
from octants.ir.core import Array, Companion, Space
from octants.launch.gradients.taped_foreign_arrays import ForeignArray, foreign_array
from octants.launch.persistent_storage import PersistentStorage
from octants.launch.specialisation import Specialisation
from octants.runtime.arguments.conversions import torch_companion
from octants.runtime.arguments.overlap_test import are_disjoint
from octants.runtime.capture import thread_capture
from octants.runtime.device import Device
from octants.runtime.memory.array_access import Part, Parts
from octants.runtime.memory.host import address_of, shares_memory
from octants.types.specialisation_signature import FieldHandle, FieldSource

ADJOINT = Companion.ADJOINT
CALLERS_SPACES = Space.FIELD, Space.NDARRAY
"""Of the arrays that are in memory outside of a launch."""
_MOST_LAUNCHES = 4096


class TapedMemory:
    """The primal contents of one array. Equal keys are the same memory.

    One that `is_foreign` is of numpy or torch.
    """

    __slots__ = ("array", "is_field", "is_foreign", "key", "name")

    def __init__(self, array: StoredArray, name: str, *, is_foreign: bool = False) -> None:
        self.array = array
        self.key = array.identity
        self.name = name
        self.is_field = not is_foreign and isinstance(array, FieldHandle)
        self.is_foreign = is_foreign

    @property
    def is_untracked(self) -> bool:
        """Whether it may change without a notification."""
        return self.is_foreign or self.is_exported

    @property
    def is_exported(self) -> bool:
        """Whether it is of Octants, and others may write it uncounted.

        They do not in a capture, which holds launches only.
        """
        return self.array.is_untracked and thread_capture() is None

    @property
    def may_share(self) -> bool:
        """Whether other arrays may share the memory: it is imported, or was exported."""
        return getattr(self.array, "explicit_identity", None) is None

    def companion_array(self, companion: Companion) -> StoredArray:
        """The derivative of an array that has one; that of a tensor is created if need be."""
        found: StoredArray | None = self.array.companion_array(companion)
        if found is None:
            assert isinstance(self.array, ForeignArray)
            torch_companion(self.array.owner, companion, strided=True)
            found = self.array.companion_array(companion)
            assert found is not None
        return found

    @property
    def version(self) -> int:
        """Changes when the array was written by other means than launches, as far as that is
        tracked.
        """
        return self.array.version + self.array.shared_version

    @property
    def has_regions(self) -> bool:
        """Whether regions of it can be saved and restored."""
        return self._whole() is not None

    def _whole(self) -> Part | None:
        """The elements by index, as a part for `_access`; None where an axis is split."""
        array: Any = self.array
        return array.elements if isinstance(array, ForeignArray) else array.window().part()

    @property
    def _access(self) -> Parts:
        """The access to its memory."""
        array: Any = self.array
        return array.parts if isinstance(array, ForeignArray) else array.window().parts

    def _parts(self, region: ArrayRegion) -> list[Part]:
        """The parts of a region, one for each range of indices."""
        whole = self._whole()
        assert whole is not None
        return [whole] if region is None else [whole[_slices(ranges)] for ranges in region]

    def contiguous_range(self, region: ArrayRegion) -> tuple[Device, int, int] | None:
        """The device, address and bytes of a region; None in a capture, and if it has gaps."""
        found: tuple[Device, int, int] | None = self.array.contiguous_range()
        if found is None or not self.has_regions:
            return None
        if region is not None and len(region) != 1:
            return None
        part = self.part(region)
        if not part.flags.c_contiguous or part.size == 0:
            return None
        return found[0], address_of(part), part.nbytes

    def part(self, region: ArrayRegion) -> Part:
        """The part of a region of one range of indices; see `runtime.memory.array_access`."""
        return self._parts(region)[0]

    def covers(self, region: ArrayRegion) -> bool:
        """Whether a region includes all elements."""
        if region is None:
            return True
        ends = [extent - 1 for extent in self.shape]
        return any(
            all(low <= 0 and end <= high for (low, high), end in zip(ranges, ends, strict=False))
            for ranges in region
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents; of an array of another library or of numpy with those of its elements."""
        array: Any = self.array
        shape = (array.elements if isinstance(array, ForeignArray) else array).shape
        return tuple(shape)

    def batched_shape(self, element_shape: tuple[int, ...], count: int) -> tuple[int, ...]:
        """The extents without those of the elements, behind an axis for a batch of several."""
        shape = self.shape
        if self.is_foreign:
            shape = shape[: len(shape) - len(element_shape)]
        return (count, *shape) if count > 1 else shape

    def nbytes(self, region: ArrayRegion = None) -> int:
        """The size of a snapshot, in bytes."""
        if region is None:
            return self.array.nbytes
        return sum(part.nbytes for part in self._parts(region))

    def digest(self, region: ArrayRegion = None) -> bytes:
        """A hash of the contents of a region."""
        state = blake2b(digest_size=16)
        if region is None:
            state.update(self.array.read().tobytes())
        else:
            for part in self._parts(region):
                state.update(self._access.read(part).tobytes())
        return state.digest()

    def snapshot(self, region: ArrayRegion = None) -> Any:
        """A copy of a region, for `restore`."""
        if region is None:
            return self.array.snapshot()
        return [self._access.save(part) for part in self._parts(region)]

    def restore(self, saved: Any, region: ArrayRegion = None) -> None:
        """Write back what `snapshot` returned for a region."""
        if region is None:
            self.array.restore(saved)
            return
        for part, values in zip(self._parts(region), saved, strict=True):
            self._access.restore(part, values)

    def restore_part(self, saved: Any, region: ArrayRegion) -> None:
        """Write back a region of what `snapshot` returned for the whole array."""
        parts = None if region is None else [saved[_slices(ranges)] for ranges in region]
        self.restore(saved if parts is None else parts, region)

    def update_saved(self, saved: Any, region: ArrayRegion) -> None:
        """Copy a region to what `snapshot` returned for the whole array."""
        for ranges, part in zip(region or (), self._parts(region), strict=True):
            copy = saved[_slices(ranges)]
            self._access.restore(getattr(copy, "part", copy), self._access.save(part))

    def holds(self, saved: Any, region: ArrayRegion = None) -> bool:
        """Whether a region equals what `snapshot` returned, bit by bit."""
        given = [saved] if region is None else saved
        return all(map(self._access.holds, self._parts(region), given))

    def overlaps(self, other: TapedMemory) -> bool:
        """Whether a write to one can change the other."""
        if self.key == other.key:
            return True
        if self.is_field and other.is_field:
            return False
        (start, end), (other_start, other_end) = self.array.extent, other.array.extent
        if start >= other_end or other_start >= end:
            return False
        if isinstance(self.array, ForeignArray) and isinstance(other.array, ForeignArray):
            return shares_memory(self.array.elements, other.array.elements)
        return True


def _slices(ranges: IndexRanges) -> tuple[Any, ...]:
    """The index of a range; an ellipsis at the end makes the result a view at any rank."""
    return (*(slice(max(low, 0), max(high + 1, 0)) for low, high in ranges), Ellipsis)


_needs_no_wrapper: dict[type, bool] = {}


def _is_stored(array: Any) -> bool:
    """Whether an array is a `StoredArray`; a test of an abstract class takes long."""
    kind = type(array)
    known = _needs_no_wrapper.get(kind)
    if known is None:
        known = _needs_no_wrapper[kind] = issubclass(kind, StoredArray)
    return known


def memory_of(array: Any, name: str) -> TapedMemory:
    """The memory of an array argument, of Octants, numpy or torch."""
    if _is_stored(array):
        return TapedMemory(array, name)
    wrapped = foreign_array(array)
    assert wrapped is not None
    return TapedMemory(wrapped, name, is_foreign=True)


def memory_of_write(write: HostWrite) -> TapedMemory | None:
    """The memory that the host is about to write; None for a gradient or a dual."""
    if write.array.companion is not Companion.PRIMAL:
        return None
    return TapedMemory(write.array, write.array.describe())


def region_of_write(write: HostWrite) -> ArrayRegion:
    """The elements that the host is about to write."""
    return region_of(write.array, write.region)


def region_of(array: Any, index: tuple[int, ...]) -> ArrayRegion:
    """The elements of an array with these first indices."""
    rank = len(array.shape)
    indices = index[:rank]
    if not indices:
        return None
    return ((*((k, k) for k in indices), *[(0, LARGEST_INDEX)] * (rank - len(indices))),)


def memories_of(
    specialisation: Specialisation, arguments: tuple[Any, ...]
) -> Mapping[int, TapedMemory]:
    """The memories of the fields and ndarrays of a launch, by position in the module's arrays."""
    known = known_memories(specialisation)
    if known is not None:
        return known
    found = _find_memories(specialisation, arguments)
    if all(memory.is_field for memory in found.values()):
        specialisation.holding().memories = found
    return found


def known_memories(specialisation: Specialisation) -> Mapping[int, TapedMemory] | None:
    """The result of `memories_of` that all launches share; None if it is unknown, or differs."""
    known: Mapping[int, TapedMemory] | None = specialisation.holding().memories
    return known


def _find_memories(
    specialisation: Specialisation, arguments: tuple[Any, ...]
) -> dict[int, TapedMemory]:
    return {
        position: memory_at(specialisation, position, arguments)
        for position, array in enumerate(specialisation.arrays)
        if array.space in CALLERS_SPACES
    }


def written_regions(
    specialisation: Specialisation,
    arguments: tuple[Any, ...],
    memories: Mapping[int, TapedMemory],
) -> list[tuple[TapedMemory, ArrayRegion]]:
    """The arrays that a launch writes, with the region of each; None for all of it.

    Launches on fields that repeat their integers share the regions.
    """
    named = tuple(arguments[k] for k in specialisation.regions.named)
    known: dict[Any, list[tuple[int, ArrayRegion]]] = {}
    key: Any = None
    if memories is known_memories(specialisation) and all(type(k) is int for k in named):
        known, key = specialisation.fast_paths.setdefault("written regions", known), named
    found = known.get(key)
    if found is None:
        if len(known) >= _MOST_LAUNCHES:
            known.clear()
        found = known[key] = list(_written(specialisation, arguments, memories))
    return [(memories[k], region) for k, region in found]


def _written(
    specialisation: Specialisation,
    arguments: tuple[Any, ...],
    memories: Mapping[int, TapedMemory],
) -> Iterator[tuple[int, ArrayRegion]]:
    """The positions of the arrays that a launch writes, with the region of each."""
    accessed = specialisation.regions.of(arguments)
    for k in specialisation.written:
        region = tidy(accessed[k].written) if k in accessed else None
        yield k, None if memories[k].covers(region) else region


def memory_at(
    specialisation: Specialisation, position: int, arguments: tuple[Any, ...]
) -> TapedMemory:
    """The memory of the field or ndarray at a position of the module's arrays."""
    source, name = specialisation.sources[position], specialisation.arrays[position].name
    if isinstance(source, FieldSource):
        return memory_of(source.field, name)
    return memory_of(specialisation.leaf(position).value(arguments), name)


def have_separate_addresses(
    specialisation: Specialisation, memories: Mapping[int, TapedMemory]
) -> bool:
    """Whether the addresses of all arrays of a launch, and of their gradients, are disjoint.

    That is the usual case, and quick to recognise. Fields of one tree may be interleaved.
    """
    arrays, extents = specialisation.arrays, []
    for position, memory in memories.items():
        extents.append(memory.array.extent)
        if arrays[position].has(ADJOINT):
            array: Any = memory if memory.may_share else memory.array
            gradient = array.companion_array(ADJOINT)
            if gradient is not None:
                extents.append(gradient.extent)
    return are_disjoint(extents)


def aliases_of(
    specialisation: Specialisation, memories: Mapping[int, TapedMemory]
) -> tuple[int, ...]:
    """For each array of a kernel, the position of the first one with the same memory.

    Raises:
        OctantsRuntimeError: arrays overlap in other ways, and the kernel writes one of them. The
            meaning of their derivatives is not known when the kernel is compiled.
    """
    aliases = _same_keys(specialisation, memories)
    if not all(memory.is_field for memory in memories.values()):
        _check_overlaps(specialisation, memories, aliases)
    return tuple(aliases)


def equals_of(
    specialisation: Specialisation, memories: Mapping[int, TapedMemory]
) -> tuple[int, ...]:
    """For each array of a kernel, the position of the first one of the same kind and memory."""
    arrays = specialisation.arrays
    first = _same_keys(specialisation, memories)
    return tuple(
        one if _is_alike(arrays[one], array) else position
        for position, (one, array) in enumerate(zip(first, arrays, strict=True))
    )


def _same_keys(specialisation: Specialisation, memories: Mapping[int, TapedMemory]) -> list[int]:
    """For each array of a kernel, the position of the first one that is the same.

    That is the same memory, with the same derivatives.
    """
    first: dict[Any, int] = {}
    aliases = list(range(len(specialisation.arrays)))
    for position, memory in memories.items():
        key = memory.key
        if memory.may_share:
            kinds = filter(specialisation.arrays[position].has, (ADJOINT, Companion.TANGENT))
            key = key, *(memory.companion_array(kind).identity for kind in kinds)
        aliases[position] = first.setdefault(key, position)
    return aliases


def _check_overlaps(
    specialisation: Specialisation, memories: Mapping[int, TapedMemory], aliases: list[int]
) -> None:
    arrays = specialisation.arrays
    written = set(specialisation.written)
    for one, other in _close_pairs(memories):
        if not memories[one].overlaps(memories[other]):
            continue
        if aliases[one] == aliases[other] and _is_alike(arrays[one], arrays[other]):
            continue
        if one in written or other in written:
            names = arrays[one].name, arrays[other].name
            raise PartialOverlap(specialisation.signature.kernel, *names).at()
        aliases[other] = other


def _close_pairs(memories: Mapping[int, TapedMemory]) -> list[tuple[int, int]]:
    """The pairs of positions, in order, that may overlap; a kernel may have hundreds of arrays.

    Two fields are among them only if they are the same, since the elements of others may be
    interleaved in memory.
    """
    found: set[tuple[int, int]] = set()
    same: dict[Any, list[int]] = {}
    for position, memory in memories.items():
        same.setdefault(memory.key, []).append(position)
    for positions in same.values():
        found.update(itertools.combinations(positions, 2))
    spans = sorted((memory.array.extent, position) for position, memory in memories.items())
    open_spans: list[tuple[int, int]] = []  # ends and positions of spans that have not ended
    for (start, end), position in spans:
        open_spans = [span for span in open_spans if span[0] >= start]
        is_field = memories[position].is_field
        for _, other in open_spans:
            if not (is_field and memories[other].is_field):
                found.add((min(position, other), max(position, other)))
        open_spans.append((end, position))
    return sorted(found)


def is_alias_free(
    specialisation: Specialisation, memories: Mapping[int, TapedMemory], aliases: Sequence[int]
) -> bool:
    """Whether no two arrays of a launch, or their gradients, share memory, except for ``aliases``.

    Fields and ndarrays that were never exported share memory only if they are the same.
    """
    arrays = specialisation.arrays
    ours: set[Any] = set()
    others: list[StoredArray] = []
    extents: list[tuple[int, int]] = []
    for position, memory in memories.items():
        if aliases[position] != position:
            continue
        for companion in (Companion.PRIMAL, Companion.ADJOINT):
            known = arrays[position].has(companion)
            found = memory.array.companion_array(companion) if known else None
            if found is None:
                continue
            if found.identity in ours:
                return False
            ours.add(found.identity)
            if memory.may_share:
                others.append(found)
            elif not memory.is_field:
                extents.append(found.extent)
    spans = [other.extent for other in others]
    pairs = [*itertools.combinations(spans, 2), *itertools.product(spans, extents)]
    return not any(one[0] < other[1] and other[0] < one[1] for one, other in pairs)


def _is_alike(one: Array, other: Array) -> bool:
    return (one.dtype, one.rank, one.element_shape, one.space) == (
        other.dtype,
        other.rank,
        other.element_shape,
        other.space,
    )


def adjoint_of(array: Any) -> Any:
    """The gradient of an array of Octants, if it has one in memory."""
    if array is None or not array.has_grad():
        return None
    return array.companion_array(Companion.ADJOINT)


def persistent_memory(persistent: PersistentStorage, position: int) -> TapedMemory:
    """The memory of a launch-temporary array that crosses the tasks of a recorded launch."""
    elements = ForeignArray(persistent, persistent.part(position), persistent.parts)
    return TapedMemory(elements, persistent.layout.arrays[position].name)
