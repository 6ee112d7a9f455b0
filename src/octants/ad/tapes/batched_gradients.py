"""The gradients of arrays while a tape propagates several adjoints: ndarrays that belong to no
array, with a first axis for the adjoints.

The gradients that the arrays have themselves are neither read nor written meanwhile.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from octants.data.host_element_access import ElementRange
from octants.data.ndarray import Ndarray, make_ndarray
from octants.launch.gradients.taped_memory import TapedMemory, adjoint_of, memory_of
from octants.types.companions import Companion
from octants.types.scalars import DType

Array = np.ndarray[Any, Any]


class OneByOne(Exception):
    """Several adjoints must be propagated one after the other; the message says why."""


class BatchedGradients:
    """The gradients of arrays for `count` adjoints, which begin as zeros.

    They are found by the memory of the gradient that an array has itself.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._known: dict[Hashable, tuple[TapedMemory, Ndarray]] = {}

    def add(self, array: Any, gradients: Ndarray, name: str) -> None:
        """Let the gradients of an array begin as an ndarray, which changes."""
        self._remember(_gradient_of(memory_of(array, name)), gradients)

    def find(self, array: Any) -> Ndarray | None:
        """The gradients of an array; None if they are zeros."""
        known = self._known.get(_gradient_of(memory_of(array, "")).key)
        return None if known is None else known[1]

    def of(
        self, memory: TapedMemory, dtype: DType, element_shape: tuple[int, ...], device: int
    ) -> Ndarray:
        """The gradients of an array with elements of a type and a shape.

        Raises:
            OneByOne: its gradient shares memory with another one.
        """
        gradient = _gradient_of(memory)
        known = self._known.get(gradient.key)
        if known is not None:
            return known[1]
        shape = memory.shape
        if memory.is_foreign:
            shape = shape[: len(shape) - len(element_shape)]
        extents = (self.count, *shape)
        made = make_ndarray(dtype, extents, element_shape=element_shape, device=device)
        self._remember(gradient, made)
        return made

    def _remember(self, gradient: TapedMemory, made: Ndarray) -> None:
        if gradient.may_share:
            for other, _ in self._known.values():
                if gradient.overlaps(other):
                    raise OneByOne("gradients share memory")
        self._known[gradient.key] = gradient, made

    def each_of(self, array: Any) -> list[Gradient | None]:
        """The gradients of an array of Octants for each adjoint; None if it has no gradient."""
        if adjoint_of(array) is None:
            return [None] * self.count
        memory = memory_of(array, array.describe())
        made = self.of(memory, array.dtype, array.element_shape, array.device)
        return [Gradient(made, number) for number in range(self.count)]


class Gradient:
    """The gradient of an array for one of several adjoints."""

    def __init__(self, gradients: Ndarray, number: int) -> None:
        self._gradients = gradients
        self._number = number

    def read(self, region: ElementRange = ()) -> Array:
        """A copy of the elements at ``region``."""
        return self._gradients.read((self._number, *region))

    def window(self) -> Gradient:
        """The memory whose elements `write` sets."""
        return self

    def write(self, values: Any) -> None:
        """Set all elements."""
        self._gradients.window().write(values, (self._number,))

    def clear(self, region: ElementRange = ()) -> None:
        """Set the elements at ``region`` to zero."""
        self._gradients.clear((self._number, *region))

    def add(self, values: Any) -> None:
        """Add to all elements."""
        self._gradients.add(values, (self._number,))


def _gradient_of(memory: TapedMemory) -> TapedMemory:
    gradient = memory.companion_array(Companion.ADJOINT)
    return TapedMemory(gradient, memory.name, is_foreign=memory.is_foreign)
