"""Reads the slots of parameter blocks, given their addresses."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Collection, Sequence

import numpy as np

from octants.runtime.memory.host import view_memory

MOST_VIEWS = 256


class SlotViews:
    """Views of the ``count`` slots of a kernel's parameter blocks, which are reused."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.size = 8 * count
        self.views: dict[int, memoryview[int]] = {}
        self.unpack = struct.Struct(f"<{count}q").unpack_from

    def view(self, block: int) -> memoryview[int]:
        """The bytes of a block, which the caller keeps alive."""
        view = self.views.get(block)
        if view is None:
            if len(self.views) >= MOST_VIEWS:
                self.views.clear()
            view = self.views[block] = view_memory(block, np.uint8, (self.size,)).data
        return view

    def reader(self, read: Collection[int]) -> Callable[[memoryview[int]], tuple[int, ...]]:
        """A function that reads some slots of a block, in order."""
        formats = ("q" if number in read else "8x" for number in range(self.count))
        return struct.Struct("<" + "".join(formats)).unpack_from


def bounds_reader(
    bounds: Sequence[str], slots: SlotViews
) -> Callable[[memoryview[int]], tuple[int, ...]] | None:
    """A function that reads the slots that `artifact.Dispatch.bounds` depend on; None without
    bounds.

    Equal slots give equal bounds.
    """
    read = {int(number) for text in bounds for number in re.findall(r"slots\[(\d+)\]", text)}
    return slots.reader(read) if bounds else None
