"""The text of a function, as it stands in its file, or in `linecache` for a notebook cell."""

from __future__ import annotations

import inspect
import linecache
import tokenize
import weakref
from types import FunctionType

_known: weakref.WeakKeyDictionary[FunctionType, str | None] = weakref.WeakKeyDictionary()


def source_text(function: FunctionType) -> str | None:
    """The lines from the decorators to the end of the body, "" where they cannot be told.

    None where there are no lines. A function keeps the text that it was first found to have, since
    all that is made of it must be made of the same.
    """
    if function not in _known:
        _known[function] = _find(function)
    return _known[function]


def _find(function: FunctionType) -> str | None:
    code = function.__code__
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename, function.__globals__)
    if code.co_name == "<lambda>" or not 0 < code.co_firstlineno <= len(lines):
        return None
    try:
        return "".join(inspect.getblock(lines[code.co_firstlineno - 1 :]))
    except (SyntaxError, tokenize.TokenError):
        return ""
