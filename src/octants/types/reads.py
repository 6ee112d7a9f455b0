"""What a kernel read of Python's values while it was built: what it is specialised for."""

from __future__ import annotations

from typing import Any

from octants.lazy_dataclass import dataclass

ABSENT: Any = type("Absent", (), {"__repr__": lambda _: "<absent>"})()
"""What was read where there is nothing of that name."""


@dataclass(frozen=True, slots=True)
class Read:
    """A Python value that a kernel is specialised for, or `ABSENT`.

    `owner` is the function for a "global" or "closure", the object for an "attribute". A "field" is
    one that the kernel uses, wherever it was found.
    """

    kind: str
    owner: Any
    name: str
    value: Any
