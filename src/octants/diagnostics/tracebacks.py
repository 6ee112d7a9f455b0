"""Tracebacks of user errors without the frames of this package.

The message says which line of the user's is wrong; sixty calls of the compiler below it push it off
the screen. What users call - kernels, gradients, tapes, `init` - takes them away. The option
``print_full_traceback`` keeps them, and errors that are bugs of the compiler always do.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

from octants.diagnostics.exceptions import OctantsError
from octants.diagnostics.user_frames import is_internal

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Shown:
    """Whether internal frames are kept; `init` sets it from the option ``print_full_traceback``."""

    internal = False


def of_users(error: OctantsError) -> TracebackType | None:
    """The traceback of an error without internal frames; its causes lose theirs, too."""
    if Shown.internal:
        return error.__traceback__
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        if isinstance(each, OctantsError):
            each.__traceback__ = _without_internal(each.__traceback__)
        each = each.__cause__ or each.__context__
    return error.__traceback__


def _without_internal(traceback: TracebackType | None) -> TracebackType | None:
    entries = []
    while traceback is not None:
        if not is_internal(traceback.tb_frame.f_code):
            entries.append(traceback)
        traceback = traceback.tb_next
    result: TracebackType | None = None
    for entry in reversed(entries):
        result = TracebackType(result, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return result


def shortens_tracebacks(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make the user errors that leave a function end at the user's call of it."""

    @functools.wraps(function)
    def call(*arguments: _P.args, **named: _P.kwargs) -> _R:
        try:
            return function(*arguments, **named)
        except OctantsError as error:
            caught = error
        # Not within `except`: Python 3.10 would free the frames that are left out while an error
        # is set, which the destructor of a DLPack capsule among their variables cannot bear.
        __tracebackhide__ = True  # pytest passes over this frame
        try:
            raise caught.with_traceback(of_users(caught))
        finally:
            del caught

    return call
