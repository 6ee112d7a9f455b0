"""Identifies the Octants that runs: its version, and the state of its files during development."""

from __future__ import annotations

import functools
import math
import os
import time
from collections.abc import Iterator

from octants.hashing import blake2b
from octants.version import __version__

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_IMPORTED = time.time()


def version() -> str:
    """The version, and a hash of names, sizes and times of the files when it was first asked."""
    return f"{__version__}+{_first()}"


def is_current() -> bool:
    """Whether the files are what was imported, as far as times tell."""
    first = _first()
    newest, state = _state()
    return newest < _IMPORTED and state == first


@functools.cache
def _first() -> str:
    return _state()[1]


def _state() -> tuple[float, str]:
    """The time of the last change to a file, and a hash of the state of all files."""
    try:
        found = sorted(_files(_ROOT))
    except OSError:  # in an archive, say: changes go unnoticed, so nothing is cached
        return math.inf, ""
    newest = max((time for _, _, time in found), default=0) / 1e9
    return newest, blake2b(repr(found).encode(), digest_size=6).hexdigest()


def _files(folder: str) -> Iterator[tuple[str, int, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "__pycache__":
                    yield from _files(entry.path)
            elif entry.name.endswith((".py", ".so", ".pyd")):
                status = entry.stat()
                yield entry.path, status.st_size, status.st_mtime_ns
