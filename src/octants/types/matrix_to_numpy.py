"""Converts the elements of vectors and matrices on the host to numpy arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np

from octants.diagnostics.library_errors import WrongHostValue
from octants.types.default_types import resolve
from octants.types.masked_arrays import refuse_masked
from octants.types.scalars import DType, from_numpy, integer_range

Array = np.ndarray[Any, Any]


_PYTHON_NUMBERS = frozenset((int, float))
_KINDS = {"U": "text", "S": "bytes", "c": "complex numbers"}


def fail(what: str, problem: str) -> NoReturn:
    """Raise the error of a vector, matrix or struct on the host."""
    raise WrongHostValue(what, problem).at()


def to_array(what: str, elements: Any, dt: Any) -> Array:
    """An array of one or two axes from nested sequences, arrays and matrices."""
    is_list = isinstance(elements, (list, tuple))
    if is_list and elements and _PYTHON_NUMBERS.issuperset(map(type, elements)):
        array = np.array(elements)
        if array.dtype.kind in "if":
            return array if dt is None else _stated(what, array, resolve(dt))
    refuse_masked(what, elements)
    if is_list:
        elements = [np.asarray(item) if np.ndim(item) else item for item in elements]
    try:
        array = np.array(elements)
    except ValueError:
        fail(what, "its rows have different lengths")
    if array.dtype.kind not in "biuf":
        fail(what, f"its elements are numbers, not {_KINDS.get(array.dtype.kind, 'objects')}")
    if array.ndim not in (1, 2) or array.size == 0:
        fail(what, f"elements of shape {array.shape}; a vector has one axis, a matrix two")
    if dt is None:
        return array
    return _stated(what, array, resolve(dt)) if is_list else convert(array, resolve(dt))


def _stated(what: str, array: Array, dtype: DType) -> Array:
    """Listed numbers as elements of a type, which must be able to hold those that are integers."""
    if dtype.is_integer and array.dtype.kind in "iu":
        require_fit(what, array.ravel().tolist(), dtype)
    return convert(array, dtype)


def require_fit(what: Any, numbers: Iterable[Any], dtype: DType) -> None:
    """Raise an error for an integer of Python that a type of integers cannot hold."""
    low, high = integer_range(dtype)
    for number in numbers:
        if type(number) is int and not low <= number <= high:
            problem = f"{number} does not fit in {dtype.name}; `qd.{dtype.name}({number})` wraps it"
            fail(str(what), problem)


def convert(array: Array, dtype: DType) -> Array:
    """The elements with the language's conversion to ``dtype``."""
    if dtype.is_integer and array.dtype.kind == "f":
        numbers = [dtype(x) for x in array.ravel().tolist()]
        converted: Array = np.array(numbers, dtype.numpy).reshape(array.shape)
        return converted
    return array.astype(dtype.numpy)


def declared_type(elements: Any, dt: Any) -> DType | None:
    """The stated type of the elements: ``dt``, or that of an array; None for Python numbers."""
    if dt is not None:
        return resolve(dt)
    if isinstance(elements, np.ndarray) and elements.dtype not in (np.int64, np.float64):
        return from_numpy(elements.dtype)
    declared: DType | None = getattr(elements, "declared_dtype", None)
    return declared
