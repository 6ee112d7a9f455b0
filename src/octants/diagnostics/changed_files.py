"""Finds the code of functions whose file has changed since Python read it.

Octants reads the source of a kernel when the program first calls it. If the file was edited after
it had been imported, that is the source of another program. So the file is compiled once more, and
a function has a source only if its code is still there, at whatever line. Annotations of local
variables leave no bytecode: whether these were edited cannot be seen.
"""

from __future__ import annotations

import functools
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from types import CodeType
from typing import Any

_STARTED = time.time()


def present_code(code: CodeType, lines: Sequence[str]) -> CodeType | None:
    """The code that equals this one and has its lines in the file; None if there is none.

    It is this one if the file has not changed while the program runs.
    """
    try:
        changed = os.stat(code.co_filename).st_mtime
    except OSError:  # a cell of a notebook, or a module in an archive
        return code
    if changed < _STARTED:
        return code
    found = _codes("".join(lines), code.co_filename).get(_content(code), [])
    return code if code in found else _only_one(found, code)


def _only_one(found: Sequence[CodeType], code: CodeType) -> CodeType | None:
    """The function of the same qualified name, or the only one; None if there are several.

    Functions with the same bytecode may differ in annotations.
    """
    if len(found) > 1:
        names = [getattr(each, "co_qualname", None) for each in (code, *found)]
        if names[0] is None:  # in Python 3.10
            return None
        found = [each for each, name in zip(found, names[1:], strict=True) if name == names[0]]
    return found[0] if len(found) == 1 else None


@functools.lru_cache(maxsize=64)
def _codes(text: str, file: str) -> dict[Any, list[CodeType]]:
    """The functions in a text by what they do; none if it is no program."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = compile(text, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return {}
    found: dict[Any, list[CodeType]] = {}
    for code in _functions_in(module):
        found.setdefault(_content(code), []).append(code)
    return found


def _functions_in(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _functions_in(each)


def _content(code: CodeType) -> Any:
    """The bytecode, names and constants of a code object, without its lines."""
    names = (code.co_name, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return code.co_code, names, tuple(map(_content_of_constant, code.co_consts))


def _content_of_constant(value: Any) -> Any:
    """A constant, by which 1, 1.0 and True differ, as do 0.0 and -0.0."""
    if isinstance(value, CodeType):
        return _content(value)
    if isinstance(value, frozenset):
        return "frozenset", *sorted(map(repr, value))
    return repr(value)
