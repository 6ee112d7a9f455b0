"""Values that equal a Python value as long as a kernel compiled for it means the same.

A kernel may be compiled for lists, dictionaries and arrays, which may be changed in place. Numbers
count as equal if their types are, too: ``1`` and ``1.0`` give variables of different types.
Objects count by identity. Nothing here keeps an object alive.
"""

from __future__ import annotations

import ctypes
import weakref
from array import array
from collections import ChainMap, UserDict, UserList, deque
from types import MappingProxyType
from typing import Any

import numpy as np

from octants.types.matrix_values import Matrix
from octants.types.structs import Struct
from octants.types.weak_references import reference_to

_IMMUTABLE = (bool, int, float, str, bytes, type(None), np.generic)
"""The types of numbers, and of what else is compared by value and cannot change."""


def likeness(value: Any) -> Any:
    """An object that equals a value; it has to be the left operand of ``==``."""
    if isinstance(value, (list, tuple)):
        return (list if isinstance(value, list) else tuple)(map(likeness, value))
    if isinstance(value, dict):
        return _LikeDictionary(value)
    if isinstance(value, _IMMUTABLE):
        return _Constant(value)
    return _like_object(value) if content_of(value) is None else _LikeContent(value)


def _like_object(value: Any) -> Any:
    reference = reference_to(value)
    return _Same(value) if reference is None else _SameObject(reference)


def can_change(value: Any) -> bool:
    """Whether a value, or what it holds, can be changed in place; objects do not count."""
    if isinstance(value, tuple):
        return any(map(can_change, value))
    return isinstance(value, (list, dict)) or content_of(value) is not None


def content_of(value: Any) -> Any:
    """The content of a value, no list, tuple or dictionary, that can change; None if none can."""
    if isinstance(value, np.ndarray):
        content = value.ravel().tolist() if value.dtype.hasobject else value.tobytes()
        return (value.dtype.str, value.shape, content) if _may_change(value) else None
    if isinstance(value, Matrix):
        elements = value.to_numpy()
        return elements.dtype.str, elements.shape, elements.tobytes()
    if isinstance(value, Struct):
        return value.entries
    if isinstance(value, (set, bytearray, deque, array, UserList)):
        return list(value)
    if isinstance(value, (UserDict, ChainMap, MappingProxyType)):
        return dict(value)
    return bytes(value) if isinstance(value, (memoryview, ctypes.Array)) else None


def _may_change(value: np.ndarray[Any, Any]) -> bool:
    """Whether elements may be assigned; not if it owns its memory and is read-only."""
    is_constant = value.base is None and not value.flags.writeable
    return not is_constant


class _Same:
    """Equals one value, by identity."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return self.value is other

    __hash__ = object.__hash__


class _SameObject:
    """Equals one object, which it does not keep alive."""

    __slots__ = ("_reference",)

    def __init__(self, reference: weakref.ref[Any]) -> None:
        self._reference = reference

    def __eq__(self, other: object) -> bool:
        return self._reference() is other

    __hash__ = object.__hash__


class _Constant:
    """Equals numbers and strings of the same type and value; 0.0 and -0.0 differ."""

    __slots__ = ("_text", "_value")

    def __init__(self, value: Any) -> None:
        self._value = value
        self._text = repr(value) if isinstance(value, (float, np.generic)) else None

    def __eq__(self, other: object) -> bool:
        if other is self._value:
            return True
        if type(other) is not type(self._value):
            return False
        return bool(other == self._value) if self._text is None else repr(other) == self._text

    __hash__ = object.__hash__


class _LikeDictionary:
    """Equals dictionaries with the same items in the same order."""

    __slots__ = ("_keys", "_values")

    def __init__(self, value: dict[Any, Any]) -> None:
        self._keys = likeness(list(value))
        self._values = likeness(list(value.values()))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, dict):
            return False
        return bool(self._keys == [*other] and self._values == [*other.values()])

    __hash__ = object.__hash__


class _LikeContent:
    """Equals one object as long as it holds the same."""

    __slots__ = ("_content", "_same")

    def __init__(self, value: Any) -> None:
        self._same = _like_object(value)
        self._content = likeness(content_of(value))

    def __eq__(self, other: object) -> bool:
        return bool(self._same == other and self._content == content_of(other))

    __hash__ = object.__hash__
