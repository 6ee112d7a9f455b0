"""Arrays of numpy and torch, as a tape sees them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from octants.data import exchange
from octants.data.stored import StoredArray
from octants.runtime.arguments import is_torch
from octants.runtime.memory import address_of
from octants.types.companions import Companion

Array = np.ndarray[Any, Any]


class ForeignArray(StoredArray):
    """Memory that belongs to somebody else, who keeps it alive, as a numpy array of any strides."""

    def __init__(self, owner: Any, elements: Array) -> None:
        self.owner = owner
        self.elements = elements

    def companion_array(self, companion: Companion) -> Any:
        if companion is Companion.PRIMAL:
            return self
        gradient = getattr(self.owner, "grad", None)
        if companion is not Companion.ADJOINT or gradient is None:
            return None
        return foreign_array(gradient)

    @property
    def shared_version(self) -> int:
        return exchange.writes_of(self.owner)

    @property
    def identity(self) -> Hashable:
        elements = self.elements
        return address_of(elements), elements.shape, elements.strides, elements.dtype.str

    @property
    def extent(self) -> tuple[int, int]:
        first, elements = address_of(self.elements), self.elements
        if elements.size == 0:
            return first, first
        steps = zip(elements.shape, elements.strides, strict=True)
        reach = [(extent - 1) * stride for extent, stride in steps]
        before, after = (sum(f(step, 0) for step in reach) for f in (min, max))
        return first + before, first + after + elements.itemsize

    @property
    def nbytes(self) -> int:
        return int(self.elements.nbytes)

    def snapshot(self) -> Array:
        copy: Array = self.elements.copy()
        return copy

    def restore(self, snapshot: Array) -> None:
        self.elements[...] = snapshot

    def clear(self, region: tuple[int, ...] = ()) -> None:
        self.elements[region] = 0


def foreign_array(array: Any) -> ForeignArray | None:
    """A numpy array or a torch tensor; None for anything else."""
    if isinstance(array, np.ndarray):
        return ForeignArray(array, array)
    if is_torch(type(array)):
        return ForeignArray(array, array.detach().numpy())
    return None
