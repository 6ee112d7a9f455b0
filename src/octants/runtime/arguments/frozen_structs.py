"""Recognises struct arguments whose members never change by their identity.

    @dataclasses.dataclass(frozen=True)
    class State:
        pos: qd.Tensor
        vel: qd.Tensor

Programs for Quadrants pass structs of hundreds of arrays. Where such a struct is the same object as
in the launch before, its arrays are neither compared with the key of the specialisation nor packed
into the parameter block again. This holds for members without state of their own that a key or a
slot depends on: Octants' arrays and fields, and plain constants of templates.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from octants.lazy_dataclass import dataclass
from octants.runtime.arguments.parameters import Leaf
from octants.types.specialisation_signature import (
    FieldHandle,
    NdarrayHandle,
    ScalarType,
    StructHandle,
)
from octants.types.weak_references import reference_to

Location = tuple[int, tuple[str, ...]]
"""The position of an argument, and the path of a leaf in it."""
_HANDLES = (FieldHandle, NdarrayHandle, StructHandle)
_CONSTANTS = (bool, int, float, str, type(None))
_FEWEST = 2  # leaves for which recognising the struct is faster


@dataclass(frozen=True, slots=True)
class FrozenStruct:
    """A frozen dataclass among the arguments, by its location, and the leaves that it settles.

    `kinds` are the types of it and of the structs inside it, by their paths: a struct with the same
    types, and with leaves of the same key, is frozen, too.
    """

    position: int
    path: tuple[str, ...]
    leaves: tuple[Leaf, ...]
    kinds: Mapping[tuple[str, ...], type]

    @property
    def expression(self) -> str:
        """The struct in generated code."""
        return _expression(self.position, self.path)

    def kind_test(self, scope: dict[str, Any]) -> str:
        """A condition in generated code, over names that ``scope`` gets, that a struct is frozen.

        It is for structs with leaves of the same key.
        """
        terms = []
        for path, kind in self.kinds.items():
            name = f"kind{len(scope)}"
            scope[name] = kind
            terms.append(f"type({_expression(self.position, path)}) is {name}")
        return " and ".join(terms)

    def value(self, arguments: Sequence[Any]) -> Any:
        """The struct."""
        return self._value(self.path, arguments)

    def is_frozen_in(self, arguments: Sequence[Any]) -> bool:
        """The same as `kind_test`."""
        values = {path: self._value(path, arguments) for path in self.kinds}
        return all(type(values[path]) is kind for path, kind in self.kinds.items())

    def _value(self, path: tuple[str, ...], arguments: Sequence[Any]) -> Any:
        return functools.reduce(getattr, path, arguments[self.position])


def frozen_structs(leaves: Iterable[Leaf], arguments: Sequence[Any]) -> list[FrozenStruct]:
    """The outermost frozen dataclasses among the arguments that settle several leaves."""
    found: dict[Location, tuple[list[Leaf], dict[tuple[str, ...], type]]] = {}
    for leaf in leaves:
        if leaf.path and not isinstance(leaf.annotation, ScalarType):
            values = _values_to(leaf, arguments)
            depth = _outermost(leaf, values)
            if depth < len(leaf.path):
                settled, kinds = found.setdefault((leaf.position, leaf.path[:depth]), ([], {}))
                settled.append(leaf)
                for k in range(depth, len(leaf.path)):
                    kinds[leaf.path[:k]] = type(values[k])
    structs = [
        FrozenStruct(position, path, tuple(settled), kinds)
        for (position, path), (settled, kinds) in found.items()
        if len(settled) >= _FEWEST
    ]
    return [each for each in structs if reference_to(each.value(arguments)) is not None]


def _expression(position: int, path: tuple[str, ...]) -> str:
    return ".".join((f"a{position}", *path))


def _values_to(leaf: Leaf, arguments: Sequence[Any]) -> list[Any]:
    """The argument, and what each member of the leaf's path leads to."""
    values = [arguments[leaf.position]]
    for member in leaf.path:
        values.append(getattr(values[-1], member))
    return values


def _outermost(leaf: Leaf, values: Sequence[Any]) -> int:
    """How many members of the path lead to the outermost struct that settles the leaf."""
    depth = len(leaf.path)
    if isinstance(values[-1], _HANDLES) or type(values[-1]) in _CONSTANTS:
        while depth and _holds(values[depth - 1], leaf.path[depth - 1], values[depth]):
            depth -= 1
    return depth


def _holds(struct: Any, member: str, value: Any) -> bool:
    """Whether a struct is frozen, and has a value as a member of its own, not by a property."""
    kind: Any = type(struct)
    parameters = vars(kind).get("__dataclass_params__")
    if parameters is None or not parameters.frozen:
        return False
    if kind.__getattribute__ is not object.__getattribute__:
        return False
    return getattr(struct, "__dict__", {}).get(member) is value
