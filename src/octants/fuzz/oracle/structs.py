"""Structs as values, as arguments, and as elements of fields: assignment copies every member."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from octants.fuzz.oracle.arrays import Array
from octants.fuzz.oracle.matrices import Matrix
from octants.fuzz.oracle.numbers import Type, convert, lift
from octants.fuzz.oracle.state import STATE, IllDefined


class MatrixType:
    """``types.vector(n, dtype)`` or ``types.matrix(n, m, dtype)``."""

    def __init__(self, shape: tuple[int, ...], dtype: Type) -> None:
        self.shape = shape
        self.dtype = dtype

    def __call__(self, value: Any) -> Matrix:
        items = value.items if isinstance(value, Matrix) else _flat(value)
        return Matrix([convert(lift(item), self.dtype) for item in items], self.shape)


def _flat(value: Any) -> list[Any]:
    return [item for row in value for item in (row if isinstance(row, list | tuple) else [row])]


class StructType:
    """The type of a struct: its members' types by name, and its methods."""

    def __init__(self, members: Mapping[str, Any], methods: Mapping[str, Any]) -> None:
        self.members = dict(members)
        self.methods = dict(methods)

    def __call__(self, *values: Any, **named: Any) -> Struct:
        """A value: members in order or by name; those that are not given are zero."""
        given = {**dict(zip(self.members, values, strict=False)), **named}
        return Struct(self, {k: settled(t, given.get(k, 0)) for k, t in self.members.items()})

    def field(self, shape: Any = (), needs_grad: bool = False, **_: Any) -> StructField:
        extents = (shape,) if isinstance(shape, int) else tuple(shape)
        return StructField(
            self, {k: _member_field(t, extents, needs_grad) for k, t in self.members.items()}
        )


def _member_field(kind: Any, shape: tuple[int, ...], needs_grad: bool) -> Any:
    if isinstance(kind, StructType):
        return kind.field(shape, needs_grad)
    if isinstance(kind, MatrixType):
        return Array(kind.dtype, shape, kind.shape, needs_grad)
    return Array(kind, shape, (), needs_grad)


def settled(kind: Any, value: Any) -> Any:
    """A value as a member of a type holds it: converted, copied."""
    if isinstance(kind, StructType):
        if isinstance(value, Mapping):
            return kind(**value)
        if not isinstance(value, Struct | StructElement):
            return kind(*[value] * len(kind.members))
        if value.kind is not kind:
            raise IllDefined("a struct of another type")
        return value.copy()
    if isinstance(kind, MatrixType):
        if not isinstance(value, Matrix | list | tuple):
            value = [value] * functools.reduce(lambda a, b: a * b, kind.shape)
        made = kind(value)
        return Matrix([_rounded(item) for item in made.items], made.shape)
    return _rounded(convert(lift(value), kind))


def _rounded(number: Any) -> Any:
    """A number that is no literal any more."""
    if number.literal:
        number = type(number)(number.type, number.value, number.error)
    return number


class Struct:
    """A value of a struct type."""

    def __init__(self, kind: StructType, members: dict[str, Any]) -> None:
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "values", members)

    def __getattr__(self, name: str) -> Any:
        if name in self.values:
            return self.values[name]
        return _method(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.values:
            raise IllDefined(f"no member {name}")
        stored = settled(self.kind.members[name], value)
        if not STATE.quiet:
            self.values[name] = stored

    def copy(self) -> Struct:
        members = self.kind.members
        return Struct(self.kind, {k: settled(members[k], v) for k, v in self.values.items()})


class StructElement:
    """An element of a field of structs: what is assigned to a member goes there."""

    def __init__(self, field: StructField, index: Any) -> None:
        object.__setattr__(self, "field", field)
        object.__setattr__(self, "index", index)
        object.__setattr__(self, "kind", field.kind)

    def __getattr__(self, name: str) -> Any:
        if name in self.field.values:
            return self.field.values[name][self.index]
        return _method(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self.field.values[name][self.index] = value

    def copy(self) -> Struct:
        kind: StructType = self.kind
        return kind(**{name: getattr(self, name) for name in kind.members})


class StructField:
    """A field of structs: a field for each member."""

    def __init__(self, kind: StructType, values: dict[str, Any]) -> None:
        self.kind = kind
        self.values = values

    def __getattr__(self, name: str) -> Any:
        if name == "values" or name not in self.values:
            raise AttributeError(name)
        return self.values[name]

    def __getitem__(self, index: Any) -> StructElement:
        return StructElement(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        whole = settled(self.kind, value)
        for name, member in self.values.items():
            member[index] = getattr(whole, name)

    def __iter__(self) -> Any:
        return iter(next(iter(self.values.values())))

    @property
    def leaves(self) -> list[Array]:
        """The fields of numbers, vectors and matrices."""
        found: list[Array] = []
        for member in self.values.values():
            found += member.leaves if isinstance(member, StructField) else [member]
        return found

    @property
    def shape(self) -> tuple[int, ...]:
        return self.leaves[0].shape


def _method(value: Any, name: str) -> Callable[..., Any]:
    if name not in value.kind.methods:
        raise AttributeError(name)
    return functools.partial(value.kind.methods[name], value)


def from_class(cls: type) -> StructType:
    """``@dataclass``: the annotations are members, functions are methods."""
    methods = {name: f for name, f in vars(cls).items() if callable(f) and name[:2] != "__"}
    return StructType(cls.__annotations__, methods)
