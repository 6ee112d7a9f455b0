"""Copies of contiguous regions in the memory of a device, by addresses alone.

Tapes that follow an earlier one make hundreds of small copies, each of which would be allocated and
described by itself. Here small ones share allocations.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from octants.analysis.indices.index_ranges import ArrayRegion
from octants.launch.gradients.taped_memory import TapedMemory
from octants.lazy_dataclass import dataclass
from octants.runtime.capture import captures, thread_capture
from octants.runtime.device import Device
from octants.runtime.memory.array_access import Saved
from octants.runtime.memory.host import describe

_BLOCK = 1 << 20  # bytes of an allocation for several copies
_SMALL = 1 << 16  # bytes of the largest copy that shares one
_ALIGNMENT = 256
_IDLE = 32  # tapes in other arenas, after which an arena may be freed for them
MOST_ARENA_BYTES = 1 << 28
"""Of the memory that tapes retain for the copies of later ones alike; what is idle is freed."""


class PackedCopy:
    """A copy of the bytes at an address of a device. `owner` is the allocation that it is in."""

    __slots__ = ("address", "device", "nbytes", "owner", "source")

    def __init__(self, device: Device, source: int, nbytes: int, owner: Any, address: int) -> None:
        self.device = device
        self.source = source
        self.nbytes = nbytes
        self.owner = owner
        self.address = address

    def save(self) -> None:
        """Make the copy."""
        self.device.copy(self.address, self.source, self.nbytes)

    def restore(self) -> None:
        """Write the bytes back."""
        if captures:
            self._keep()
        self.device.copy(self.source, self.address, self.nbytes)

    def _keep(self) -> None:
        capture = thread_capture()
        if capture is not None:
            capture.keep(self.owner)

    def as_snapshot(self, memory: TapedMemory, region: ArrayRegion) -> Any:
        """The copy as a snapshot of the region, as `TapedMemory.snapshot` makes it."""
        part = memory.part(region)
        layout = part.dtype, part.shape, part.strides
        copy = describe(self.address, self.nbytes, *layout, owner=self.owner)
        saved = copy if self.device.shares_memory else Saved(copy, self.owner, self.device)
        return saved if region is None else [saved]


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy that a tape made before a launch, and why; see `Account.note` for its last members.

    It is of a region of the array at a position of the launch's arrays.
    """

    position: int
    region: ArrayRegion
    array: str
    writer: str
    reader: str
    nbytes: int


class PackedLaunch:
    """The copies before each step of a launch, in an arena, for tapes that make them again.

    Copies are made as early as possible, so that most launches need one command for all.

    Args:
        steps: the copies.
        copies: what they are of, and why they were made.
        written: the positions of the arrays that each step writes.
    """

    __slots__ = ("_device", "_moves", "copies", "steps")

    def __init__(
        self,
        steps: Sequence[tuple[PackedCopy, ...]],
        copies: Sequence[Sequence[Copy]],
        written: Sequence[Collection[int]],
    ) -> None:
        self.steps, self.copies = tuple(steps), copies
        self._device = next((each.device for made in steps for each in made), None)
        moves: list[list[tuple[int, int, int]]] = [[] for _ in steps]
        for number, made in enumerate(steps):
            for copy, each in zip(copies[number], made, strict=True):
                first = number
                while first > 0 and copy.position not in written[first - 1]:
                    first -= 1
                moves[first].append((each.address, each.source, each.nbytes))
        self._moves = tuple(map(tuple, moves))

    def save(self, step: int) -> None:
        """Make the copies that are due before a step."""
        moves = self._moves[step]
        if moves and self._device is not None:
            self._device.copy_each(moves)

    @property
    def has_one_order(self) -> bool:
        """Whether no other stream may still use the copies of an earlier tape."""
        return self._device is None or self._device.has_one_order


