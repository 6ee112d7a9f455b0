"""``x[i]`` of an array of vectors or matrices: its elements, read and written in place."""

from __future__ import annotations

from typing import Any

import numpy as np

from octants.data import host_access_events
from octants.data.axes import is_integer
from octants.data.errors import IndexOutOfRange, WrongIndex, WrongNumberOfIndices, describe
from octants.data.host_value_conversion import convert_element, is_ready
from octants.diagnostics.tracebacks import shortens_tracebacks
from octants.types.matrix_values import Matrix, Vector


class ElementMatrix(Matrix):
    """A matrix that lies in an array: assignments to its elements are written there."""

    __slots__ = ("_index", "_owner")

    @shortens_tracebacks
    def __getitem__(self, index: Any) -> Any:
        owner = self._owner
        host_access_events.before_read(owner)
        if component := _component(index, owner.element_shape):
            return self._array.item(component)
        self._numbers(index)
        part = super().__getitem__(index)
        return part.__copy__() if isinstance(part, Matrix) else part

    @shortens_tracebacks
    def __setitem__(self, index: Any, value: Any) -> None:
        owner = self._owner
        component = _component(index, owner.element_shape)
        if component and is_ready(value, owner.dtype):
            owner.write(value, (*self._index, *component))
            return
        numbers = self._numbers(index)
        what = owner.describe()
        values = convert_element(what, value, owner.dtype, numbers.shape)
        values = np.broadcast_to(values, numbers.shape)
        for number, item in zip(numbers.ravel().tolist(), values.ravel(), strict=True):
            position = np.unravel_index(number, self.shape)
            owner.write(item, (*self._index, *map(int, position)))

    def _numbers(self, index: Any) -> np.ndarray[Any, Any]:
        """The positions of the components that an index selects, counted row by row."""
        every = np.arange(self._array.size).reshape(self.shape)
        try:
            return np.asarray(every[index])
        except IndexError:
            raise self._wrong_index(index) from None

    def _wrong_index(self, index: Any) -> Exception:
        what = f"an element of {self._owner.describe()}"
        given = index if isinstance(index, tuple) else (index,)
        if len(given) > self._array.ndim:
            return WrongNumberOfIndices(what, self._array.ndim, describe(index)).at()
        for axis, (item, extent) in enumerate(zip(given, self.shape, strict=False)):
            if is_integer(item) and not -extent <= item < extent:
                return IndexOutOfRange(what, int(item), axis, 0, extent - 1).at()
        return WrongIndex(what, describe(index)).at()

    def fill(self, val: Any) -> None:
        """Set all elements."""
        self[...] = val

    def __copy__(self) -> Matrix:
        return Vector(self._array) if self._array.ndim == 1 else Matrix(self._array)

    def __deepcopy__(self, memo: object) -> Matrix:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        return self.__copy__().__reduce__()

    __hash__ = object.__hash__


class ElementVector(ElementMatrix, Vector):
    """A vector that lies in an array: assignments to its elements are written there."""

    __slots__ = ()


class FarElementMatrix(ElementMatrix):
    """One in memory that the host does not share: it is read each time that it is looked at."""

    __slots__ = ()

    def _read(self) -> np.ndarray[Any, Any]:
        found: np.ndarray[Any, Any] = self._owner.window().read(self._index)
        return found

    _array = property(_read)


class FarElementVector(FarElementMatrix, ElementVector):
    """A vector of that kind."""

    __slots__ = ()


def _component(index: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The index of one component, if it is of Python integers that count from 0; () for others."""
    given = index if type(index) is tuple else (index,)
    if len(given) != len(shape):
        return ()
    for item, extent in zip(given, shape, strict=True):
        if type(item) is not int or not 0 <= item < extent:
            return ()
    return given


_KINDS = {True: (ElementVector, ElementMatrix), False: (FarElementVector, FarElementMatrix)}


def make_element(owner: Any, index: tuple[int, ...]) -> Matrix:
    """The element of an array at an index."""
    view = owner.window().view(index)
    vector, matrix = _KINDS[view is not None]
    cls = vector if len(owner.element_shape) == 1 else matrix
    element = cls.__new__(cls)
    if view is not None:
        element._set(view, owner.dtype)
    else:
        object.__setattr__(element, "_declared", owner.dtype)
    object.__setattr__(element, "_owner", owner)
    object.__setattr__(element, "_index", index)
    return element
