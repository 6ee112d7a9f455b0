"""Recovers the arguments of a launch from its parameter block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from octants.artifact import ParameterLayout, Slot
from octants.lazy_dataclass import dataclass
from octants.types.scalars import DType

_NUMBER = Slot("system", "launch")


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

    def scalar(self, array: int, dtype: DType) -> Any:
        """The value of a scalar argument."""
        position = self.layout.position(Slot("scalar", array=array))
        return self.slots[position : position + 1].view(dtype.numpy)[0].item()


def last_launch(
    layout: ParameterLayout, blocks: Callable[[], Sequence[Any]], number: int
) -> LastLaunch | None:
    """The arguments of the launch with a number; None if its block was reused.

    ``blocks`` returns the free blocks of the kernel.
    """
    slot = layout.position(_NUMBER)
    for block in reversed(blocks()):
        slots = np.frombuffer(block[0], np.uint64, len(layout.slots))
        if int(slots[slot]) == number:
            return LastLaunch(layout, slots.copy())
    return None
