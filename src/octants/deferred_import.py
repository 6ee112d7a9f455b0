"""Modules that are imported when something of them is first used.

A program whose kernels are all in the cache needs no compiler, and importing one takes longer than
such a program may take to start. Who needs it at times only names it like this::

    if TYPE_CHECKING:
        from octants import pipeline
    else:
        pipeline = Deferred("octants.pipeline")

and writes ``pipeline.lower(...)``. This is the only way in which an import is put off.
"""

from __future__ import annotations

import importlib
from typing import Any


class Deferred:
    """Stands for the module of a name; its attributes are those of the module."""

    __slots__ = ("_module", "_module_name")

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_module_name", name)
        object.__setattr__(self, "_module", None)

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._module or self._load(), attribute)

    def __setattr__(self, attribute: str, value: Any) -> None:
        setattr(self._module or self._load(), attribute, value)

    def _load(self) -> Any:
        object.__setattr__(self, "_module", importlib.import_module(self._module_name))
        return self._module

    def __repr__(self) -> str:
        return f"<deferred module {self._module_name}>"
