"""The machine and the observer of the passes of one compilation."""

from __future__ import annotations

from collections.abc import Callable
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

    The verifier, if it `verifies`, and `observe` see the module after each pass.
    """

    capabilities: Capabilities = Capabilities()
    verifies: bool = False
    observe: Observer | None = None

    def see(self, name: str, module: Module) -> None:
        """Verify and show a module."""
        if self.verifies:
            with timed("verify", module.name):
                verifier.verify(module)
        if self.observe is not None:
            self.observe(name, module)
