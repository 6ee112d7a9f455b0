"""Slices of fields and ndarrays on the host: ``x[1:3]``, ``x[:, 0]``, ``x[...]``.

Reading one copies its elements into a numpy array, which cannot be written: a write would not
reach the field. Assigning to one writes its elements, and no others.
"""

from __future__ import annotations

import itertools
from typing import Any, TypeAlias

import numpy as np

from octants.data import host_access_events
from octants.data.errors import WrongArrayShape, WrongIndex, WrongNumberOfIndices, describe
from octants.data.host_value_conversion import convert_element, convert_stored
from octants.types.masked_arrays import refuse_masked
from octants.types.matrix_values import Matrix

Array = np.ndarray[Any, Any]
_Key: TypeAlias = "tuple[int | slice, ...]"
_ALL = slice(None)


def has_slice(key: Any) -> bool:
    """Whether an index contains a slice or an ellipsis."""
    if type(key) is tuple:
        return any(type(each) is slice or each is ... for each in key)
    return type(key) is slice or key is ...


def read_slice(array: Any, key: Any) -> Array:
    """The elements of a slice, as a numpy array that cannot be written.

    Raises:
        OctantsHostIndexError: If the index does not fit the axes.
    """
    full = _full_key(array, key)
    host_access_events.before_read(array)
    values = np.asarray(array.read()[full])
    values.flags.writeable = False
    return values


def write_slice(array: Any, key: Any, value: Any) -> None:
    """Set the elements of a slice to a number, an element, or an array that numpy can broadcast.

    Raises:
        OctantsHostIndexError: If the index does not fit the axes.
        OctantsValueError: If the shape of the values does not fit.
    """
    full = _full_key(array, key)
    extents, element = array.window().shape, array.element_shape
    axes = range(len(full))
    indices = [_indices(each, extents[axis]) for each, axis in zip(full, axes, strict=True)]
    shape = tuple(len(indices[axis]) for axis in axes if type(full[axis]) is slice)
    values = _values(array, value, (*shape, *element))
    if host_access_events.host_writes.observers or getattr(array, "sparsity", None) is not None:
        _write_elements(array, indices, values)
    else:
        whole = array.read()
        whole[full] = values
        array.write(whole)


def _write_elements(array: Any, indices: list[range], values: Array) -> None:
    """Write the elements one by one, so that a tape or a sparse field sees which they are."""
    extents = [len(each) for each in indices]
    values = values.reshape((*extents, *array.element_shape))
    for position in itertools.product(*map(range, extents)):
        index = tuple(each[k] for each, k in zip(indices, position, strict=True))
        array.write(values[position], index)


def _full_key(array: Any, key: Any) -> _Key:
    """An integer or a slice for each axis."""
    rank = array.window().rank
    given = key if type(key) is tuple else (key,)
    dots = [axis for axis, each in enumerate(given) if each is ...]
    missing = rank - len(given) + len(dots)
    if len(dots) > 1 or missing < 0:
        raise WrongNumberOfIndices(array.describe(), rank, describe(key)).at()
    first = dots[0] if dots else len(given)
    given = (*given[:first], *[_ALL] * missing, *given[first + len(dots) :])
    if any(array.offset) and any(type(each) is slice and each != _ALL for each in given):
        raise WrongIndex(array.describe(), "a slice where indices have an offset").at()
    return tuple(
        each if type(each) is slice else array.position(axis, each)
        for axis, each in enumerate(given)
    )


def _indices(key: int | slice, extent: int) -> range:
    return range(*key.indices(extent)) if isinstance(key, slice) else range(key, key + 1)


def _values(array: Any, value: Any, shape: tuple[int, ...]) -> Array:
    """The values to store, broadcast to ``shape``."""
    what = f"a slice of {array.describe()}"
    refuse_masked(what, value)
    if np.ndim(value) == 0 or isinstance(value, Matrix):
        converted = convert_element(what, value, array.dtype, array.element_shape)
        given = np.asarray(converted, array.dtype.numpy)
    else:
        given = convert_stored(what, np.asarray(value), array.dtype)
    try:
        return np.broadcast_to(given, shape)
    except ValueError:
        raise WrongArrayShape(what, str(shape), str(given.shape)).at() from None
