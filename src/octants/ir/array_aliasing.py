"""Which array references of a kernel may be the same memory.

No two fields share memory; the gradient of a field is a companion of it, never another array. An
ndarray, whether it is an argument or captured by name, may be the memory of another ndarray or of a
field, also as a view of another type. All other arrays, and the tape, belong to the launch alone.
"""

from __future__ import annotations

from octants.ir.core import Array, ArrayRef, Space

_CALLER_OWNED = (Space.FIELD, Space.NDARRAY)


def may_overlap(first: Array, second: Array) -> bool:
    """Whether an access to one array may touch an element of the other."""
    if first is second:
        return True
    if first.space not in _CALLER_OWNED or second.space not in _CALLER_OWNED:
        return False
    return is_ndarray(first) or is_ndarray(second)


def may_alias(first: ArrayRef | None, second: ArrayRef | None, noalias: bool = False) -> bool:
    """Whether an access by one array reference may touch what the other refers to.

    Args:
        first: an array and a companion, or None for the tape.
        second: likewise.
        noalias: no two arrays of the module, nor their companions, share memory.
    """
    if first is None or second is None or noalias:
        return first == second
    if first[0] is second[0]:
        return first[1] is second[1]
    return may_overlap(first[0], second[0])


def is_ndarray(array: Array) -> bool:
    """Whether an array is an ndarray: an argument, or captured by name."""
    return array.space is Space.NDARRAY or array.captured
