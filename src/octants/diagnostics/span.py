"""The position of a piece of the user's source."""

from __future__ import annotations

from octants.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A range of source text; lines count from 1, columns from 0, the end is exclusive."""

    file: str
    line: int
    column: int = 0
    end_line: int = 0
    end_column: int = 0
    function: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class InlinedCall:
    """A call that the body of a function replaces, which stands in lines `first` to `last`."""

    function: str
    file: str
    first: int
    last: int
    call: Span
