"""References that keep nothing alive: what a kernel was compiled for may end before the kernel."""

from __future__ import annotations

import enum
import itertools
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from octants.types.scalars import DType

_CONSTANT = (int, float, complex, str, bytes, type(None), type, types.ModuleType, DType, enum.Enum)
_numbers = itertools.count(1)
_known: dict[int, tuple[weakref.ref[Any], int]] = {}


def reference_to(value: Any) -> weakref.ref[Any] | None:
    """A weak reference to an object; None for constants and what cannot be referenced so."""
    if isinstance(value, (*_CONSTANT, types.MethodType)):
        return None
    try:
        return weakref.ref(value)
    except TypeError:
        return None


def number_of(value: Any) -> int | None:
    """A number that no other object ever has; None for what cannot be referenced weakly."""
    key = id(value)
    known = _known.get(key)
    if known is not None and known[0]() is value:
        return known[1]

    def forget(ended: weakref.ref[Any]) -> None:
        if key in _known and _known[key][0] is ended:
            del _known[key]

    try:
        reference = weakref.ref(value, forget)
    except TypeError:
        return None
    _known[key] = reference, next(_numbers)
    return _known[key][1]


def parts_of(value: Any) -> Iterator[Any]:
    """The items of a tuple, list or dictionary, and the object of a bound method."""
    if isinstance(value, types.MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, (tuple, list)):
        yield from value
    elif isinstance(value, dict):
        yield from value.values()


def weakly(value: Any) -> Callable[[], Any]:
    """A function that gives a value while it exists, and does not keep it alive.

    Tuples, lists, dictionaries and bound methods are made again of their parts. What cannot be
    referenced weakly is kept.
    """
    reference = reference_to(value)
    if reference is not None:
        return reference
    parts = [weakly(part) for part in parts_of(value)]
    if isinstance(value, types.MethodType):
        return lambda: types.MethodType(parts[0](), parts[1]())
    if isinstance(value, dict):
        keys = list(value)
        return lambda: dict(zip(keys, (part() for part in parts), strict=True))
    if isinstance(value, (tuple, list)):
        make = getattr(value, "_make", type(value))
        return lambda: make(part() for part in parts)
    return lambda: value


def if_referable(value: Any) -> Callable[[], Any]:
    """The same for an object and a constant; None in place of all else."""
    if isinstance(value, _CONSTANT):
        return lambda: value
    return reference_to(value) or (lambda: None)
