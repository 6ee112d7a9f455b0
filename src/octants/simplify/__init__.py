"""Makes a module smaller without changing what it does; passes and autodiff both use it."""

from __future__ import annotations

from octants.ir.core import Module
from octants.simplify import dead_code, fold

__all__ = ["simplify"]


def simplify(module: Module) -> None:
    """Fold, share, forward and prune, in place."""
    fold.fold(module)
    dead_code.prune(module)
