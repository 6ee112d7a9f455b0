"""Whether a reverse run reads what the launch read; see `autodiff.read_fingerprint`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from octants.deferred_import import Deferred
from octants.ir.core import Companion, Operation
from octants.launch.persistent_storage import Outside, OutsideLayout
from octants.launch.program import Program
from octants.launch.specialisation import Specialisation
from octants.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from octants.autodiff import read_fingerprint
else:
    read_fingerprint = Deferred("octants.autodiff.read_fingerprint")

PRIMAL = Companion.PRIMAL


@dataclass(frozen=True)
class Witness:
    """A kernel that sums up what it reads, as a launch and without effects.

    `names` are those of the arrays, in the order of the sums.
    """

    launch: Program
    look: Program
    layout: OutsideLayout
    names: tuple[str, ...]

    def run(
        self, program: Program, seed: int, number: int, arguments: Sequence[Any]
    ) -> tuple[tuple[Any, ...], list[int]]:
        """The flat results of a run, and what it has summed up for each array."""
        outside = Outside(self.layout)
        results = program.launch(seed, number, outside.address, *arguments)
        return results, [int(outside.numbers(position)[0]) for position, _ in self.layout.offsets]


def make_witness(specialisation: Specialisation, reads: Sequence[Operation]) -> Witness | None:
    """The witness of some loads of a kernel; None if there are none."""
    module = specialisation.module
    launched, sums = read_fingerprint.witness(module, reads, effects=True)
    if not sums:
        return None
    looking, others = read_fingerprint.witness(module, reads, effects=False)
    layout = OutsideLayout(launched.arrays)
    for array in sums.values():
        layout.put(launched.arrays.index(array), PRIMAL)
    returned = specialisation.returned
    return Witness(
        Program(specialisation, launched, returned, layout.places(launched)),
        Program(specialisation, looking, (), layout.places(looking)),
        layout,
        tuple(array.name for array in others),
    )
