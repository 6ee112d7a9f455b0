"""Renames the private names of a class, as Python does when it compiles the class.

In the body of ``class World``, ``self.__dt`` is the attribute ``_World__dt``. A syntax tree has the
name that the file shows, a code object the one that it stands for:

    self.__dt = 0.5  ->  self._World__dt = 0.5

The class is found by the names of the code object, so this also holds for functions that a
decorator or `exec` has moved elsewhere.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator

_FIELDS = {ast.Name: "id", ast.Attribute: "attr", ast.arg: "arg", ast.keyword: "arg"}


def mangle_private_names(tree: ast.AST, code: types.CodeType) -> None:
    """Give the private names of a function, in place, the class that its code object shows."""
    found = [
        (node, field, name)
        for node in ast.walk(tree)
        if (field := _FIELDS.get(type(node)))
        and (name := getattr(node, field))
        and name.startswith("__")
        and not name.endswith("__")
    ]
    if not found:
        return
    known = set(_names_of(code))
    prefixes = [
        {each.removesuffix(name) for each in known if each.startswith("_") and each.endswith(name)}
        for name in {name for _, _, name in found} - known
    ]
    shared = set.intersection(*filter(None, prefixes)) if any(prefixes) else set()
    if not shared:
        return
    prefix = min(shared, key=len)
    for node, field, name in found:
        setattr(node, field, prefix + name)


def _names_of(code: types.CodeType) -> Iterator[str]:
    """The names that a code object and those within it mention."""
    yield from (*code.co_names, *code.co_varnames, *code.co_freevars, *code.co_cellvars)
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _names_of(each)
