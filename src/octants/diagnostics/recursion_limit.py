"""Raises the recursion limit for the compiler, which descends into nested code and calls."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from octants.diagnostics.errors import TooDeep
from octants.locks_at_fork import released_in_children

LIMIT = 20_000
"""Python's recursion limit meanwhile: `frontend.calls.functions.DEEPEST` inlined calls need it."""

_lock = released_in_children(threading.Lock())
_in_progress = 0
_limit_before = 0


@contextmanager
def deep_recursion(kernel: str) -> Iterator[None]:
    """Let Python recurse deeply while a kernel is compiled, in any thread.

    What nests too deeply even so is the user's error.
    """
    _begin()
    try:
        yield
    except RecursionError:
        raise TooDeep(kernel).at() from None
    finally:
        _end()


def _begin() -> None:
    global _in_progress, _limit_before
    with _lock:
        if not _in_progress:
            _limit_before = sys.getrecursionlimit()
            sys.setrecursionlimit(max(LIMIT, _limit_before))
        _in_progress += 1


def _end() -> None:
    global _in_progress
    with _lock:
        _in_progress -= 1
        if not _in_progress:
            sys.setrecursionlimit(_limit_before)
