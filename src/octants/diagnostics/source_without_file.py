"""The text of a program that is in no file.

* Of ``python -c``: Python 3.13 and later keep it; before, it is in the arguments of the process.
* Of a file that is stdin: it is read again.
* Of `exec`: it is among the constants and variables of the function that calls `exec`.
* Of Python's prompt before 3.13: it is in the history of `readline`.

A text is compiled, and taken only if the code comes out of it. For `exec` and the prompt,
decorators search while the definition runs (`search`).
"""

from __future__ import annotations

import functools
import itertools
import linecache
import os
import stat
import sys
from collections.abc import Iterator
from types import CodeType, FrameType

_LONGEST = 500  # lines of a definition at the prompt
_FUTURES = 0x1FE0000  # flags of `from __future__` imports, which `exec` inherits

_found: dict[CodeType, str] = {}
_numbers = itertools.count(1)


def search(code: CodeType, frame: FrameType | None) -> None:
    """Search the text of a function that `exec` or the prompt is defining, in a frame."""
    if code in _found or code in _codes_of_program(code.co_filename):
        return
    for text, flags, mode in _candidates(code, frame):
        codes = _codes_of(text, code.co_filename, flags, mode)
        if code in codes:
            name = f"<{'prompt' if mode == 'single' else mode} {next(_numbers)}>"
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
            _found.update(dict.fromkeys(codes, name))
            return


def file_of(code: CodeType) -> str:
    """The file name under which `linecache` has the lines of a code."""
    return _found.get(code, code.co_filename)


def _candidates(code: CodeType, frame: FrameType | None) -> Iterator[tuple[str, int, str]]:
    """Texts that may be that of the code, with the flags and the mode to compile them."""
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    caller = None if frame is None else frame.f_back
    if caller is None:
        yield from ((text, 0, "single") for text in _prompted(code))
        return
    names = caller.f_code.co_names
    values = [*caller.f_code.co_consts, *caller.f_locals.values()]
    values += [caller.f_globals[name] for name in names if name in caller.f_globals]
    begin = "lambda" if code.co_name == "<lambda>" else f"def {code.co_name}"
    for value in values:
        if isinstance(value, str) and begin in value:
            yield value, caller.f_code.co_flags & _FUTURES, "exec"


def _prompted(code: CodeType) -> Iterator[str]:
    """The last lines at the prompt, from each line on that may begin a statement."""
    readline = sys.modules.get("readline")
    if readline is None or code.co_filename != "<stdin>" or not hasattr(sys, "ps1"):
        return
    last = readline.get_current_history_length()
    lines: list[str] = []
    for number in range(last, max(0, last - _LONGEST), -1):
        line = readline.get_history_item(number) or ""
        lines.insert(0, line)
        if line[:1].strip():
            yield "\n".join(lines) + "\n\n"


def lines_of(code: CodeType) -> list[str]:
    """The lines of the program that the code is part of, which `linecache` has from then on.

    Code of `exec` can have the same file name: the program is compiled again, and code that does
    not come out of it gets no lines.
    """
    if code in _found or code in _codes_of_program(code.co_filename):
        return linecache.getlines(file_of(code))
    return []


def _codes_of_program(file: str) -> frozenset[CodeType]:
    """The codes of the program that the process runs, whose lines `linecache` has from then on."""
    lines = linecache.getlines(file)
    text = "".join(lines) if lines else _READERS[file]()
    if text is None:
        return frozenset()
    codes = _codes_of(text, file)
    if codes and not lines:
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    return codes


@functools.lru_cache(maxsize=4)
def _codes_of(text: str, file: str, flags: int = 0, mode: str = "exec") -> frozenset[CodeType]:
    try:
        pending = [compile(text, file, mode, flags, dont_inherit=True)]
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
