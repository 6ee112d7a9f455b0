"""Rejects masked arrays of numpy: kernels and arrays would ignore their masks."""

from __future__ import annotations

import sys
from typing import Any

from octants.diagnostics.library_errors import MaskedArrayGiven


def is_masked(value: Any) -> bool:
    """Whether a value is a masked array."""
    return is_masked_type(type(value))


def is_masked_type(kind: type) -> bool:
    """Whether a type is that of masked arrays; does not import `numpy.ma`, as numpy does not."""
    masked = sys.modules.get("numpy.ma")
    return masked is not None and issubclass(kind, masked.MaskedArray)


def refuse_masked(what: str, value: Any) -> None:
    """Raise an error if a value is a masked array."""
    if is_masked(value):
        raise MaskedArrayGiven(what).at()
