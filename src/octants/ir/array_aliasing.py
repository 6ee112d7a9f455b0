"""Which arrays of a kernel may be the same memory under two names."""

from __future__ import annotations

from octants.ir.core import Array, Space

_SHARED = (Space.FIELD, Space.NDARRAY)


def may_overlap(first: Array, second: Array) -> bool:
    """Whether an access to one array may touch an element of the other.

    Array arguments may be given the same memory, or that of a field, also as views of different
    types. Two fields never overlap.
    """
    if first is second:
        return True
    spaces = (first.space, second.space)
    return all(space in _SHARED for space in spaces) and Space.NDARRAY in spaces
