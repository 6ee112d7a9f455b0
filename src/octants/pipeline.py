"""The ordered list of passes, with the reason of each place.

A kernel comes from the frontend as one body and leaves as tasks, which code generation and autodiff
read. `Stage.observe` sees the module after each pass; in debug mode and in tests each pass is
followed by the verifier.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from octants.autodiff.forward import forward
from octants.autodiff.reverse import Reversed, reverse
from octants.ir.core import Module
from octants.ir.verifier import verify
from octants.passes.check_bounds import check_bounds
from octants.passes.outline_tasks import outline_tasks
from octants.simplify import simplify

Observer = Callable[[str, Module], None]


@dataclass(frozen=True, slots=True)
class Pass:
    """A step from body to tasks; `reason` says why it stands where it does."""

    name: str
    run: Callable[[Module], None]
    reason: str
    debug_only: bool = False


PASSES = (
    Pass(
        "check_bounds",
        check_bounds,
        "before anything moves, so that each access is still at its place in the user's code",
        debug_only=True,
    ),
    Pass(
        "outline_tasks",
        outline_tasks,
        "before simplifying, which works within tasks: what crosses them is in memory by then",
    ),
    Pass("simplify", simplify, "last: autodiff and code generation cost what is left"),
)


@dataclass(frozen=True, slots=True)
class Stage:
    """How the passes of one compilation are run."""

    checks_bounds: bool = False
    verifies: bool = False
    observe: Observer | None = None

    def see(self, name: str, module: Module) -> None:
        """Verify and show a module."""
        if self.verifies:
            verify(module)
        if self.observe is not None:
            self.observe(name, module)


def lower(module: Module, stage: Stage) -> None:
    """From the body that the frontend built to simplified tasks, in place."""
    stage.see("frontend", module)
    for step in PASSES:
        if stage.checks_bounds or not step.debug_only:
            step.run(module)
            stage.see(step.name, module)


def differentiate_reverse(module: Module, stage: Stage, *, saved: bool, part: bool) -> Reversed:
    """The reverse of a lowered module, simplified."""
    result = reverse(module, saved=saved, part=part)
    stage.see("reverse", result.module)
    return result


def differentiate_forward(module: Module, stage: Stage) -> Module:
    """A lowered module with its tangents, simplified."""
    result = forward(module)
    stage.see("forward", result)
    return result
