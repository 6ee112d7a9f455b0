"""Replaces the values of leaves among the arguments of a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from octants.runtime.arguments.parameters import Leaf


def replace(arguments: Sequence[Any], leaf: Leaf, value: Any) -> Sequence[Any]:
    """Return the arguments with another value for one leaf."""
    changed = list(arguments)
    changed[leaf.position] = _with_member(changed[leaf.position], leaf.path, value)
    return changed


class _Replaced:
    """A view of a struct argument with some members replaced."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


def _with_member(value: Any, path: tuple[str, ...], number: Any) -> Any:
    if not path:
        return number
    copy = value if isinstance(value, _Replaced) else _Replaced(value)
    setattr(copy, path[0], _with_member(getattr(copy, path[0]), path[1:], number))
    return copy
