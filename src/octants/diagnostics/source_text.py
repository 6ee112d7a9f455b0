"""The text of a function, as it stands in its file, or in `linecache` for a notebook cell."""

from __future__ import annotations

import inspect
import linecache
import tokenize
import weakref
from types import CodeType, FunctionType

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
    end = _end_by_positions(code, lines)
    if end is not None:
        return "".join(lines[code.co_firstlineno - 1 : end])
    try:
        return "".join(inspect.getblock(lines[code.co_firstlineno - 1 :]))
    except (SyntaxError, tokenize.TokenError):
        return ""


def _end_by_positions(code: CodeType, lines: list[str]) -> int | None:
    """The number of the last line of a function, from the positions in its code.

    Tokens need not be read for that, which takes long. None where something may follow that has
    left no code, such as a closing bracket, or statements that are never reached.
    """
    end = _last_position(code)
    first = lines[code.co_firstlineno - 1]
    margin = first[: len(first) - len(first.lstrip())]
    if end == 0 or "\t" in margin:
        return None
    for line in lines[end:]:
        text = line.lstrip()
        if text and not text.startswith("#"):
            is_behind = len(line) - len(text) <= len(margin) and text[0] not in ")]}"
            return end if is_behind and "\t" not in line[: len(line) - len(text)] else None
    return end


def _last_position(code: CodeType) -> int:
    """The largest line number in a code and the codes in it; 0 where positions are not kept."""
    positions = getattr(code, "co_positions", tuple)  # Python 3.10 has none
    ends = [end or 0 for _, end, _, _ in positions()]
    inner = [_last_position(value) for value in code.co_consts if isinstance(value, CodeType)]
    return max([0, *ends, *inner])
