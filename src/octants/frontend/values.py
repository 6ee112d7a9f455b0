"""What an expression of a kernel stands for while the kernel is built.

- a run-time scalar is an `ir.core.Value` itself;
- a run-time vector or matrix is a `MatrixValue`, a struct a `StructValue`;
- a field or an array argument is an `ArrayReference`, an element of one an `ElementReference`;
- anything else is a compile-time Python object: a number from a literal, ``static()`` or a closure,
  a dtype, a function, a tuple of values of any of these sorts. A Python number becomes a run-time
  value where it meets one (`Context.value`), or where it is assigned to a variable.

Values are never changed in place: an assignment to ``v[k]`` makes a new `MatrixValue`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from octants.ir.core import Array, Companion, Value
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
    """Named members, each a value of any sort; `python_type` is the struct's type, if it has one."""

    members: dict[str, Any]
    python_type: Any = None


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
    place of a store; `Context.load` gives its value.
    """

    array: Array
    companion: Companion
    indices: tuple[Value, ...]
    shape: tuple[int, ...] = ()
    components: tuple[tuple[int | Value, ...], ...] = ((),)


@dataclass(eq=False, slots=True)
class Variable:
    """A local variable of the function that is being built; `value` changes as it is assigned.

    `parameter` variables of kernels are read-only scalars until they are assigned to.
    """

    name: str
    value: Any
    is_loop_index: bool = False
    cell: Any = None  # an ArrayReference where the variable lives in launch-temporary memory
    location: Any = None


@dataclass(frozen=True, slots=True)
class VariableReference:
    """A local variable as the target of a store, or components of the vector that it holds."""

    variable: Variable
    path: tuple[Any, ...] = field(default=())


Place = ElementReference | VariableReference | ArrayReference


def is_run_time(value: Any) -> bool:
    """Whether a value is known at run time only, in whole or in part."""
    if isinstance(value, (tuple, list)):
        return any(is_run_time(item) for item in value)
    return isinstance(value, (Value, MatrixValue, StructValue, ArrayReference, ElementReference))


def is_number(value: Any) -> bool:
    """Whether a value is a compile-time number (bools and numpy scalars among them)."""
    return isinstance(value, (bool, int, float)) or (
        hasattr(value, "dtype") and hasattr(value, "item") and getattr(value, "shape", None) == ()
    )
