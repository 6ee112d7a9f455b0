"""Structures of C whose fields are declared as in C."""

from __future__ import annotations

import ctypes
from typing import Any


def fields(declarations: str, *structures: type[ctypes.Structure]) -> list[tuple[str, Any]]:
    """The ``_fields_`` of a structure: ``fields("uint32 first, count; char* name; ubyte id[16]")``.

    A type is named as in `ctypes`, without ``c_``, or is one of the ``structures``.
    """
    known = {each.__name__: each for each in structures}
    found = []
    for declaration in declarations.split(";"):
        kind, names = declaration.split(maxsplit=1)
        for each in names.split(","):
            name, _, count = each.strip().partition("[")
            declared = _type(kind, known)
            found.append((name, declared * int(count[:-1]) if count else declared))
    return found


def _type(kind: str, known: dict[str, type[ctypes.Structure]]) -> Any:
    if kind in ("void*", "char*"):
        return getattr(ctypes, f"c_{kind[:-1]}_p")
    if kind[-1] == "*":
        return ctypes.POINTER(_type(kind[:-1], known))
    return known.get(kind) or getattr(ctypes, f"c_{kind}")
