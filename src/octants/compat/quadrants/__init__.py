"""The module that ``import quadrants`` gives after `octants.compat.install`.

It has the public names of Octants, and the private ones of Quadrants that Genesis 1.4 uses; each
says which line of Genesis needs it.
"""

from __future__ import annotations

from typing import Any

import octants
from octants import *  # noqa: F403
from octants.compat.quadrants import _logging as _logging
from octants.compat.quadrants import lang as lang
from octants.compat.quadrants.lang import impl

__version__ = (1, 3, 3)
"""The version of Quadrants whose names these are."""


def init(  # type: ignore[no-redef]
    *args: Any, **options: Any
) -> None:
    """Start, or start again: see `octants.init`.

    Unless ``on_overwrite`` is given it is ``"trust"``, which is what Quadrants does: the bare
    gradients of ``genesis/engine/solvers/rigid/abd/diff.py`` and others do not check what was
    overwritten.
    """
    impl.get_runtime().clear()
    octants.init(*args, **{"on_overwrite": "trust", **options})


def reset() -> None:  # type: ignore[no-redef]
    """End all arrays: see `octants.reset`."""
    impl.get_runtime().clear()
    octants.reset()


def __getattr__(name: str) -> Any:
    return getattr(octants, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(octants)})
