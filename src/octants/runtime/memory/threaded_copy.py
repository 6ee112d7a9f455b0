"""Copies within the host's memory, large ones by several threads: one alone does not fill a bus."""

from __future__ import annotations

import functools
import os
from concurrent.futures import ThreadPoolExecutor, wait
from ctypes import memmove

THREADS = max(1, min(8, (os.cpu_count() or 1) // 2))
LEAST = 1 << 20
"""Bytes that are worth another thread."""
_PAGE = 1 << 12


def move(target: int, source: int, nbytes: int) -> None:
    """Copy bytes from an address to another; they do not overlap."""
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
        wait(others)  # who is interrupted may give the memory back


@functools.cache
def _helpers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, THREADS - 1), "octants-copies")
