"""How the passes of one compilation are run, and who looks on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from octants.compile_profile import stage as timed
from octants.deferred import Deferred
from octants.ir.core import Module
from octants.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from octants.ir import verifier
else:
    verifier = Deferred("octants.ir.verifier")

Observer = Callable[[str, Module], None]


@dataclass(frozen=True, slots=True)
class Stage:
    """How the passes of one compilation are run.

    `capacity` is that of records, if it is forced. Loops that surely take no more than `tape_whole`
    bytes of a worker's tape, which up to `tape_sharers` work items share, are never recorded in
    blocks. `nests` says how loops in loops are recorded, as `autodiff.reverse` takes it, and
    `tape_local` how many bytes of a block are local, if any, and `count_lanes` how many tasks of a
    finished module would run in lanes. A `deterministic` kernel updates arrays in an order that is
    always the same. Where it `contracts`, a product and a sum may be rounded as one, and
    what is divided be multiplied by a reciprocal. One that `serialises_blocks` runs work items that
    work together one after the other. `fills` is how many work items a GPU needs to be busy; 0 on
    CPUs, which are so with few. Where it `splits`, lanes of a subgroup may share a work item.
    """

    checks_bounds: bool = False
    contracts: bool = False
    verifies: bool = False
    observe: Observer | None = None
    capacity: int = 0
    tape_whole: int = 0
    tape_sharers: int = 1
    nests: str = "auto"
    tape_local: int = 0
    count_lanes: Callable[[Module], int] | None = None
    deterministic: bool = False
    serialises_blocks: bool = False
    fills: int = 0
    splits: bool = False

    def see(self, name: str, module: Module) -> None:
        """Verify and show a module."""
        if self.verifies:
            with timed("verify", module.name):
                verifier.verify(module)
        if self.observe is not None:
            self.observe(name, module)
