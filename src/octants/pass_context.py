"""The machine and the observer of the passes of one compilation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING

from octants.compile_profile import stage as timed
from octants.deferred_import import Deferred
from octants.ir.core import Module
from octants.lazy_dataclass import dataclass
from octants.target import Capabilities

if TYPE_CHECKING:
    from octants.ir import verifier
else:
    verifier = Deferred("octants.ir.verifier")

Observer = Callable[[str, Module], None]


@dataclass(frozen=True, slots=True)
class Stage:
    """For which machine the passes of one compilation run, and who observes them.

    `observe` sees the module after each pass, and the verifier, if it `verifies`, after each pass
    that has changed the module.
    """

    capabilities: Capabilities = Capabilities()
    verifies: bool = False
    observe: Observer | None = None
    _verified: list[object] = field(default_factory=list, repr=False, compare=False)

    def see(self, name: str, module: Module) -> None:
        """Verify a module, unless it is as it was when it was last verified, and show it."""
        if self.verifies:
            with timed("verify", module.name):
                contents = verifier.contents(module)
                if contents != self._verified:  # most passes change nothing of most modules
                    verifier.verify(module)
                    self._verified[:] = contents
        if self.observe is not None:
            self.observe(name, module)
