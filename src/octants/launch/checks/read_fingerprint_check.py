"""Checks that a reverse run reads what the launch read, by `autodiff.variants.read_fingerprint`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from octants.deferred_import import Deferred
from octants.ir.core import Companion, Operation
from octants.launch.bound_code import BoundKernelCode
from octants.launch.persistent_storage import PersistentLayout, PersistentStorage
from octants.launch.specialisation import Specialisation
from octants.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from octants.autodiff.variants import read_fingerprint
else:
    read_fingerprint = Deferred("octants.autodiff.variants.read_fingerprint")

PRIMAL = Companion.PRIMAL


@dataclass(frozen=True)
class ReadFingerprint:
    """A kernel with a fingerprint of its reads, as a launch and without effects.

    `names` are those of the arrays, in the order of the fingerprints.
    """

    launch: BoundKernelCode
    check: BoundKernelCode
    layout: PersistentLayout
    names: tuple[str, ...]

    def run(
        self, program: BoundKernelCode, seed: int, number: int, arguments: Sequence[Any]
    ) -> tuple[tuple[Any, ...], list[int]]:
        """Run code; return its flat results, and a fingerprint for each array."""
        persistent = PersistentStorage(self.layout, program.device)
        results = program.launch(seed, number, persistent.address, *arguments)
        return results, [
            int(persistent.numbers(position)[0]) for position, _ in self.layout.offsets
        ]


def make_fingerprint(
    specialisation: Specialisation, reads: Sequence[Operation]
) -> ReadFingerprint | None:
    """The fingerprint of some loads of a kernel; None if there are none."""
    module = specialisation.module
    launched, sums = read_fingerprint.add_fingerprint(module, reads, effects=True)
    if not sums:
        return None
    checking, others = read_fingerprint.add_fingerprint(module, reads, effects=False)
    layout = PersistentLayout(launched.arrays)
    for array in sums.values():
        layout.put(launched.arrays.index(array), PRIMAL)
    returned = specialisation.returned
    return ReadFingerprint(
        BoundKernelCode(specialisation, launched, returned, layout.array_offsets(launched)),
        BoundKernelCode(specialisation, checking, (), layout.array_offsets(checking)),
        layout,
        tuple(array.name for array in others),
    )
