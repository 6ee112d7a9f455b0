"""Views: contiguous parts of ndarrays with one axis, which kernels take as arguments."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from octants.data import host_access_events
from octants.data.errors import IndexOutOfRange, WrongArray, WrongView, describe
from octants.data.host_value_conversion import check_shape, convert_element, convert_stored
from octants.types.masked_arrays import refuse_masked
from octants.types.parameter_annotations import AnyBufferView, BufferViewAnnotation
from octants.types.scalars import DType
from octants.types.specialisation_signature import NdarrayHandle

Array = np.ndarray[Any, Any]


class BufferView(AnyBufferView):
    """The elements `offset` to `offset` + `size` of an ndarray with one axis, in its memory.

    ``x[i:j]`` of an ndarray makes one. As the annotation of a parameter, ``qd.BufferView`` takes
    views of all ndarrays, ``qd.BufferView[qd.f32]`` those of one type. In a kernel, a view `v` has
    ``v[i]``, ``v.size``, ``v.shape`` and ``v.subview(offset, size)``; ``for i in v`` is a loop over
    its indices. A gradient goes to the ndarray. Example::

        @qd.kernel
        def double(v: qd.BufferView[qd.f32]):
            for i in v:
                v[i] *= 2.0

        double(x[8:24])

    Args:
        arr: the ndarray, or a view of one.
        offset: the first element.
        size: the number of elements.

    Raises:
        OctantsRuntimeTypeError: for anything but an ndarray with one axis.
        OctantsValueError: for elements that the ndarray does not have.
    """

    __slots__ = ("array", "offset", "size")

    def __init__(self, arr: Any, offset: int, size: int) -> None:
        if isinstance(arr, BufferView):
            _check_range(arr.size, offset, size)
            arr, offset = arr.array, arr.offset + offset
        if not isinstance(arr, NdarrayHandle) or len(arr.shape) != 1:
            raise WrongArray("BufferView", describe(arr), "an ndarray with one axis").at()
        self.array: Any = arr
        self.offset: int = operator.index(offset)
        self.size: int = operator.index(size)
        _check_range(arr.shape[0], self.offset, self.size)

    def __class_getitem__(cls, dtype: Any) -> BufferViewAnnotation:
        return BufferViewAnnotation(dtype)

    @property
    def shape(self) -> tuple[int]:
        """The number of elements, in a tuple."""
        return (self.size,)

    @property
    def dtype(self) -> DType:
        """The type of the numbers."""
        dtype: DType = self.array.dtype
        return dtype

    def get_ndarray(self) -> Any:
        """The ndarray that this is a part of."""
        return self.array

    def subview(self, offset: int, size: int) -> BufferView:
        """A part of the view; ``v[i:j]`` is another way to write it."""
        return BufferView(self, offset, size)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return self.subview(*bounds_of(self.size, key))
        return self.array[self._position(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(key, slice):
            first, size = bounds_of(self.size, key)
            self.array[self.offset + first : self.offset + first + size] = value
            return
        self.array[self._position(key)] = value

    def _position(self, key: Any) -> int:
        """The index in the ndarray of an element of the view."""
        number = operator.index(key)
        if not 0 <= number < self.size:
            raise IndexOutOfRange("BufferView", number, 0, 0, self.size - 1).at()
        return self.offset + number

    def fill(self, val: Any) -> None:
        """Set all elements to a number, a vector or a matrix."""
        values = np.empty((self.size, *self.array.element_shape), self.array.dtype.numpy)
        values[...] = convert_element(
            "fill() of a BufferView", val, self.array.dtype, self.array.element_shape
        )
        self.from_numpy(values)

    def from_numpy(self, arr: Any) -> None:
        """Copy a numpy array of `size` elements into the view.

        Raises:
            OctantsRuntimeTypeError: for anything but a numpy array of numbers.
            OctantsValueError: for an array of another shape.
        """
        what = "from_numpy() of a BufferView"
        refuse_masked(what, arr)
        if not isinstance(arr, np.ndarray):
            raise WrongArray(what, describe(arr), "a numpy array").at()
        check_shape(what, arr.shape, (self.size, *self.array.element_shape))
        given = convert_stored(what, arr, self.array.dtype)
        if host_access_events.host_writes.observers:  # tell the tape which elements change
            for number in range(self.size):
                self.array.write(given[number], (self.offset + number,))
        else:
            values = self.array.to_numpy()
            values[self.offset : self.offset + self.size] = given
            self.array.from_numpy(values)

    def to_numpy(self) -> Array:
        """A copy of the elements as a numpy array."""
        return np.array(self.array.to_numpy()[self.offset : self.offset + self.size])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self.to_numpy() if dtype is None else self.to_numpy().astype(dtype)

    def tolist(self) -> Any:
        """The elements as a list of Python numbers."""
        return self.to_numpy().tolist()

    def __repr__(self) -> str:
        values = np.array2string(self.to_numpy(), threshold=100, edgeitems=3)
        return f"<qd.BufferView of {self.size} elements from {self.offset}: {values}>"


def bounds_of(extent: int, key: slice) -> tuple[int, int]:
    """The first element and the number of elements of a slice of an array with one axis."""
    first, end, step = key.indices(extent)
    if step != 1:
        problem = f"a slice with a step of {step}"
        raise WrongView(problem, "copy the elements, or use a loop").at()
    return first, max(0, end - first)


def _check_range(extent: int, offset: int, size: int) -> None:
    if not 0 <= offset <= offset + size <= extent:
        problem = f"{size} elements from {offset} of an array of {extent}"
        raise WrongView(problem, "use bounds within the array").at()
