"""Recovers the arguments of a launch from its parameter block."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from octants.artifact import SYSTEM, ParameterLayout, Slot
from octants.lazy_dataclass import dataclass
from octants.types.scalars import DType

_NUMBER = struct.Struct("=Q")


@dataclass(frozen=True, slots=True)
class LastLaunch:
    """The slots of a parameter block of a finished launch."""

    layout: ParameterLayout
    slots: np.ndarray[Any, Any]

    def address(self, array: int) -> int:
        """The address of the array at a position of the module."""
        return int(self.slots[self.layout.position(Slot("pointer", array=array))])

    def shape(self, array: int, rank: int) -> tuple[int, ...]:
        """The extents of an ndarray."""
        slots = [Slot("shape", array=array, index=axis) for axis in range(rank)]
        return tuple(int(self.slots[self.layout.position(slot)]) for slot in slots)

    def scalar(self, array: int, dtype: DType, component: int = 0) -> Any:
        """The value of a scalar argument, or of a component of a vector or matrix."""
        position = self.layout.position(Slot("scalar", array=array, index=component))
        return self.slots[position : position + 1].view(dtype.numpy)[0].item()


def last_launch(layout: ParameterLayout, blocks: Sequence[Any], number: int) -> LastLaunch | None:
    """The arguments of the launch with a number, among free blocks; None if it is not there."""
    block = _block_of(blocks, number)
    if block is None:
        return None
    return LastLaunch(layout, np.frombuffer(block, np.uint64, len(layout.slots)).copy())


def last_arguments(layout: ParameterLayout, blocks: Sequence[Any], number: int) -> bytes | None:
    """The bytes of these arguments; None if the block was reused."""
    block = _block_of(blocks, number)
    return None if block is None else bytes(block[8 * len(SYSTEM) : 8 * len(layout.slots)])


def _block_of(blocks: Sequence[Any], number: int) -> Any:
    for block, *_ in reversed(blocks):
        if _NUMBER.unpack_from(block, 8 * SYSTEM.index("launch"))[0] == number:
            return block
    return None
