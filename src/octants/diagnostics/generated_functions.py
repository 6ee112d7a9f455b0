"""Functions that are made of generated text."""

from __future__ import annotations

import os.path
from collections.abc import Callable
from typing import Any

_PACKAGE = os.path.dirname(os.path.dirname(__file__))  # warnings look past what is in here
_FILE = os.path.join(_PACKAGE, "<generated>")


def define(name: str, text: str, scope: dict[str, Any]) -> Callable[..., Any]:
    """The function ``name`` that a text defines over the names of ``scope``, which it joins."""
    exec(compile(text, _FILE, "exec"), scope)
    function: Callable[..., Any] = scope[name]
    return function
