"""Which places can never be one.

Two fields of different types lie apart; two of one type may be one field under two names (a
component of a vector field, the gradient of another). Ndarrays come from outside and may overlap
each other and fields, unless the module says that they are apart. Temporaries, return values, and
tapes belong to the launch alone.
"""

from __future__ import annotations

from octants.ir.core import ArrayRef, Space


def are_apart(first: ArrayRef | None, second: ArrayRef | None, apart: bool = False) -> bool:
    """Whether two places never overlap; a place is an array's companion, or None for the tape.

    ``apart`` says that of a module no two arrays share memory.
    """
    if first is None or second is None or apart:
        return first != second
    if first[0] is second[0]:
        return first[1] is not second[1]
    spaces = {first[0].space, second[0].space}
    if not spaces <= {Space.FIELD, Space.NDARRAY}:
        return True
    return spaces == {Space.FIELD} and first[0].dtype is not second[0].dtype
