"""Copies arrays of the host to a device with discrete memory for a launch, and back after it.

Small copies are retained for the next launch. Arrays that the kernel may write are copied back also
when the launch fails, so that they are as the kernel left them. An array that is passed twice is
copied once.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from octants.lazy_dataclass import dataclass
from octants.runtime.arguments.conversions import check_extents, torch_companion, with_gradient
from octants.runtime.arguments.native_format_copies import identity
from octants.runtime.arguments.parameters import Leaf
from octants.runtime.capture import refuse
from octants.runtime.device import Device
from octants.runtime.memory.host import overlaps_itself, shares_memory
from octants.runtime.parameter_blocks.pool import ParameterBlockPool
from octants.types.companions import Companion

NumpyArray = np.ndarray[Any, Any]
Launch = Callable[..., tuple[Any, ...]]
_SMALL = 1 << 20  # the most bytes of a copy that is retained for the next launch


class DeviceArray:
    """A row-major array in device memory, which kernels take for an ndarray of Octants.

    The first ``rank`` axes are indexed, the others belong to the elements; None: all are indexed.
    """

    __slots__ = ("_addresses", "_allocation", "_device", "dtype", "head", "nbytes", "rank", "shape")

    def __init__(
        self, device: Device, shape: tuple[int, ...], dtype: Any, rank: int | None = None
    ) -> None:
        self.dtype = np.dtype(dtype)
        self.shape, self.rank = shape, rank
        self.nbytes = self.dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        self._device = device
        self._allocation = device.allocate(max(1, self.nbytes))
        extents = shape if rank is None else shape[:rank]
        self.head = struct.pack(f"<{len(extents)}qQ", *extents, self._allocation.address)
        self._addresses = {Companion.PRIMAL: self._allocation.address}

    def address(self, companion: Companion) -> int:
        return self._addresses[companion]

    def join(self, companion: Companion, array: DeviceArray) -> None:
        """Make another array a companion of this one."""
        self._addresses[companion] = array.address(Companion.PRIMAL)

    def read(self) -> NumpyArray:
        """Copy the elements to a new array of the host."""
        values: NumpyArray = np.empty(self.shape, self.dtype)
        self.read_into(values)
        return values

    def read_into(self, target: NumpyArray) -> None:
        """Copy the elements to an array of the host, of the same shape."""
        if target.flags.c_contiguous and target.dtype == self.dtype:
            if target.size:
                self._device.read(self._allocation.address, target.reshape(-1).view(np.uint8))
        else:
            target[...] = self.read()

    def write(self, values: NumpyArray) -> None:
        """Copy all elements from an array of the host, of the same shape."""
        if not (values.flags.c_contiguous and values.dtype == self.dtype):
            values = np.ascontiguousarray(values, self.dtype)
        if values.size:
            self._device.write(self._allocation.address, values)


@dataclass(frozen=True, slots=True)
class StagedLeaf:
    """A host-to-device argument: its axes, whether it is written, whether its gradient is accessed.

    A gradient that is accessed may be written.
    """

    leaf: Leaf
    rank: int
    is_written: bool
    has_gradient: bool


@dataclass(slots=True)
class _Piece:
    """Memory of the host, as the ``number``-th array of a launch, and its staging copy."""

    leaf: Leaf
    number: int
    copy: DeviceArray
    is_written: bool


@dataclass(slots=True)
class _Plan:
    """How the arrays of a launch are copied: `copies` of them all, and each memory once."""

    identities: tuple[Any, ...]
    copies: list[DeviceArray]
    pieces: list[_Piece]

    def retained(self) -> _Plan:
        """The plan for a later launch; without large copies one for other arrays."""
        small = [copy for copy in self.copies if copy.nbytes <= _SMALL]
        return self if len(small) == len(self.copies) else _Plan((), small, [])


def launch_on_staging_copies(
    launch: Launch,
    device: Device,
    leaves: Sequence[StagedLeaf],
    replace: Callable[[Sequence[Any], Leaf, Any], Sequence[Any]],
) -> Launch:
    """Wrap a launch function, so that it gets staging copies of some arguments.

    Args:
        launch: The launch function.
        device: The device.
        leaves: The arguments to copy.
        replace: Returns the arguments with another value for one leaf.
    """
    spare = ParameterBlockPool()

    def launch_on_copies(
        seed: int, number: int, persistent: int, *arguments: Any
    ) -> tuple[Any, ...]:
        if leaves:
            refuse("an array of the host cannot be sent to the device", "pass a field or ndarray")
        arrays = _arrays(leaves, arguments)
        plans = device.blocks_of(spare)
        plan = _plan(leaves, arrays, device, plans)
        replaced: Sequence[Any] = arguments
        copies = iter(plan.copies)
        for sent in leaves:
            replaced = replace(replaced, sent.leaf, next(copies))
            if sent.has_gradient:
                next(copies)
        for piece in plan.pieces:
            piece.copy.write(arrays[piece.number])
        try:
            return launch(seed, number, persistent, *replaced)
        finally:
            for piece in plan.pieces:
                if piece.is_written:
                    piece.copy.read_into(arrays[piece.number])
            plans.append(plan.retained())

    return launch_on_copies


def _arrays(leaves: Sequence[StagedLeaf], arguments: Sequence[Any]) -> list[NumpyArray]:
    """The arrays of the host, each before its gradient if that is accessed."""
    found = []
    for sent in leaves:
        value = sent.leaf.value(arguments)
        found.append(_elements(value))
        if sent.has_gradient:
            found.append(_elements(torch_companion(value, Companion.ADJOINT, strided=True)))
        elif not isinstance(value, np.ndarray):
            with_gradient(value)
    return found


def _elements(value: Any) -> NumpyArray:
    """An array of numpy, or the memory of a torch tensor as one."""
    elements: NumpyArray = value if isinstance(value, np.ndarray) else value.detach().numpy()
    return elements


def _plan(
    leaves: Sequence[StagedLeaf], arrays: list[NumpyArray], device: Device, plans: list[_Plan]
) -> _Plan:
    """The plan of an earlier launch with the same memory, which is taken, or a new one."""
    identities = tuple(map(identity, arrays))
    others = list[_Plan]()
    with contextlib.suppress(IndexError):  # other threads take plans, too
        while (known := plans.pop()).identities != identities:
            others.append(known)
        plans += others
        return known
    # An array that was passed twice has one copy.
    kept = list(dict.fromkeys(copy for each in others for copy in each.copies))
    plan = _Plan(identities, [], [])
    pieces: dict[Any, _Piece] = {}
    for sent in leaves:
        copy = _copy(plan, pieces, sent, arrays, device, sent.is_written, kept)
        if sent.has_gradient:
            copy.join(Companion.ADJOINT, _copy(plan, pieces, sent, arrays, device, True, kept))
    plan.pieces = list(pieces.values())
    _check_overlaps(plan.pieces, arrays)
    return plan


def _copy(
    plan: _Plan,
    pieces: dict[Any, _Piece],
    sent: StagedLeaf,
    arrays: list[NumpyArray],
    device: Device,
    is_written: bool,
    kept: list[DeviceArray],
) -> DeviceArray:
    """Add the staging copy of the next array: of this launch, a retained one, or a new one."""
    number = len(plan.copies)
    elements, key = arrays[number], (plan.identities[number], sent.rank)
    piece = pieces.get(key)
    if piece is None:
        dtype = elements.dtype.newbyteorder("=")
        copy = _take_retained_copy(kept, elements.shape, dtype, sent.rank)
        if copy is None:
            check_extents(sent.leaf, elements.shape[: sent.rank])
            copy = DeviceArray(device, elements.shape, dtype, sent.rank)
        piece = pieces[key] = _Piece(sent.leaf, number, copy, is_written)
    piece.is_written |= is_written
    plan.copies.append(piece.copy)
    return piece.copy


def _take_retained_copy(
    kept: list[DeviceArray], shape: tuple[int, ...], dtype: np.dtype[Any], rank: int
) -> DeviceArray | None:
    for position, copy in enumerate(kept):
        if (copy.shape, copy.dtype, copy.rank) == (shape, dtype, rank):
            return kept.pop(position)
    return None


def _check_overlaps(pieces: Sequence[_Piece], arrays: Sequence[NumpyArray]) -> None:
    """Refuse arguments that share memory, if one is written."""
    for position, piece in enumerate(pieces):
        elements = arrays[piece.number]
        if piece.is_written and overlaps_itself(
            elements.shape, elements.strides, elements.itemsize
        ):
            raise piece.leaf.error(
                "the kernel writes this array, whose elements share memory with each other",
                "pass a copy",
            )
        for other in pieces[position + 1 :]:
            is_written = piece.is_written or other.is_written
            if is_written and shares_memory(elements, arrays[other.number]):
                raise piece.leaf.error(
                    f"it shares memory with `{other.leaf.name}`, both are copied to the device, and"
                    " one of them is written",
                    "pass arrays that do not overlap, or one array and the offsets of its parts",
                )
