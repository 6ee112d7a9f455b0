"""Modules that are imported when something of them is first used.

There are two ways to put off an import, and no others. A module that needs another one names it as
`Deferred`; a module that offers what is in another one has the ``__getattr__`` that `names_of`
makes.

A program whose kernels are all in the cache needs no compiler, and importing one takes longer than
such a program may take to start. Who needs it at times only names it like this::

    if TYPE_CHECKING:
        from octants import pipeline
    else:
        pipeline = Deferred("octants.pipeline")

and writes ``pipeline.lower(...)``.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from types import ModuleType
from typing import Any

from octants.locks_at_fork import acquired_before_forks

_importing = acquired_before_forks(threading.RLock())
"""Held while a module is imported: in the child of a fork in between, no import of it would end."""


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
        module = _import(self._module_name)
        if not getattr(module.__spec__, "_initializing", False):  # else its import may still fail
            object.__setattr__(self, "_module", module)
        return module

    def __repr__(self) -> str:
        return f"<deferred module {self._module_name}>"


def _import(name: str) -> Any:
    with _importing:
        return importlib.import_module(name)


_absent_names = Deferred("octants.diagnostics.absent_names")


def names_of(
    module: str,
    *,
    submodules: Collection[str] = (),
    sources: Mapping[str, str] | None = None,
) -> Callable[[str], Any]:
    """Make the ``__getattr__`` of a module, which imports what the module offers when it is used.

    Its ``__dir__``, set here, lists all of that, but of modules only `submodules`. Names that the
    module does not have are errors that say what to use instead, if the peers have them, or suggest
    a similar name.

    Args:
        module: The name of the module.
        submodules: The modules of the package that are offered.
        sources: For other names, the module of ``octants`` that each is found in.
    """
    source_of, offered = sources or {}, vars(sys.modules[module])

    def find(name: str) -> Any:
        if name in submodules or f"{module}.{name}" in _absent_names.PLACES:
            return _import(f"{module}.{name}")
        if name not in source_of:
            raise _absent_names.attribute_error(module, name, names)
        found = getattr(_import(f"octants.{source_of[name]}"), name)
        offered[name] = found
        return found

    def names() -> list[str]:
        own = (name for name, value in offered.items() if not isinstance(value, ModuleType))
        return sorted({*own, *source_of, *submodules})

    offered["__dir__"] = names
    return find
