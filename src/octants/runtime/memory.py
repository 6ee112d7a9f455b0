"""Memory of the host: zeroed, aligned, freed when nobody refers to it."""

from __future__ import annotations

from typing import Any

import numpy as np

from octants.diagnostics.exceptions import OctantsMemoryError

ALIGNMENT = 64


class HostAllocation:
    """A piece of host memory; `bytes` is a numpy view of it that keeps it alive."""

    __slots__ = ("address", "bytes", "nbytes")

    def __init__(self, nbytes: int) -> None:
        # Pages of fresh memory are zero already: nothing is touched before it is used.
        memory = np.zeros(nbytes + ALIGNMENT, np.uint8)
        start = -address_of(memory) % ALIGNMENT
        self.nbytes = nbytes
        self.bytes: np.ndarray[Any, np.dtype[np.uint8]] = memory[start : start + nbytes]
        self.address = address_of(memory) + start


def allocate(nbytes: int) -> HostAllocation:
    """``nbytes`` of zeros at a multiple of 64; `OctantsMemoryError` if the system has none."""
    if nbytes < 0:
        raise ValueError(f"{nbytes} bytes")
    try:
        return HostAllocation(nbytes)
    except (MemoryError, ValueError, OverflowError):  # numpy: "Maximum allowed size exceeded"
        raise OctantsMemoryError(f"the system has no {nbytes} bytes of memory left") from None


def address_of(array: np.ndarray[Any, Any]) -> int:
    """The address of an array's first element."""
    address: int = array.__array_interface__["data"][0]
    return address
