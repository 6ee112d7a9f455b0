"""The letters that name components of vectors: ``v.x``, ``v.zyx``, ``v.rgb``, ``v.st``."""

from __future__ import annotations

import functools

ALPHABETS = ("xyzw", "rgba", "stpq")


@functools.cache
def positions(name: str) -> tuple[int, ...] | None:
    """The components that up to four letters of one alphabet name, or None.

    >>> positions("zx")
    (2, 0)
    """
    if not 1 <= len(name) <= 4:
        return None
    for letters in ALPHABETS:
        if all(letter in letters for letter in name):
            return tuple(letters.index(letter) for letter in name)
    return None
