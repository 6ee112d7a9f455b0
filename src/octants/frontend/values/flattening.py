"""Values split into scalars and put together again: how variables cross control flow.

The leaves of a value are its run-time scalars and numbers, in order; everything else in it (shapes,
names of members, functions, strings) is its structure.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

from octants.frontend.values.expression_values import MatrixValue, StructValue, is_number
from octants.ir.core import Value
from octants.types.scalars import DType, promote


def leaves(value: Any) -> list[Any]:
    """The scalars and numbers of a value."""
    if isinstance(value, Value) or is_number(value):
        return [value]
    if isinstance(value, MatrixValue):
        return list(value.elements)
    if isinstance(value, StructValue):
        return [leaf for member in value.members.values() for leaf in leaves(member)]
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in leaves(item)]
    if type(value) is dict:
        return [leaf for item in value.values() for leaf in leaves(item)]
    return []


def rebuild(value: Any, replacements: Iterable[Any]) -> Any:
    """A value of the structure of ``value`` with other leaves."""
    return _rebuild(value, iter(replacements))


def _rebuild(value: Any, replacements: Iterator[Any]) -> Any:
    if isinstance(value, Value) or is_number(value):
        return next(replacements)
    if isinstance(value, MatrixValue):
        return MatrixValue(value.shape, [next(replacements) for _ in value.elements])
    if isinstance(value, StructValue):
        members = {name: _rebuild(item, replacements) for name, item in value.members.items()}
        return StructValue(members, value.python_type)
    if isinstance(value, tuple):
        return tuple(_rebuild(item, replacements) for item in value)
    if isinstance(value, list):
        return [_rebuild(item, replacements) for item in value]
    if type(value) is dict:
        return {key: _rebuild(item, replacements) for key, item in value.items()}
    return value


def same_structure(a: Any, b: Any) -> bool:
    """Whether two values differ in their leaves only."""
    if _is_leaf(a) or _is_leaf(b):
        return _is_leaf(a) and _is_leaf(b)
    if isinstance(a, MatrixValue) or isinstance(b, MatrixValue):
        return isinstance(a, MatrixValue) and isinstance(b, MatrixValue) and a.shape == b.shape
    if isinstance(a, StructValue) and isinstance(b, StructValue):
        return list(a.members) == list(b.members) and all(
            same_structure(a.members[name], b.members[name]) for name in a.members
        )
    if isinstance(a, (tuple, list)) and type(a) is type(b):
        return len(a) == len(b) and all(map(same_structure, a, b))
    if type(a) is dict and type(b) is dict:
        return list(a) == list(b) and all(map(same_structure, a.values(), b.values()))
    return a is b or (type(a) is type(b) and isinstance(a, (str, type(None))) and a == b)


def _is_leaf(value: Any) -> bool:
    return isinstance(value, Value) or is_number(value)


def has_object(value: Any) -> bool:
    """Whether a value holds something that no run-time value can stand for."""
    if isinstance(value, StructValue):
        return any(map(has_object, value.members.values()))
    if isinstance(value, (tuple, list)):
        return any(map(has_object, value))
    if type(value) is dict:
        return any(map(has_object, value.values()))
    return not (_is_leaf(value) or isinstance(value, MatrixValue))


def common_type(values: list[Value]) -> DType:
    """The type that holds all of some scalars."""
    return functools.reduce(promote, (value.type for value in values))
