"""Runs programs that say ``import quadrants`` on Octants, without a change of their files.

    import octants.compat
    octants.compat.install()
    import genesis

or, from a shell, ``python -m octants.compat program.py``. From then on an import of ``quadrants``
or one of its modules gives `octants.compat.quadrants`: the public names of Octants, and those
private names of Quadrants that Genesis uses. It has to happen before anything imports Quadrants
itself; a program cannot have both.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from octants.diagnostics.launch_errors import QuadrantsIsImported

__all__ = ["install", "is_installed"]

_NAME = "quadrants"


class QuadrantsFinder(MetaPathFinder, Loader):
    """Answers imports of ``quadrants`` and its modules by modules of Octants."""

    def __init__(self) -> None:
        self._own_specs: dict[str, ModuleSpec | None] = {}

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """The spec of a module whose name begins with ``quadrants``; None for others."""
        if fullname.partition(".")[0] != _NAME or _find(fullname) is None:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module of Octants itself, so that nothing of it exists twice."""
        name = _find(spec.name)
        assert name is not None
        module = importlib.import_module(name)
        self._own_specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give a module that was executed long ago its own spec back."""
        spec = module.__spec__
        if spec is not None and spec.name in self._own_specs:
            module.__spec__ = self._own_specs.pop(spec.name)


def _find(name: str) -> str | None:
    """The name of the module of Octants that answers a name of Quadrants; None if none does."""
    below = name.partition(".")[2]
    for ours in (f"octants.compat.{name}", f"octants.{below}"):
        try:
            if importlib.util.find_spec(ours) is not None:
                return ours
        except ModuleNotFoundError:  # what should hold it is no package
            pass
    return None


def install() -> None:
    """Let ``import quadrants`` give Octants from now on; nothing if it does already.

    Raises:
        OctantsRuntimeError: Quadrants itself has been imported.
    """
    if is_installed():
        return
    if _NAME in sys.modules:
        raise QuadrantsIsImported(_origin(sys.modules[_NAME])).at()
    sys.meta_path.insert(0, QuadrantsFinder())


def is_installed() -> bool:
    """Whether `install` was called."""
    return any(isinstance(finder, QuadrantsFinder) for finder in sys.meta_path)


def _origin(module: ModuleType) -> str:
    return getattr(module, "__file__", None) or "a module without a file"
