"""Chunks: consecutive elements of an array that one work item handles in order."""

from __future__ import annotations

from typing import Any

from octants.lang.library_function_marks import library_function
from octants.lang.scalar_functions import max as larger
from octants.lang.scalar_functions import min as smaller

_LEAST = 1024  # elements, so that a chunk is worth a work item
_MOST = 4096  # chunks, since one work item goes over what they have found


@library_function
def size_of(n: Any) -> Any:
    """How many elements a chunk of an array of ``n`` elements has."""
    return larger(_LEAST, n // _MOST + 1)


@library_function
def count_of(n: Any) -> Any:
    """How many chunks an array of ``n`` elements has."""
    return n // size_of(n) + smaller(n % size_of(n), 1)


@library_function
def last_of(chunk: Any, n: Any) -> Any:
    """The position after the last element of a chunk."""
    first = chunk * size_of(n)
    return first + smaller(size_of(n), n - first)
