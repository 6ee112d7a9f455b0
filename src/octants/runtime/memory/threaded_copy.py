"""Copies host memory, with several threads if it is large: one does not saturate the bus."""

from __future__ import annotations

import functools
import os
from concurrent.futures import ThreadPoolExecutor, wait
from ctypes import memmove

THREADS = max(1, min(8, (os.cpu_count() or 1) // 2))
LEAST = 1 << 20
"""The bytes that justify another thread."""
_PAGE = 1 << 12


def move(target: int, source: int, nbytes: int) -> None:
    """Copy ``nbytes`` between addresses; source and target do not overlap."""
    parts = min(THREADS, nbytes // LEAST)
    if parts < 2:
        memmove(target, source, nbytes)
        return
    size = -(-nbytes // parts // _PAGE) * _PAGE
    others = [
        _helpers().submit(memmove, target + start, source + start, min(size, nbytes - start))
        for start in range(size, nbytes, size)
    ]
    try:
        memmove(target, source, size)
    finally:
        wait(others)  # after an interrupt, the caller may free the memory


@functools.cache
def _helpers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, THREADS - 1), "octants-copies")
