"""Turns fills with elements into fills with words, which the driver has functions for."""

from __future__ import annotations

import functools

FILLS = {1: "cuMemsetD8Async", 2: "cuMemsetD16Async", 4: "cuMemsetD32Async"}
"""The driver's fill functions, by the size of a word in bytes."""
_FEW = 2  # so many different words are set one by one

Words = tuple[int, tuple[int, ...], int]


@functools.lru_cache(maxsize=256)
def words_of(element: bytes, count: int) -> Words | None:
    """Split a fill with ``count`` elements into fills with words.

    Returns:
        The bytes of a word, the words in order, and how often each one is repeated; None if the
            driver cannot fill with such elements.
    """
    if len(element) in FILLS:
        return len(element), (int.from_bytes(element, "little"),), count
    if len(element) % 4:
        return None
    words = [int.from_bytes(element[k : k + 4], "little") for k in range(0, len(element), 4)]
    if len(set(words)) == 1:
        return 4, (words[0],), count * len(words)
    return (4, tuple(words * count), 1) if count * len(words) <= _FEW else None
