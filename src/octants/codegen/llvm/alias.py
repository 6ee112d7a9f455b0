"""Which accesses can never touch the same memory, said to LLVM by scopes.

Two fields of different types lie apart; two of one type may be one field under two names (a
component of a vector field, the gradient of another). Ndarrays come from outside and may overlap
each other and fields, unless the module says that they are apart. Temporaries, return values, and
tapes belong to the launch alone.
"""

from __future__ import annotations

from collections.abc import Callable

from octants.ir.core import Array, Companion, Space

_MAXIMUM = 64  # arrays; the lists grow with the square

Place = tuple[Array, Companion]


class Scopes:
    """Gives each place, and the tape, the metadata that its loads and stores carry."""

    def __init__(
        self, metadata: Callable[[str], str], arrays: list[Array], apart: bool = False
    ) -> None:
        self._metadata = metadata
        self._apart = apart
        self._places: list[Place] = [
            (array, companion) for array in arrays for companion in array.layouts
        ]
        self._suffixes: dict[Place | None, str] = {}
        self._scopes: dict[Place | None, str] = {}

    def suffix(self, place: Place | None) -> str:
        """What stands behind an access to a place; None means the tape."""
        if len(self._places) > _MAXIMUM:
            return ""
        if not self._scopes:
            self._make_scopes()
        if place not in self._suffixes:
            self._suffixes[place] = self._make_suffix(place)
        return self._suffixes[place]

    def _make_scopes(self) -> None:
        domain = self._metadata("distinct !{{}}")
        for place in (None, *self._places):
            self._scopes[place] = self._metadata(f"distinct !{{{{}}, {domain}}}")

    def _make_suffix(self, place: Place | None) -> str:
        others = [other for other in self._scopes if other is not place]
        apart = [other for other in others if are_apart(place, other, self._apart)]
        scope = self._metadata(f"!{{{self._scopes[place]}}}")
        if not apart:
            return f", !alias.scope {scope}"
        listed = self._metadata("!{" + ", ".join(self._scopes[other] for other in apart) + "}")
        return f", !alias.scope {scope}, !noalias {listed}"


def are_apart(first: Place | None, second: Place | None, apart: bool = False) -> bool:
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
