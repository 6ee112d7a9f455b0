"""Write alias scopes: metadata of accesses that never touch the same memory.

`ir.array_aliasing` proves it.
"""

from __future__ import annotations

from collections.abc import Callable

from octants.ir.array_aliasing import may_alias, sections
from octants.ir.core import ArrayRef, Module

_MAXIMUM = 64  # arrays; the lists grow with the square


class AliasScopes:
    """The alias metadata for loads and stores of each array, and of the record buffer."""

    def __init__(self, metadata: Callable[[str], str], module: Module) -> None:
        self._metadata = metadata
        self._noalias = module.noalias
        self._refs = [
            ArrayRef(array, companion)
            for array in (*module.arrays, *sections(module))
            for companion in array.layouts
        ]
        self._suffixes: dict[ArrayRef | None, str] = {}
        self._scopes: dict[ArrayRef | None, str] = {}

    def suffix(self, ref: ArrayRef | None) -> str:
        """Return the metadata of an access to an array, or to the record buffer if it is None."""
        if len(self._refs) > _MAXIMUM:
            return ""
        if not self._scopes:
            self._make_scopes()
        if ref not in self._suffixes:
            self._suffixes[ref] = self._make_suffix(ref)
        return self._suffixes[ref]

    def _make_scopes(self) -> None:
        domain = self._metadata("distinct !{{}}")
        for ref in (None, *self._refs):
            self._scopes[ref] = self._metadata(f"distinct !{{{{}}, {domain}}}")

    def _make_suffix(self, ref: ArrayRef | None) -> str:
        others = [other for other in self._scopes if other is not ref]
        disjoint = [other for other in others if not may_alias(ref, other, self._noalias)]
        scope = self._metadata(f"!{{{self._scopes[ref]}}}")
        if not disjoint:
            return f", !alias.scope {scope}"
        listed = self._metadata("!{" + ", ".join(self._scopes[other] for other in disjoint) + "}")
        return f", !alias.scope {scope}, !noalias {listed}"
