"""Keeps locks usable in a process that was forked while other threads held them.

A child has only the thread that forked, so it would wait for ever for a lock that another thread
held. A lock that is `acquired_before_forks` is acquired by the thread that forks: what it protects
is complete in the child. A lock that is `released_in_children` is new there.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from typing import Any, TypeVar

Lock = TypeVar("Lock", bound=Any)

_MOST_SECONDS = 30.0
"""How long a fork waits at most: a thread that holds a lock may wait for the one that forks."""

_ATTEMPT_SECONDS = 0.05
_acquired: weakref.WeakSet[Any] = weakref.WeakSet()
_released: weakref.WeakSet[Any] = weakref.WeakSet()


class _Fork(threading.local):
    """The locks of a thread that forks."""

    def __init__(self) -> None:
        self.acquired: list[Any] = []
        self.missing: list[Any] = []


_fork = _Fork()


def acquired_before_forks(lock: Lock) -> Lock:
    """Have a reentrant lock acquired before each fork; return it."""
    _acquired.add(lock)
    return lock


def released_in_children(lock: Lock) -> Lock:
    """Have a lock released in each child, unless its own thread holds it; return it."""
    _released.add(lock)
    return lock


def _before() -> None:
    deadline = time.monotonic() + _MOST_SECONDS
    while not _acquire_all() and time.monotonic() < deadline:
        _release_all()  # else two threads might wait for each other


def _acquire_all() -> bool:
    _fork.missing.clear()
    for lock in (*_acquired, *_locks_of_llvmlite()):
        is_ours = lock.acquire(timeout=_ATTEMPT_SECONDS)
        (_fork.acquired if is_ours else _fork.missing).append(lock)
    return not _fork.missing


def _locks_of_llvmlite() -> list[Any]:
    """The lock around LLVM, which other packages may call in their threads."""
    llvmlite: Any = sys.modules.get("llvmlite.binding.ffi")
    lock: Any = getattr(getattr(llvmlite, "lib", None), "_lock", None)
    return [lock._lock] if hasattr(lock, "_lock") else []


def _release_all() -> None:
    while _fork.acquired:
        _fork.acquired.pop().release()


def _in_child() -> None:
    _release_all()
    for lock in (*_fork.missing, *_released):
        _renew(lock)


def _renew(lock: Any) -> None:
    if not (hasattr(lock, "_is_owned") and lock._is_owned()):
        lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before,
        after_in_parent=_release_all,
        after_in_child=_in_child,
    )
