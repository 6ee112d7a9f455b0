"""Decides which array references can never alias.

Two fields of different types do not alias; two of one type may be one field under two names (a
component of a vector field, the gradient of another). Ndarrays are caller-owned and may overlap
each other and fields, unless the launch is known to be free of aliases. Temporaries, return values,
and tapes belong to the launch alone.
"""

from __future__ import annotations

from octants.ir.core import ArrayRef, Space


def never_alias(first: ArrayRef | None, second: ArrayRef | None, noalias: bool = False) -> bool:
    """Whether two array references never overlap.

    Args:
        first: an array and a companion, or None for the tape.
        second: likewise.
        noalias: no two arrays of the module share memory.
    """
    if first is None or second is None or noalias:
        return first != second
    if first[0] is second[0]:
        return first[1] is not second[1]
    spaces = {first[0].space, second[0].space}
    if not spaces <= {Space.FIELD, Space.NDARRAY}:
        return True
    return spaces == {Space.FIELD} and first[0].dtype is not second[0].dtype
