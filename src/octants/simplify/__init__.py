"""Makes a module smaller without changing what it does; passes and autodiff both use it."""

from __future__ import annotations

from octants.ir.core import Module
from octants.simplify import constant_folding_and_cse, dead_code

__all__ = ["simplify"]


def simplify(module: Module) -> None:
    """Fold, share, forward and prune, in place."""
    constant_folding_and_cse.fold(module)
    dead_code.prune(module)
