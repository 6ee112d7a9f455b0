"""Fills memory with an element, on devices that can only copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from octants.runtime.device import Bytes

_PIECE = 1 << 16  # bytes that the host writes, and the device copies repeatedly


class Fillable(Protocol):
    """The methods of a `Device` that a fill uses."""

    def write(self, address: int, values: Bytes) -> None: ...

    def copy(self, target: int, source: int, nbytes: int) -> None: ...

    def clear(self, address: int, nbytes: int) -> None: ...


def set_elements(memory: Fillable, address: int, element: bytes, count: int) -> None:
    """Implements `Device.set_elements` for ``count`` >= 1, by a write of the host and copies."""
    if not any(element):
        memory.clear(address, count * len(element))
        return
    first = max(1, min(count, _PIECE // len(element)))
    memory.write(address, np.frombuffer(element * first, np.uint8))
    done, nbytes = first * len(element), count * len(element)
    while done < nbytes:
        more = min(done, nbytes - done)
        memory.copy(address + done, address, more)
        done += more
