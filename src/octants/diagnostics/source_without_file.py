"""The text of a program that is in no file: of ``python -c``, or of a file that stdin reads.

Python 3.13 and later keep the text of ``python -c``; before, it is in the arguments of the process.
"""

from __future__ import annotations

import functools
import linecache
import os
import stat
import sys
from types import CodeType


def lines_of(code: CodeType) -> list[str]:
    """The lines of the program that the code is part of, which `linecache` has from then on.

    Code of `exec` can have the same file name: the program is compiled again, and code that does
    not come out of it gets no lines.
    """
    file = code.co_filename
    lines = linecache.getlines(file)
    text = "".join(lines) if lines else _READERS[file]()
    if text is None or code not in _codes_of(text, file):
        return []
    if not lines:
        lines = text.splitlines(keepends=True)
        linecache.cache[file] = (len(text), None, lines, file)
    return lines


@functools.lru_cache(maxsize=4)
def _codes_of(text: str, file: str) -> frozenset[CodeType]:
    try:
        pending = [compile(text, file, "exec", dont_inherit=True)]
    except (SyntaxError, ValueError):
        return frozenset()
    found = set(pending)
    while pending:
        inner = {value for value in pending.pop().co_consts if isinstance(value, CodeType)}
        pending += inner
        found |= inner
    return frozenset(found)


def _argument() -> str | None:
    """The text after ``-c``."""
    arguments = sys.orig_argv
    if sys.argv[:1] != ["-c"] or "-c" not in arguments[:-1]:
        return None
    return arguments[arguments.index("-c") + 1] + "\n"


def _standard_input() -> str | None:
    """The file that is stdin; what a pipe held is gone."""
    try:
        state = os.fstat(0)
        if not stat.S_ISREG(state.st_mode):
            return None
        return os.pread(0, state.st_size, 0).decode()
    except (OSError, AttributeError, UnicodeDecodeError):  # Windows has no pread
        return None


_READERS = {"<string>": _argument, "<stdin>": _standard_input}
