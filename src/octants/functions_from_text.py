"""Functions that are made of generated text."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CodeType
from typing import Any

_FILE = __file__.removesuffix("functions_from_text.py") + "<generated>"
"""In the package, so that warnings look past such a function."""


def define(name: str, text: str, scope: dict[str, Any]) -> Callable[..., Any]:
    """The function ``name`` that a text defines over the names of ``scope``, which it joins."""
    exec(_compiled(text), scope)
    function: Callable[..., Any] = scope[name]
    return function


@functools.lru_cache(1024)
def _compiled(text: str) -> CodeType:
    """The code of a text; kernels that take alike arguments have the same texts."""
    return compile(text, _FILE, "exec")
