"""Functions that are made of generated text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

_FILE = str(Path(__file__).parent.parent / "<generated>")  # warnings look past what is in here


def define(name: str, text: str, scope: dict[str, Any]) -> Callable[..., Any]:
    """The function ``name`` that a text defines over the names of ``scope``, which it joins."""
    exec(compile(text, _FILE, "exec"), scope)
    function: Callable[..., Any] = scope[name]
    return function
