"""Optional dependencies: imported when needed, and a clear word when one is missing."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from octants.deferred_import import Deferred
from octants.diagnostics.exceptions import OctantsError

if TYPE_CHECKING:
    import importlib.util as finder
else:
    finder = Deferred("importlib.util")


class OctantsMissingDependency(OctantsError, ImportError):
    """An optional dependency is not installed; the message names the extra that brings it."""


def find_optional(module: str) -> Any:
    """The module; None if it is not installed."""
    return None if finder.find_spec(module) is None else importlib.import_module(module)


def import_optional(module: str, extra: str) -> Any:
    """The module, which the extra ``octants[extra]`` installs.

    Raises `OctantsMissingDependency` if the package is not installed.
    """
    package = module.partition(".")[0]
    if finder.find_spec(package) is None:
        raise OctantsMissingDependency(
            f"{package} is not installed; it comes with the extra '{extra}': "
            f"pip install 'octants[{extra}]'"
        )
    return importlib.import_module(module)
