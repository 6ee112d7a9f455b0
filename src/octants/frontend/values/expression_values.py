"""The values of expressions while a kernel is built.

- a run-time scalar is an `ir.core.Value` itself;
- a run-time vector or matrix is a `MatrixValue`, a struct a `StructValue`;
- a field or an array argument is an `ArrayReference`, an element of one an `ElementReference`;
- anything else is a compile-time Python object: a number from a literal, ``static()`` or a closure,
  a dtype, a function, a tuple of values of any of these sorts. A Python number becomes a run-time
  value where it is combined with one (`Context.value`), or where it is assigned to a variable.

Values are never changed in place: an assignment to ``v[k]`` makes a new `MatrixValue`.
"""

from __future__ import annotations

import types
from dataclasses import field
from typing import Any

import numpy as np

from octants.frontend.compile_time.unspecialised_numbers import HostNumber
from octants.ir.core import Array, Companion, Value
from octants.lazy_dataclass import dataclass
from octants.types.parameter_annotations import BufferViewAnnotation
from octants.types.scalars import DType


@dataclass(frozen=True, slots=True)
class MatrixValue:
    """A vector of shape (n,) or a matrix of shape (n, m); elements row by row, of one dtype."""

    shape: tuple[int, ...]
    elements: list[Value]

    @property
    def dtype(self) -> DType:
        return self.elements[0].type

    @property
    def is_vector(self) -> bool:
        return len(self.shape) == 1


@dataclass(frozen=True, slots=True)
class StructValue:
    """Named members, each a value of any type; `python_type` is the struct's type, if any."""

    members: dict[str, Any]
    python_type: Any = None


def first_leaf(value: Any) -> Any:
    """The first member of a struct that is no struct itself; other values are their own."""
    while isinstance(value, StructValue) and value.members:
        value = next(iter(value.members.values()))
    return value


@dataclass(frozen=True, slots=True)
class ArrayReference:
    """A field or an array argument that is not indexed yet, or one of its companions.

    `handle` is what the array was found as: a `FieldHandle`, or the `NdarrayType` of an argument.
    """

    array: Array
    companion: Companion = Companion.PRIMAL
    handle: Any = None


@dataclass(frozen=True, slots=True)
class ElementReference:
    """An element of an array or components of it: what ``x[i]``, ``x[i][k]``, ``x[i].xy`` name.

    `indices` are those of the array. `components` has an index tuple into the element for each
    component that is meant, row by row; `shape` is () where a single scalar is meant. It is the
    target of a store; `Context.load` gives its value.
    """

    array: Array
    companion: Companion
    indices: tuple[Value, ...]
    shape: tuple[int, ...] = ()
    components: tuple[tuple[int | Value, ...], ...] = ((),)


@dataclass(eq=False, slots=True)
class Variable:
    """A local variable of a function that is being built; its type is that of its value.

    `key` names it across repeated builds of a loop. `in_memory` is set where the variable lives in
    launch-temporary memory: the value then has an `ArrayReference` for each scalar or matrix.
    """

    name: str
    value: Any
    key: tuple[Any, ...] = ()
    dtype: DType | None = None  # that of a hidden variable which holds a number
    in_memory: bool = False
    is_loose: bool = False  # the next assignment may give it another type
    is_past_index: bool = False  # the index of an unrolled loop that is built


@dataclass(frozen=True, slots=True)
class Components:
    """Some components of a vector or matrix: an index tuple for each, and the shape of all."""

    shape: tuple[int, ...]
    indices: tuple[tuple[int | Value, ...], ...]


@dataclass(frozen=True, slots=True)
class Item:
    """The item of a dictionary at a key."""

    key: Any


Step = str | Item | Components


@dataclass(frozen=True, slots=True)
class VariableReference:
    """A local variable as the target of a store, or a part of what it holds.

    `path` leads to the part: names of members, keys of dictionaries, `Components`.
    """

    variable: Variable
    path: tuple[Step, ...] = field(default=())

    def held(self) -> Any:
        """The present value of the variable, all of a vector or matrix."""
        found = self.variable.value
        for step in self.path:
            if isinstance(step, Item):
                found = found[step.key]
            elif isinstance(step, str):
                found = found.members[step]
        return found


