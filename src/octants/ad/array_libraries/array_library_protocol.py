"""The interface of functions of arrays to the library whose arrays they are called with."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np

from octants.data.ndarray import Ndarray
from octants.runtime.device import Device


class Shaped(NamedTuple):
    """The type and shape of an array whose elements are not known yet; JAX: an abstract value."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


class ArrayLibrary(ABC):
    """The operations that an `ArrayFunction` needs of the library of its arguments."""

    @abstractmethod
    def is_array(self, value: Any) -> bool:
        """Whether a value is passed as an array."""

    @abstractmethod
    def shaped(self, array: Any) -> Shaped:
        """The shape and the dtype of an array."""

    def dtype(self, given: Any) -> np.dtype[Any]:
        """The dtype that the library calls so, as that of numpy."""
        found: np.dtype[Any] = np.dtype(given)
        return found

    @abstractmethod
    def copy(self, array: Any, dtype: np.dtype[Any] | None = None) -> Any:
        """A copy of an array, for a kernel that updates it; in another type if one is given."""

    @abstractmethod
    def of_number(self, number: Any, like: Any) -> Any:
        """A number, or a matrix of numpy, in the shape, dtype and device of the array `like`."""

    @abstractmethod
    def zeros(self, what: Shaped, like: Sequence[Any]) -> Any:
        """An array of zeros, on the device of the arrays `like`."""

    def assign(self, target: Any, values: Any) -> None:
        """Store the elements of an array of the same shape and dtype in another one, or 0."""
        target[...] = values

    @abstractmethod
    def join(self, arrays: Sequence[Any]) -> Any:
        """Arrays in one, behind each other along the first axis."""

    @abstractmethod
    def argument(
        self, array: Any, element_dim: int, adjoint: Any = None, *, observed: bool = False
    ) -> Any:
        """The argument of a kernel that stands for an array.

        Args:
            array: the array.
            element_dim: how many of its last axes are those of vectors or matrices.
            adjoint: what its gradient begins as; True: zeros; None: it has no gradient.
            observed: whether derivatives flow through launches: host writes to what is passed must
                be noticed.
        """

    def given(self, argument: Any) -> Any:
        """The argument of a function that launches kernels, for that of a kernel."""
        return argument

    @abstractmethod
    def ndarray(self, array: Any, element_dim: int, needs_grad: bool) -> Ndarray:
        """An ndarray with the elements of an array, perhaps in its memory."""

    @abstractmethod
    def of_ndarray(self, ndarray: Ndarray, like: Any) -> Any:
        """A new array with the elements of an ndarray, on the device of the array `like`."""

    @abstractmethod
    def result(self, argument: Any, array: Any) -> Any:
        """The array as launches have left it, which were passed `argument` for it."""

    @abstractmethod
    def gradient(self, argument: Any) -> Any:
        """The gradient of what a kernel was passed, as an array."""

    recycled: Callable[[Device], ArrayLibrary] | None = None
    """The library for calls on ndarrays that are used again, of functions that launch kernels.

    None: `recycled_array_library.RecycledArrays`.
    """

    refuses_gradient_ends = False
    """Whether derivatives that end at an array within a function are errors, and no warnings."""

    tracks_computations = False
    """Whether there is a context `tracking_computations`."""

    def tracking_computations(
        self,
        outputs: Sequence[Any],
        refuse: Callable[[Any], None],
    ) -> AbstractContextManager[object]:
        """A context in which the library tracks what it computes from arguments with a gradient.

        Its own updates of outputs are left to the tape, except those by something computed: it
        calls `refuse` with the output.
        """
        raise NotImplementedError

    def activate(self, value: Any) -> bool:  # noqa: ARG002
        """Give an array of the library that has no gradient one, if it may have one."""
        return False

    def deactivate(self, array: Any) -> None:  # noqa: B027
        """Take back the gradient that `activate` gave."""

    def is_computed(self, value: Any) -> bool:  # noqa: ARG002
        """Whether a value was computed from an argument, while computations were tracked."""
        return False
