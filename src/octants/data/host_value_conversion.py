"""Values that come from the host, as the elements of an array."""

from __future__ import annotations

from typing import Any

import numpy as np

from octants.data.errors import (
    ValueChanges,
    WrongArray,
    WrongArrayShape,
    WrongValue,
    describe,
)
from octants.diagnostics.user_frames import warn_at_caller
from octants.types import scalars
from octants.types.masked_arrays import refuse_masked
from octants.types.matrix_values import Matrix
from octants.types.scalars import DType, Kind

Array = np.ndarray[Any, Any]


_LARGEST = {
    dtype: float(np.finfo(dtype.numpy).max) for dtype in (scalars.f16, scalars.f32, scalars.f64)
}


_NUMBERS = int, float, np.float32, np.float64
_F32 = _LARGEST[scalars.f32]
_READY: dict[tuple[type, DType], tuple[Any, Any]] = {
    **{(kind, dtype): (-most, most) for dtype, most in _LARGEST.items() for kind in _NUMBERS},
    (np.float32, scalars.f64): (-_F32, _F32),  # numpy warns of larger limits
    **{(int, dtype): scalars.integer_range(dtype) for dtype in scalars.ALL if dtype.is_integer},
}
"""The least and the greatest of the numbers of a type that an element takes as they are."""


def is_ready(value: Any, dtype: DType) -> bool:
    """Whether a value is a number that an element of ``dtype`` takes as it is."""
    limits = _READY.get((type(value), dtype))
    return limits is not None and bool(limits[0] <= value <= limits[1])


def convert_scalar(what: str, value: Any, dtype: DType) -> Any:
    """A number that ``dtype`` can hold, unrounded if it is a float.

    What becomes an integer is cut off and wraps as in a cast; a warning says so where it changes.
    """
    kind = type(value)
    if (kind is float or kind is int) and dtype.is_float and abs(value) <= _LARGEST[dtype]:
        return value
    if dtype.is_float:
        if not hasattr(value, "__float__") or np.ndim(value) > 0 or np.iscomplexobj(value):
            raise WrongValue(what, describe(value), f"a number for {dtype}").at()
        try:
            return scalars.convert(float(value), dtype)
        except OverflowError:  # of an integer beyond all floats
            raise WrongValue(what, describe(value), f"a number for {dtype}").at() from None
    if isinstance(value, (bool, np.bool_)):
        return dtype.numpy.type(value).item()
    is_float = isinstance(value, (float, np.floating))
    if not (is_float or hasattr(value, "__index__")) or np.ndim(value) > 0:
        raise WrongValue(what, describe(value), f"an integer for {dtype}").at()
    number = float(value) if is_float else value.__index__()
    found = scalars.convert(number, dtype)
    if found != number and not dtype.is_bool:
        warn_at_caller(ValueChanges(what, f"{number}", dtype.name, f"{found}"))
    return found


def convert_element(what: str, value: Any, dtype: DType, shape: tuple[int, ...]) -> Any:
    """A number, or the components of a vector or matrix, for an element or a part of one.

    A number stands for all components; a vector may be given as a matrix of one column.
    """
    is_list = isinstance(value, (list, tuple))
    if is_list and shape == (len(value),) and all(is_ready(item, dtype) for item in value):
        return np.array(value, None if dtype.is_float else dtype.numpy).astype(dtype.numpy)
    if not is_list and not isinstance(value, Matrix) and np.ndim(value) == 0:
        return convert_scalar(what, value, dtype)
    given = _components(what, value, shape)
    if given.shape != shape:
        if not shape or given.shape != (*shape, 1):
            raise WrongArrayShape(what, str(shape), str(given.shape)).at()
        given = given.reshape(shape)
    if dtype.is_float:
        return convert_array(what, given, dtype)
    items = [convert_scalar(what, item, dtype) for item in given.ravel().tolist()]
    return np.array(items, dtype.numpy).reshape(shape)


def _components(what: str, value: Any, shape: tuple[int, ...]) -> Array:
    needed = f"numbers of shape {shape}"
    refuse_masked(what, value)
    try:
        given = np.asarray(value.to_list() if isinstance(value, Matrix) else value)
    except (ValueError, TypeError, RuntimeError):
        raise WrongValue(what, describe(value), needed).at() from None
    if given.dtype.kind not in "biuf":
        raise WrongValue(what, describe(value), needed).at()
    return given


def convert_array(what: str, values: Array, dtype: DType) -> Array:
    """An array with the conversions of the language, `scalars.convert_values`."""
    if values.dtype.kind not in "biuf":
        needed = "an array of numbers"
        raise WrongArray(what, f"one of {values.dtype}", needed, "convert it with `astype`").at()
    return scalars.convert_values(values, dtype)


def convert_stored(what: str, values: Array, dtype: DType) -> Array:
    """An array to store, with the conversions of `convert_array`.

    A warning names the first number that changes as it becomes an integer.
    """
    found = convert_array(what, values, dtype)
    is_exact = not dtype.is_integer or dtype.is_bool or np.can_cast(values.dtype, dtype.numpy)
    changed = np.empty((0, 0)) if is_exact else np.argwhere(_differs(found, values, dtype))
    for index in map(tuple, changed[:1].tolist()):
        given = f"{values[index].item()} at {index}"
        warn_at_caller(ValueChanges(what, given, dtype.name, f"{found[index].item()}"))
    return found


def _differs(found: Array, values: Array, dtype: DType) -> Array:
    """Where an array of integers differs; the largest i64 equals 2**63 as numpy compares them."""
    differs: Array = found != values
    if values.dtype.kind == "f" and values.dtype.itemsize > 2:  # no f16 is as large
        differs |= values >= 2.0 ** (dtype.bits - (dtype.kind is Kind.SIGNED))
    return differs


def check_shape(what: str, given: tuple[int, ...], *allowed: tuple[int, ...]) -> None:
    """An error if an array has none of the shapes that fit; the first one is named."""
    if given not in allowed:
        raise WrongArrayShape(what, str(allowed[0]), str(given)).at()
