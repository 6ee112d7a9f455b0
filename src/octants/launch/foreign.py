"""Arrays of numpy and torch, as a tape sees them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from octants.data.stored import StoredArray
from octants.runtime.arguments import is_torch
from octants.types.companions import Companion

Array = np.ndarray[Any, Any]


class ForeignArray(StoredArray):
    """A contiguous piece of memory that belongs to somebody else, who keeps it alive."""

    def __init__(self, owner: Any, elements: Array) -> None:
        self._owner = owner
        self._elements = elements

    def companion_array(self, companion: Companion) -> Any:
        if companion is Companion.PRIMAL:
            return self
        gradient = getattr(self._owner, "grad", None)
        if companion is not Companion.ADJOINT or gradient is None:
            return None
        return foreign_array(gradient)

    @property
    def identity(self) -> Hashable:
        return ("bytes", *self.extent)

    @property
    def extent(self) -> tuple[int, int]:
        start: int = self._elements.__array_interface__["data"][0]
        return start, start + self._elements.nbytes

    @property
    def nbytes(self) -> int:
        return int(self._elements.nbytes)

    def snapshot(self) -> Array:
        copy: Array = self._elements.copy()
        return copy

    def restore(self, snapshot: Array) -> None:
        self._elements[...] = snapshot

    def clear(self, region: tuple[int, ...] = ()) -> None:
        self._elements[region] = 0


def foreign_array(array: Any) -> ForeignArray | None:
    """A numpy array or a torch tensor; None for anything else."""
    if isinstance(array, np.ndarray):
        return ForeignArray(array, array)
    if is_torch(type(array)):
        return ForeignArray(array, array.detach().numpy())
    return None
