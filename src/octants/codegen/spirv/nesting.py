"""How deep branches and loops stand in each other, where a driver has room for so many only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from octants.codegen.spirv.features import Features
from octants.diagnostics.vulkan_errors import TooDeepForDriver

MOST = 72
"""Mesa's driver for the CPU has room for 80 conditions, and ignores those further in (22.3)."""


class Nesting:
    """The depth of the place that is written; `deepest` is the largest of the function so far."""

    def __init__(self, features: Features) -> None:
        self._features = features
        self._most = MOST if features.has("cuts") else None
        self._depth = 0
        self.deepest = 0

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Where the body of a branch or a loop is written."""
        self.see(1)
        self._depth += 1
        yield
        self._depth -= 1

    def see(self, further: int) -> None:
        """There is something so much further in; functions are put where they are called."""
        self.deepest = max(self.deepest, self._depth + further)
        if self._most is not None and self.deepest > self._most:
            features = self._features
            refusal = TooDeepForDriver(features.kernel, self._most, features.device)
            raise refusal.at(features.location)
