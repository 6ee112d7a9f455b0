"""Functions that are made of generated text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_FILE = __file__.removesuffix("functions_from_text.py") + "<generated>"
"""In the package, so that warnings look past such a function."""


def define(name: str, text: str, scope: dict[str, Any]) -> Callable[..., Any]:
    """The function ``name`` that a text defines over the names of ``scope``, which it joins."""
    exec(compile(text, _FILE, "exec"), scope)
    function: Callable[..., Any] = scope[name]
    return function
