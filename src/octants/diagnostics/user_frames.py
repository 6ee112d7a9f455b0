"""Finds the frame of the user's code that an error or a warning belongs to."""

from __future__ import annotations

import linecache
import os.path
import sys
import warnings
from collections.abc import Iterable
from types import CodeType, FrameType
from typing import Any

from octants.diagnostics.errors import UserError
from octants.diagnostics.exceptions import OctantsWarning
from octants.diagnostics.render import Diagnostic, render
from octants.diagnostics.span import Span

WITHOUT_FILE = ("<string>", "<stdin>")
"""Python's names for programs that are in no file; other code can have the same name."""

_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep


def is_internal(code: CodeType) -> bool:
    """Whether code is of this package, and not of its users."""
    return code.co_filename.startswith(_PACKAGE)


def levels_to_the_user() -> int:
    """The ``stacklevel`` at which `warnings.warn` names the first frame outside of this package."""
    level = 0
    frame: FrameType | None = sys._getframe()
    while frame is not None and is_internal(frame.f_code):
        level, frame = level + 1, frame.f_back
    return level


def warn_at_spans(problems: Iterable[Diagnostic]) -> None:
    """Give warnings at the lines that they are about, each of them once."""
    for problem in problems:
        span, text = problem.labels[0].span, render(problem)
        warnings.warn_explicit(text, OctantsWarning, span.file, span.line, registry=_reported)


def warn_at_caller(problem: UserError) -> None:
    """Give a warning at the line outside of this package that led here."""
    text = render(problem.diagnostic())
    warnings.warn(text, OctantsWarning, stacklevel=levels_to_the_user())


_reported: dict[Any, Any] = {}


def user_span() -> Span | None:
    """The code of the first frame outside of this package: the call, or its line."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and is_internal(frame.f_code):
        frame = frame.f_back
    if frame is None:
        return None
    file, line = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(file, line).rstrip("\n")
    column, end = len(text) - len(text.lstrip()), len(text)
    if hasattr(frame.f_code, "co_positions"):  # from Python 3.11 on
        positions = list(frame.f_code.co_positions())[frame.f_lasti // 2]
        if positions[1] == line and positions[2] is not None and positions[3] is not None:
            column, end = (len(text.encode()[:n].decode(errors="replace")) for n in positions[2:])
    return Span(file, line, column, line, end)