class CopyArena:
    """Memory for the copies of tapes that begin with the same launch, of one at a time.

    Tapes alike have each of their copies at the same address. So how they are reversed can be
    replayed.

    Args:
        free: frees so many bytes of idle arenas, if they have as many.
    """

    _bytes_of_all = 0
    _tapes = 0
    nbytes = 0
    _latest = 0  # the number of the last tape that used it

    def __init__(self, free: Callable[[int], None]) -> None:
        self._blocks: list[tuple[Device, int, Any]] = []
        self._free = free
        self._user: Callable[[], Any] = _no_user

    def __del__(self) -> None:
        CopyArena._bytes_of_all -= self.nbytes

    def take(self, user: Any) -> bool:
        """Give the memory to a tape until it ends, or is done; False if another one has it."""
        if self._user() is not None:
            return False
        self._user = weakref.ref(user)
        self._latest = CopyArena._tapes = CopyArena._tapes + 1
        return True

    @property
    def is_idle(self) -> bool:
        """Whether no tape uses it, nor has for long."""
        return self._user() is None and CopyArena._tapes - self._latest >= _IDLE

    def release(self) -> None:
        """Note that the tape is done."""
        self._user = _no_user

    def block(self, number: int, device: Device, nbytes: int) -> Any:
        """The allocation with a number, of so many bytes; None if there is another one, or too
        much.

        Raises:
            MemoryError: the device is out of memory.
        """
        if number < len(self._blocks):
            known, size, owner = self._blocks[number]
            return owner if known is device and size == nbytes else None
        if self.nbytes + nbytes > MOST_ARENA_BYTES:
            return None
        beyond = CopyArena._bytes_of_all + nbytes - MOST_ARENA_BYTES
        if beyond > 0:
            self._free(beyond)
            if CopyArena._bytes_of_all + nbytes > MOST_ARENA_BYTES:
                return None
        owner = device.allocate_uninitialised(nbytes)
        self._blocks.append((device, nbytes, owner))
        self.nbytes += nbytes
        CopyArena._bytes_of_all += nbytes
        return owner


def _no_user() -> None:
    """The user of an arena that no tape uses."""


class PackedCopies:
    """Makes the copies of one tape.

    It `is_stable` while all of them are in the ``arena``, where those of a tape alike would be.
    """

    def __init__(self, arena: CopyArena | None = None) -> None:
        self.arena = arena
        self.is_stable = arena is not None
        self._count = 0
        self._ranges: dict[Any, tuple[Device, int, int] | None] = {}
        self._blocks: dict[Device, tuple[Any, int, int]] = {}

    def make(self, memory: TapedMemory, region: ArrayRegion) -> PackedCopy | None:
        """Copy a region; None if it is not contiguous.

        Raises:
            MemoryError: the device is out of memory.
        """
        key = memory.key, region
        if key not in self._ranges:
            self._ranges[key] = memory.contiguous_range(region)
        found = self._ranges[key]
        if found is None or captures:
            self.is_stable = False
            return None
        device, source, nbytes = found
        made = PackedCopy(device, source, nbytes, *self._allocate(device, nbytes))
        made.save()
        return made

    def adopt(self, copies: Iterable[PackedCopy]) -> None:
        """Note copies that were made where an earlier tape had made the same ones."""
        for each in copies:
            if self._allocate(each.device, each.nbytes)[1] != each.address:
                self.is_stable = False
                self._blocks.clear()  # later copies must not overwrite these

    def _allocate(self, device: Device, nbytes: int) -> tuple[Any, int]:
        """Memory for a copy: the allocation, and the address in it."""
        if self.is_stable and not device.has_one_order:
            self.is_stable = False  # other streams may still use the copies of an earlier tape
            self._blocks.clear()
        if nbytes > _SMALL:
            owner = self._block(device, nbytes)
            return owner, owner.address
        owner, start, end = self._blocks.get(device, (None, 0, 0))
        if start + nbytes > end:
            size = _BLOCK if self._count else _SMALL  # most programs need little of an arena
            owner = self._block(device, size)
            start, end = owner.address, owner.address + size
        self._blocks[device] = owner, start + -(-nbytes // _ALIGNMENT) * _ALIGNMENT, end
        return owner, start

    def _block(self, device: Device, nbytes: int) -> Any:
        """The next allocation."""
        number, self._count = self._count, self._count + 1
        found = None
        if self.is_stable and self.arena is not None:
            found = self.arena.block(number, device, nbytes)
        if found is None:
            self.is_stable = False
            found = device.allocate_uninitialised(nbytes)
        return found
