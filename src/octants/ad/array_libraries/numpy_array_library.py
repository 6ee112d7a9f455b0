"""Arrays of numpy, and those that convert to them, as arguments of an `ArrayFunction`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from octants.ad.array_libraries.array_library_protocol import ArrayLibrary, Shaped
from octants.data import current_runtime
from octants.data.dlpack_import import from_dlpack
from octants.data.ndarray import Ndarray, make_ndarray

Array = np.ndarray[Any, Any]


class NumpyArrays(ArrayLibrary):
    """Arrays of numpy, which kernels use where they are, or copied to the device."""

    def is_array(self, value: Any) -> bool:
        return isinstance(value, np.ndarray)

    def shaped(self, array: Any) -> Shaped:
        return Shaped(array.shape, array.dtype)

    def copy(self, array: Any, dtype: np.dtype[Any] | None = None) -> Any:
        return np.array(array, (dtype or array.dtype).newbyteorder("="), order="C")

    def of_number(self, number: Any, like: Any) -> Any:
        return np.array(number, like.dtype).reshape(like.shape)

    def zeros(self, what: Shaped, like: Sequence[Any]) -> Any:  # noqa: ARG002
        return np.zeros(what.shape, what.dtype)

    def join(self, arrays: Sequence[Any]) -> Any:
        return np.concatenate(arrays)

    def argument(
        self, array: Any, element_dim: int, adjoint: Any = None, *, observed: bool = False
    ) -> Any:
        if adjoint is None and not observed:
            return array
        made = as_ndarray(array, element_dim, needs_grad=adjoint is not None)
        if adjoint is not None and adjoint is not True:
            made.grad.from_numpy(np.asarray(adjoint, array.dtype))
        return made

    def ndarray(self, array: Any, element_dim: int, needs_grad: bool) -> Ndarray:
        return as_ndarray(array, element_dim, needs_grad)

    def of_ndarray(self, ndarray: Ndarray, like: Any) -> Any:  # noqa: ARG002
        return ndarray.to_numpy()

    def result(self, argument: Any, array: Any) -> Any:
        is_copy = isinstance(argument, Ndarray) and argument.imported is None
        return argument.to_numpy() if is_copy else array

    def gradient(self, argument: Any) -> Any:
        view = argument.grad.window().view()  # `argument` is of the call: nothing else writes it
        return argument.grad.to_numpy() if view is None else view


def as_ndarray(array: Array, element_dim: int, needs_grad: bool) -> Ndarray:
    """An ndarray in the memory of an array, if kernels can use that, else a copy on the device."""
    can_share = array.flags.c_contiguous and array.dtype.isnative
    if can_share and current_runtime.device().shares_memory:
        imported = from_dlpack(array, element_dim=element_dim, needs_grad=needs_grad)
        imported.is_untracked = False  # nothing writes the array while the function runs
        return imported
    rank = array.ndim - element_dim
    made = make_ndarray(
        array.dtype.newbyteorder("="),
        array.shape[:rank],
        element_shape=array.shape[rank:],
        needs_grad=needs_grad,
    )
    made.from_numpy(array)
    return made
