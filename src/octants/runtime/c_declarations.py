"""Structures of C whose fields are declared as in C."""

from __future__ import annotations

import ctypes
from typing import Any


def fields(declarations: str) -> list[tuple[str, Any]]:
    """The ``_fields_`` of a structure: ``fields("uint32 first, count; char* name; ubyte id[16]")``.

    A type is named as in `ctypes`, without ``c_``.
    """
    found = []
    for declaration in declarations.split(";"):
        kind, names = declaration.split(maxsplit=1)
        for each in names.split(","):
            name, _, count = each.strip().partition("[")
            declared = _type(kind)
            found.append((name, declared * int(count[:-1]) if count else declared))
    return found


def _type(kind: str) -> Any:
    if kind in ("void*", "char*"):
        return getattr(ctypes, f"c_{kind[:-1]}_p")
    return ctypes.POINTER(_type(kind[:-1])) if kind[-1] == "*" else getattr(ctypes, f"c_{kind}")
