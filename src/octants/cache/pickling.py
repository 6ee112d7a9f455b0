"""Values as bytes and back; what is read back can only be made of our own plain records."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import io
import pickle
from collections.abc import Callable
from typing import Any

_FUNCTIONS = {
    ("builtins", "frozenset"),
    ("octants.types.scalars", "by_name"),
    ("octants.analysis.indices.index_ranges", "Regions"),
    ("octants.launch.bound_code", "bind"),
    ("octants.types.specialisation_signature", "FieldSource"),
}
Name = Callable[[Any], Any]


def to_bytes(value: Any, name: Name) -> bytes | None:
    """A value as bytes; None if it holds what cannot be kept.

    ``name`` gives a plain value for an object that is not kept, but known by that; None for others.
    """
    buffer = io.BytesIO()
    pickler = _Pickler(buffer, protocol=5)
    pickler.name = name
    try:
        pickler.dump(value)
    except (pickle.PicklingError, TypeError, AttributeError):
        return None
    return buffer.getvalue()


def from_bytes(data: bytes, find: Callable[[Any], Any]) -> Any:
    """The value of bytes; ``find`` gives the object of what `name` gave for it.

    Raises `pickle.UnpicklingError` for what is not allowed, and all sorts of things for garbage.
    """
    unpickler = _Unpickler(io.BytesIO(data))
    unpickler.find = find
    return unpickler.load()


class _Pickler(pickle.Pickler):
    name: Name

    def persistent_id(self, value: Any) -> Any:
        return self.name(value)

    def reducer_override(self, value: Any) -> Any:
        """Members of enumerations are known by their values, on all versions of Python."""
        if isinstance(value, enum.Enum):
            return type(value), (value.value,)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    find: Callable[[Any], Any]

    def persistent_load(self, name: Any) -> Any:
        return self.find(name)

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _FUNCTIONS or module.startswith("octants."):
            found = getattr(importlib.import_module(module), name)
            if (module, name) in _FUNCTIONS or _is_record(found):
                return found
        raise pickle.UnpicklingError(f"{module}.{name} cannot be cached")


def _is_record(found: Any) -> bool:
    return isinstance(found, type) and (
        dataclasses.is_dataclass(found) or issubclass(found, enum.Enum)
    )
