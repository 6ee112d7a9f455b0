"""Single components of fields of vectors and matrices."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from octants.data.array_base import Array, Tensor
from octants.data.axes import is_integer
from octants.data.companion_assignment import refuses_assignment
from octants.data.errors import WrongArrayOption
from octants.types.scalars import DType


@refuses_assignment
class ComponentField:
    """One component of a field of vectors or matrices: a part of it that can be placed alone."""

    def __init__(self, field: Any, component: tuple[int, ...]) -> None:
        self.field = field
        self.component = component

    def parts_to_place(self) -> list[Any]:
        """The parts that `tree.SNode.place` places."""
        return [(self.field, self.component)]

    @property
    def grad(self) -> ComponentField | None:
        """The same component of the gradient."""
        gradient = self.field.grad
        return None if gradient is None else ComponentField(gradient, self.component)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the field."""
        shape: tuple[int, ...] = self.field.shape
        return shape

    @property
    def dtype(self) -> DType:
        """The type of the component."""
        dtype: DType = self.field.dtype
        return dtype

    def __getitem__(self, key: Any) -> Any:
        element = self.field[key]
        return element[self.component]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.field[key][self.component] = value

    def fill(self, val: Any) -> None:
        """Let the component of all elements be a number."""
        self.from_numpy(np.full(self.shape, val))

    def from_numpy(self, values: Any) -> None:
        """Write the component of all elements, from an array of `shape`; others stay."""
        given = np.asarray(values)
        if given.shape != self.shape:
            problem = (
                f"of shape {self.shape} cannot be written from an array of shape {given.shape}"
            )
            raise WrongArrayOption(self.field.describe(), "component", problem).at()
        for index in np.ndindex(self.shape):
            self[index] = given[index].item()

    def to_numpy(self, dtype: Any = None) -> Array:
        """The component of all elements as a numpy array of `shape`."""
        values = Tensor.to_numpy(self.field, dtype)
        index: Any = (Ellipsis, *self.component)
        return np.ascontiguousarray(values[index])


class _Component:
    """Makes ``x.y = 1.0`` of an array of vectors an error: it has components, its elements do."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, array: Any, owner: type | None = None) -> NoReturn:
        raise AttributeError(self._problem())

    def __set__(self, array: Any, value: Any) -> NoReturn:
        raise AttributeError(self._problem())

    def _problem(self) -> str:
        name = self.name
        return (
            f"an array of vectors has no attribute `{name}`, its elements have: write "
            f"`x[i].{name} = ...`, or in a kernel `for i in x: x[i].{name} = ...`"
        )


class HasNoComponents:
    """The base of arrays of vectors and matrices; they must not look as if they were elements."""

    x, y, z, w = (_Component() for _ in range(4))
    r, g, b, a = (_Component() for _ in range(4))


def check_component(field: Any, indices: tuple[int, ...]) -> tuple[int, ...]:
    """The index of a component, which a vector may give as that of a column."""
    shape = field.element_shape
    given = indices[:1] if len(shape) == 1 and indices[1:] == (0,) else indices
    fits = len(given) == len(shape) and all(map(is_integer, given))
    if not fits or not all(0 <= k < extent for k, extent in zip(given, shape, strict=True)):
        problem = f"of an element of shape {shape} cannot be {indices}"
        raise WrongArrayOption(field.describe(), "component", problem).at()
    return tuple(int(k) for k in given)
