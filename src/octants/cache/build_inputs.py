"""The inputs of a kernel's build, as paths that lead to the same values in any process.

A path is (kind, number, name): what to read, and the number of the object that has it in the
`Digest` of the kernel's code and arguments, which goes on with each value that is read.
"""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Iterable, Sequence
from typing import Any

from octants.cache.digest import Digest, is_ours, is_plain
from octants.types.compile_time_reads import ABSENT, Read

Path = tuple[str, int, str]
_VARYING = "varying "
"""Stands before the kind of a read of which only the type counts."""


def follow_reads(digest: Digest, reads: Iterable[Read]) -> list[Path] | None:
    """Add what was read to a digest; the paths to it, None if there is none to some of it."""
    paths: list[Path] = []
    seen: set[tuple[str, int, str]] = set()
    for read in reads:
        key = (read.kind, id(read.owner), read.name)
        if key in seen or _is_of_octants(read, digest) or _is_of_plain(read):
            continue
        seen.add(key)
        number = digest.number(read.owner)
        if number is None:
            return None
        paths.append((_VARYING + read.kind if read.varies else read.kind, number, read.name))
        _add(digest, read, number)
    return paths


def follow_paths(digest: Digest, paths: Sequence[Path]) -> list[Read] | None:
    """Read what stands at the ends of paths, and add it to a digest; None if that cannot be."""
    reads = []
    for kind, number, name in paths:
        if number >= len(digest.objects):
            return None
        owner = digest.objects[number]
        varies = kind.startswith(_VARYING)
        kind = kind.removeprefix(_VARYING)
        read = Read(kind, owner, name, value_now(kind, owner, name), varies)
        if varies and type(read.value) not in (int, float):
            return None
        _add(digest, read, number)
        reads.append(read)
    return reads


def _add(digest: Digest, read: Read, number: int) -> None:
    digest.word(read.kind, number, read.name)
    if read.varies:
        digest.word(_VARYING, type(read.value).__name__)
        return
    if read.kind == "field":
        digest.field(read.value)
        return
    if read.kind == "attribute":  # how the class has it decides what of it is a method
        static = inspect.getattr_static(type(read.owner), read.name, None)
        digest.word(type(static).__name__)
    digest.value(read.value)


def _is_of_octants(read: Read, digest: Digest) -> bool:
    """Whether the code of Octants has read something of its own, which its version tells."""
    if read.owner is None:
        return True
    if read.kind in ("global", "closure"):
        return is_ours(read.owner.__module__)
    owner = read.owner
    module = getattr(owner, "__name__" if inspect.ismodule(owner) else "__module__", None)
    return read.kind != "field" and digest.number(owner) is None and is_ours(module)


def _is_of_plain(read: Read) -> bool:
    """Whether an attribute is one of a number or a string, whose value tells it."""
    return read.kind == "attribute" and is_plain(read.owner)


def value_now(kind: str, owner: Any, name: str) -> Any:
    """The present value of a name or an attribute."""
    if kind == "field":
        return owner
    if kind == "attribute":
        return getattr(owner, name, ABSENT)
    if kind == "attribute of a type":
        methods = getattr(owner, "methods", None) or {}
        return methods.get(name) or getattr(owner, name, ABSENT)
    if name in owner.__code__.co_freevars:
        cell = owner.__closure__[owner.__code__.co_freevars.index(name)]
        return cell.cell_contents
    return owner.__globals__.get(name, getattr(builtins, name, ABSENT))
