"""The pipelines that a driver makes of an artifact, with its compiled code kept in the cache.

A file of the cache holds what a driver has compiled, under a name made of the code and the driver.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from octants.artifact import Artifact
from octants.cache import configured_store
from octants.hashing import blake2b


class CachedPipelines(ABC):
    """The pipelines of an artifact, by the names of its entry points.

    The code of a kernel that does nothing is empty, and has none.
    """

    def __init__(self, context: Any, artifact: Artifact) -> None:
        context.check()
        self._context, self._artifact = context, artifact
        self.pipelines: dict[str, Any] = {}

    # -- what a driver adds ---------------------------------------------------------------------

    @abstractmethod
    def _identity(self) -> str:
        """The device and the driver, as far as compiled code depends on them."""

    @abstractmethod
    def _make(self, module: int, known: bytes) -> bytes:
        """Create all pipelines with what an earlier process has compiled; return what to keep."""

    @abstractmethod
    def _restore(self, module: int, known: bytes) -> bool:
        """Create all pipelines with what is known; false if the driver rejects that."""

    # -- what is the same for all ---------------------------------------------------------------

    def _load(self, module: int) -> None:
        """Create the pipelines; what the driver rejects is replaced in the cache."""
        key = f"{blake2b(self._artifact.code, digest_size=20).hexdigest()} {self._identity()}"
        configured_store.cached_bytes(
            "pipelines",
            key,
            lambda: self._make(module, b""),
            lambda known: self._restore(module, known),
        )