@dataclass(frozen=True, slots=True)
class ShapeReference:
    """``x.shape``: an extent is made where it is asked for."""

    array: Array


@dataclass(frozen=True, slots=True)
class RangeDomain:
    """``range(start, stop, step)`` of which something is known at run time only.

    If it `is_reversed`, the loop runs over its numbers from the last to the first.
    """

    start: Any
    stop: Any
    step: Any
    is_reversed: bool = False


@dataclass(frozen=True, slots=True)
class ProductDomain:
    """``ndrange(...)``: a pair of bounds, numbers or scalars, for each index.

    `axes` are the positions of the indices from the slowest to the fastest.
    """

    bounds: tuple[tuple[Any, Any], ...]
    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GroupedDomain:
    """``grouped(...)``: the indices of a `ProductDomain` or an array as one vector."""

    inner: Any


@dataclass(frozen=True, slots=True)
class StaticValue:
    """The result of a call of ``static``, for the loop or condition that it stands in.

    `Context.evaluate_marked` alone sees it; everywhere else, the result is the object itself.
    """

    value: Any


@dataclass(frozen=True, slots=True)
class FormattedString:
    """An f-string: literal strings and (format spec, value) pairs."""

    parts: tuple[Any, ...]


RUN_TIME = (Value, MatrixValue, StructValue, ArrayReference, ElementReference, VariableReference)


def is_run_time(value: Any) -> bool:
    """Whether a value is known at run time only, in whole or in part."""
    if isinstance(value, (tuple, list)):
        return any(is_run_time(item) for item in value)
    if type(value) is dict:
        return any(is_run_time(item) for item in value.values())
    return isinstance(value, RUN_TIME)


def is_view(value: Any) -> bool:
    """Whether this is a view of an ndarray; see `frontend.memory.ndarray_views`."""
    return isinstance(value, StructValue) and isinstance(value.python_type, BufferViewAnnotation)


def is_number(value: Any) -> bool:
    """Whether a value is a number of Python (bools, numpy scalars and `HostNumber` among them)."""
    return isinstance(value, (bool, int, float, np.number, np.bool_, HostNumber))


def plain(value: Any) -> Any:
    """A numpy scalar as a Python number; anything else as it is."""
    return value.item() if isinstance(value, (np.number, np.bool_)) else value


def describe(value: Any) -> str:
    """The kind of a value, for messages: "an f32", "a vector of 3 f32", "the function `f`"."""
    if isinstance(value, Value):
        return f"{_article(value.type.name)} {value.type}"
    if isinstance(value, MatrixValue):
        return _describe_shape(value.shape, value.dtype)
    if isinstance(value, ElementReference):
        if value.shape:
            return _describe_shape(value.shape, value.array.dtype)
        return f"{_article(value.array.dtype.name)} {value.array.dtype}"
    if isinstance(value, ArrayReference):
        return f"the array `{value.array.name}`"
    if isinstance(value, StructValue):
        name = getattr(value.python_type, "name", "")
        return f"the struct `{name}`" if name else "a struct"
    if isinstance(value, FormattedString):
        return "a string"
    return _describe_python(value)


def _describe_shape(shape: tuple[int, ...], dtype: DType) -> str:
    if len(shape) == 1:
        return f"a vector of {shape[0]} {dtype}"
    return f"a {shape[0]}x{shape[1]} matrix of {dtype}"


def _describe_python(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, (bool, int, float)):
        return f"the number {value}"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, (RangeDomain, ProductDomain, GroupedDomain, range)):
        return "a range"
    if isinstance(value, types.ModuleType):
        return f"the module `{value.__name__.replace('octants.lang.', 'octants.')}`"
    if isinstance(value, type):
        return f"the type `{value.__name__}`"
    if callable(value) and hasattr(value, "__name__"):
        return f"the function `{value.__name__}`"
    name = type(value).__name__
    return getattr(value, "DESCRIPTION", f"{_article(name)} `{name}` object")


def _article(noun: str) -> str:
    return "an" if noun[:1] in "aeioAEIO" or noun in ("f16", "f32", "f64") else "a"
