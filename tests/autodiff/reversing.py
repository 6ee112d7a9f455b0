"""Reverse kernels for tests, as they are best reversed."""

from __future__ import annotations

from typing import Any

from octants.autodiff.reverse import Reversed, in_best_state, reverse
from octants.ir.core import Module
from octants.target import Capabilities


def differentiate(module: Module, *, split: bool = False, **machine: Any) -> Reversed:
    """The reverse of a kernel in the best state; ``machine`` are fields of `Capabilities`."""
    capabilities = Capabilities(**machine)
    return in_best_state(
        module, lambda before: reverse(module, capabilities, before_launch=before, split=split)
    )
