"""The Python values that a kernel read while it was built: it is specialised for them."""

from __future__ import annotations

from typing import Any

from octants.lazy_dataclass import dataclass
from octants.types.scalars import DType

ABSENT: Any = type("Absent", (), {"__repr__": lambda _: "<absent>"})()
"""The result of a read where there is nothing of that name."""


@dataclass(frozen=True, slots=True)
class Read:
    """A Python value that a kernel is specialised for, or `ABSENT`.

    `owner` is the function for a "global" or "closure", the object for an "attribute". A "field" is
    one that the kernel uses, wherever it was found. Of a number that `varies` only the type counts:
    each launch reads it again.
    """

    kind: str
    owner: Any
    name: str
    value: Any
    varies: bool = False


ReadKey = tuple[str, int, str]


def key_of(read: Read) -> ReadKey:
    """The name and the owner of what was read, whatever its value."""
    return read.kind, id(read.owner), read.name


@dataclass(frozen=True, slots=True)
class HiddenArgument:
    """An argument that a launch evaluates: a number that `varies`, or what Python makes of some.

    `expression` is over ``r0``, ``r1``, ..., the numbers that vary, in the order in which they were
    read. `condition`, over ``{0}``, says whether the kernel can be launched with such a number.
    """

    name: str
    expression: str
    condition: str
    dtype: DType
