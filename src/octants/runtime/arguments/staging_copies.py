"""Copies arguments that kernels cannot access for a launch, and back after it.

These are arrays of the host where a device has its own memory, and elsewhere those of numpy with
swapped bytes or unaligned addresses.

Small copies are retained for the next launch. If all arrays of a launch are small, their copies lie
next to each other, so that one copy in each direction serves all of them. Arrays that the kernel
may write are copied back also when the launch fails, so that they are as the kernel left them. An
array that is passed twice is copied once.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from octants.lazy_dataclass import dataclass
from octants.runtime.arguments.conversions import (
    check_extents,
    check_torch_memory,
    torch_companion,
    with_gradient,
)
from octants.runtime.arguments.parameters import Leaf, is_torch
from octants.runtime.capture import captures, refuse
from octants.runtime.device import Allocation, Device, LoadedKernel
from octants.runtime.memory.host import (
    address_of,
    overlaps_itself,
    shares_memory,
    view_memory,
)
from octants.runtime.memory.staging_buffer import failure_of
from octants.runtime.parameter_blocks.pool import ParameterBlockPool
from octants.types.companions import Companion
from octants.types.specialisation_signature import NdarrayHandle

NumpyArray = np.ndarray[Any, Any]
Launch = Callable[..., tuple[Any, ...]]
_SMALL = 1 << 20  # the most bytes of a copy that is retained for the next launch
_JOINED = 1 << 14  # the most bytes of copies that lie next to each other
_MOST_JOINED = 8  # of these for arrays of other shapes
_ALIGNMENT = 64
_NUMPY = {np.ndarray}


class DeviceArray:
    """A row-major array in device memory, which kernels take for an ndarray of Octants.

    The first ``rank`` axes are indexed, the others belong to the elements; None: all are indexed.
    """

    __slots__ = (
        *("_addresses", "_allocation", "_device", "_elements"),
        *("dtype", "head", "nbytes", "rank", "shape"),
    )

    def __init__(
        self,
        device: Device,
        shape: tuple[int, ...],
        dtype: Any,
        rank: int | None = None,
        within: tuple[Allocation, int] | None = None,
    ) -> None:
        """Allocate the array; or use the memory at an offset ``within`` an allocation."""
        self.dtype = np.dtype(dtype)
        self.shape, self.rank = shape, rank
        self.nbytes = self.dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        self._device = device
        self._allocation, offset = within or (device.allocate(max(1, self.nbytes)), 0)
        extents = shape if rank is None else shape[:rank]
        address = self._allocation.address + offset
        self.head = struct.pack(f"<{len(extents)}qQ", *extents, address)
        self._addresses = {Companion.PRIMAL: address}
        self._elements = view_memory(address, dtype, shape) if device.shares_memory else None

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
        if self._elements is not None:
            target[...] = self._elements
        elif target.flags.c_contiguous and target.dtype == self.dtype:
            if target.size:
                self._device.read(self.address(Companion.PRIMAL), target.reshape(-1).view(np.uint8))
        else:
            target[...] = self.read()

    def write(self, values: NumpyArray) -> None:
        """Copy all elements from an array of the host, of the same shape."""
        if self._elements is not None:
            self._elements[...] = values
            return
        if not (values.flags.c_contiguous and values.dtype == self.dtype):
            values = np.ascontiguousarray(values, self.dtype)
        if values.size:
            self._device.write(self.address(Companion.PRIMAL), values)


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
    """Memory of the host, as the ``number``-th array of a launch, and its staging copy.

    It has the shape and the type of the copy; `rank` of its axes are indexed. Several arrays of a
    launch may be the same piece.
    """

    leaf: Leaf
    number: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    rank: int
    is_written: bool
    copy: DeviceArray | None = None

    @property
    def nbytes(self) -> int:
        """The bytes of the copy."""
        return self.dtype.itemsize * math.prod(self.shape)


class _JoinedCopies:
    """Copies next to each other in device memory, those that are written first.

    `parts` has the elements in the staging buffer that they are sent from, by the numbers of the
    arrays. The kernel may write the first of them: `written`.
    """

    def __init__(self, device: Device, pieces: Sequence[_Piece]) -> None:
        order = sorted(pieces, key=lambda piece: not piece.is_written)
        offsets = [0]
        for piece in order:
            offsets.append(offsets[-1] + -(-piece.nbytes // _ALIGNMENT) * _ALIGNMENT)
        count = sum(piece.is_written for piece in pieces)
        self._buffer = buffer = device.staging_buffer(offsets[-1], offsets[count])
        self.launch = buffer.launch
        self.parts: list[tuple[int, NumpyArray]] = []
        for piece, offset in zip(order, offsets, strict=False):
            elements = buffer.host[offset : offset + piece.nbytes].view(piece.dtype)
            self.parts.append((piece.number, elements.reshape(piece.shape)))
            within = buffer.memory, offset
            piece.copy = DeviceArray(device, piece.shape, piece.dtype, piece.rank, within)
        self.written = self.parts[:count]

    def send(self, arrays: Sequence[NumpyArray]) -> None:
        """Copy the arrays to the staging buffer."""
        for number, elements in self.parts:
            elements[...] = arrays[number]

    def fetch(self, arrays: Sequence[NumpyArray]) -> None:
        """Copy the arrays that were written back, if they were sent."""
        if not (self.written and self._buffer.is_launched):
            return
        try:
            self._buffer.download()
        finally:  # where the read reports a failure of the launch
            for number, elements in self.written:
                arrays[number][...] = elements


class _SeparateCopies:
    """Copies each in memory of its own."""

    def __init__(
        self, device: Device, pieces: Sequence[_Piece], retained: list[DeviceArray]
    ) -> None:
        self._pieces = pieces
        for piece in pieces:
            form = piece.shape, piece.dtype, piece.rank
            piece.copy = _take_retained_copy(retained, *form) or DeviceArray(device, *form)

    def send(self, arrays: Sequence[NumpyArray]) -> None:
        """Copy the arrays of the host to the device."""
        for piece in self._pieces:
            assert piece.copy is not None
            piece.copy.write(arrays[piece.number])

    def launch(self, run: Callable[[int], None], _: LoadedKernel, block: int) -> None:
        """Launch with the copies that were sent."""
        run(block)

    def fetch(self, arrays: Sequence[NumpyArray]) -> None:
        """Copy the arrays that were written back, and raise the first failure of a launch."""
        failure = None
        for piece in self._pieces:
            if piece.is_written and piece.copy is not None:
                found = failure_of(partial(piece.copy.read_into, arrays[piece.number]))
                failure = failure or found
        if failure is not None:
            raise failure


@dataclass(slots=True)
class _Plan:
    """How the arrays of a launch are copied: `copies` of them all, and each memory once.

    `arguments` are the copies that stand for arguments; the others are gradients of these.
    """

    identities: tuple[Any, ...]
    copies: list[DeviceArray]
    arguments: list[DeviceArray]
    pieces: list[_Piece]
    memory: _JoinedCopies | _SeparateCopies | None

    def retained(self) -> _Plan:
        """The plan for a later launch; without large copies one for other arrays."""
        if isinstance(self.memory, _JoinedCopies):
            return self
        small = [copy for copy in self.copies if copy.nbytes <= _SMALL]
        return self if len(small) == len(self.copies) else _Plan((), small, [], [], None)

    def fits(self, identities: tuple[Any, ...]) -> bool:
        """Whether it serves other arrays of the same form, none of them passed twice."""
        if not isinstance(self.memory, _JoinedCopies) or len(self.pieces) != len(identities):
            return False
        forms = zip(self.identities, identities, strict=True)
        return all(own[1:] == other[1:] for own, other in forms) and len({*identities}) == len(
            identities
        )


def launch_on_staging_copies(
    launch: Launch,
    device: Device,
    leaves: Sequence[StagedLeaf],
    others: Sequence[tuple[Leaf, bool]],
    replace: Callable[[Sequence[Any], Leaf, Any], Sequence[Any]],
) -> Launch:
    """Wrap a launch function, so that it gets staging copies of some arguments.

    Args:
        launch: The launch function, which takes a function for launching with the copies.
        device: The device.
        leaves: The arguments to copy.
        others: The array arguments in the same memory, each with whether the kernel writes it.
        replace: Returns the arguments with another value for one leaf.
    """
    spare = ParameterBlockPool()
    has_structs = any(sent.leaf.path for sent in leaves)
    positions = [sent.leaf.position for sent in leaves]
    may_be_numpy = not has_structs and not any(sent.has_gradient for sent in leaves)

    def launch_on_copies(
        seed: int, number: int, persistent: int, *arguments: Any
    ) -> tuple[Any, ...]:
        if captures and leaves:
            refuse("an array of the host cannot be copied for a launch", "pass a field or ndarray")
        arrays = [arguments[k] for k in positions]
        if not may_be_numpy or {*map(type, arrays)} != _NUMPY:
            arrays = _arrays(leaves, arguments)
        if others:
            _check_others(leaves, arrays, others, arguments)
        plans = device.blocks_of(spare)
        plan = _plan(leaves, arrays, device, plans)
        replaced: Sequence[Any] = arguments
        if has_structs:
            for sent, copy in zip(leaves, plan.arguments, strict=True):
                replaced = replace(replaced, sent.leaf, copy)
        else:
            replaced = given = list(arguments)
            for position, copy in zip(positions, plan.arguments, strict=True):
                given[position] = copy
        memory = plan.memory
        assert memory is not None
        memory.send(arrays)
        try:
            return launch(seed, number, persistent, memory.launch, *replaced)
        finally:
            memory.fetch(arrays)
            plans.append(plan.retained())

    return launch_on_copies


def _arrays(leaves: Sequence[StagedLeaf], arguments: Sequence[Any]) -> list[NumpyArray]:
    """The arrays of the host, each before its gradient if that is accessed."""
    found = []
    for sent in leaves:
        value = sent.leaf.value(arguments)
        if is_torch(type(value)):
            check_torch_memory(sent.leaf, value)
        found.append(_elements(value))
        if sent.has_gradient:
            found.append(_elements(torch_companion(value, Companion.ADJOINT, strided=True)))
        elif not isinstance(value, np.ndarray):
            with_gradient(value)
    return found


def _elements(value: Any) -> NumpyArray:
    """The memory of an array that the host shares, as an array of numpy."""
    if isinstance(value, np.ndarray):
        return value
    if is_torch(type(value)):
        elements: NumpyArray = value.detach().numpy()
        return elements
    assert isinstance(value, NdarrayHandle)
    kind = value.argument_type
    shape = (*value.shape, *kind.element_shape)
    return view_memory(value.address(Companion.PRIMAL), kind.dtype.numpy, shape)


def identity(array: NumpyArray) -> Any:
    """A key that is equal for arrays with the same elements in the same order."""
    return address_of(array), array.shape, array.strides, array.dtype


def _plan(
    leaves: Sequence[StagedLeaf], arrays: list[NumpyArray], device: Device, plans: list[_Plan]
) -> _Plan:
    """The plan of an earlier launch with the same memory, which is taken, or a new one."""
    identities = tuple(map(identity, arrays))
    others = list[_Plan]()
    try:
        while (known := plans.pop()).identities != identities:
            others.append(known)
    except IndexError:  # also where other threads take plans
        pass
    else:
        plans += others
        return known
    similar = next((each for each in others if each.fits(identities)), None)
    joined = [each for each in others if isinstance(each.memory, _JoinedCopies)]
    plans += [each for each in joined if each is not similar][:_MOST_JOINED]
    if similar is None:
        return _new_plan(leaves, arrays, identities, device, others)
    _check_overlaps(similar.pieces, arrays)
    similar.identities = identities
    return similar


def _new_plan(
    leaves: Sequence[StagedLeaf],
    arrays: list[NumpyArray],
    identities: tuple[Any, ...],
    device: Device,
    others: Sequence[_Plan],
) -> _Plan:
    """A new plan, which takes retained copies from others."""
    found: dict[Any, _Piece] = {}
    pieces = [
        _add_piece(found, leaf, rank, number, arrays[number], identities[number], is_written)
        for number, (leaf, rank, is_written) in enumerate(_staged_arrays(leaves))
    ]
    each = list(found.values())
    for piece in each:
        check_extents(piece.leaf, piece.shape[: piece.rank])
    _check_overlaps(each, arrays)
    memory: _JoinedCopies | _SeparateCopies
    if sum(piece.nbytes for piece in each) <= _JOINED:
        memory = _JoinedCopies(device, each)
    else:
        # An array that was passed twice has one copy.
        separate = [plan for plan in others if not isinstance(plan.memory, _JoinedCopies)]
        retained = list(dict.fromkeys(copy for plan in separate for copy in plan.copies))
        memory = _SeparateCopies(device, each, retained)
    copies = [piece.copy for piece in pieces if piece.copy is not None]
    arguments, rest = [], iter(copies)
    for sent in leaves:
        arguments.append(next(rest))
        if sent.has_gradient:
            arguments[-1].join(Companion.ADJOINT, next(rest))
    return _Plan(identities, copies, arguments, each, memory)


def _staged_arrays(leaves: Sequence[StagedLeaf]) -> Iterator[tuple[Leaf, int, bool]]:
    """The leaf, the rank, and whether it is written, of each array: arguments and gradients."""
    for sent in leaves:
        yield sent.leaf, sent.rank, sent.is_written
        if sent.has_gradient:
            yield sent.leaf, sent.rank, True


def _add_piece(
    pieces: dict[Any, _Piece],
    leaf: Leaf,
    rank: int,
    number: int,
    elements: NumpyArray,
    identity: Any,
    is_written: bool,
) -> _Piece:
    """The piece of an array of a launch, which other arrays may share."""
    piece = pieces.get((identity, rank))
    if piece is None:
        dtype = elements.dtype.newbyteorder("=")
        piece = _Piece(leaf, number, elements.shape, dtype, rank, is_written)
        pieces[identity, rank] = piece
    piece.is_written |= is_written
    return piece


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


def _check_others(
    leaves: Sequence[StagedLeaf],
    arrays: Sequence[NumpyArray],
    others: Sequence[tuple[Leaf, bool]],
    arguments: Sequence[Any],
) -> None:
    """Refuse copies of arrays that share memory with other arguments, if one is written."""
    for copied, elements in zip(leaves, arrays, strict=True):
        for leaf, is_written in others:
            may_conflict = is_written or copied.is_written
            if may_conflict and shares_memory(elements, _elements(leaf.value(arguments))):
                raise copied.leaf.error(
                    f"it shares memory with `{leaf.name}`, but has swapped bytes or odd addresses,"
                    " and one of them is written",
                    "pass arrays that do not overlap",
                )
