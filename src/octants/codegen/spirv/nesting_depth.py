"""Track how deep branches and loops are nested, where a driver limits it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from octants.codegen.structured.features import Features
from octants.diagnostics.vulkan_errors import TooDeepForDriver

MOST = 72
"""Mesa's driver for the CPU supports 80 nested conditions, and ignores deeper ones (22.3)."""


class Nesting:
    """The current nesting depth; `deepest` is the largest of the function so far.

    It is that of the code which the driver compiles, which has no returns: what follows a branch
    or a loop that may return is one branch deeper.
    """

    def __init__(self, features: Features) -> None:
        self._features = features
        self._most = MOST if features.has("cuts") else None
        self._depth = 0
        self._returns = 0
        self.deepest = 0

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """The context of the body of a branch or a loop."""
        self.see(1)
        self._depth += 1
        before = self._returns
        yield
        self._returns = before + (self._returns > before)
        self._depth -= 1

    def leave(self) -> None:
        """Record a return: the driver makes a branch of the code behind it."""
        self._returns += 1

    def see(self, further: int) -> None:
        """Record code ``further`` levels deeper, such as a function, which drivers inline."""
        self.deepest = max(self.deepest, self._depth + self._returns + further)
        if self._most is not None and self.deepest > self._most:
            features = self._features
            refusal = TooDeepForDriver(features.kernel, self._most, features.device)
            raise refusal.at(features.location)
