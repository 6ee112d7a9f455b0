"""Launches that a tape records at once: nothing that is needed so far is overwritten by them.

Most launches of most programs are of this kind: one step, on fields and ndarrays of ours, each
given once, of which nothing is saved before it runs. What such a launch needs is told to the ledger
only if something is about to overwrite it (`OverwriteLedger.settle`), which mostly never happens.
All else takes the long way of `ad.tape`, as does the first launch of each specialisation, which
finds out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from octants.ad.gradient_ends import GradientFlow
from octants.ad.overwrite_ledger import MemoryPartition
from octants.analysis.index_ranges import Accessed, rows_of
from octants.launch.alias_free import Identities, identities_of, positions_of
from octants.launch.gradient import ReverseStep, TapePlan
from octants.launch.persistent_storage import PersistentLayout
from octants.launch.specialisation import Specialisation
from octants.lazy_dataclass import dataclass
from octants.runtime.arguments.parameters import StructAnnotation
from octants.types.signature import ScalarType

_MOST_KEYS = 4096


@dataclass(frozen=True, slots=True)
class Touched:
    """The arrays of a launch, by their keys: all, what it writes, and what its reverse needs."""

    every: frozenset[int]
    written: MemoryPartition
    needed: MemoryPartition


class FastPath:
    """How launches of a specialisation are recorded in this way."""

    __slots__ = (
        "_identities",
        "_known",
        "_positions",
        "_stepped",
        "freezes",
        "may_race",
        "persistent",
        "step",
    )

    def __init__(
        self, specialisation: Specialisation, identities: Identities, plan: TapePlan
    ) -> None:
        (self.step,) = plan.steps
        self.persistent: PersistentLayout | None = plan.persistent if plan.persistent.size else None
        self.may_race = True
        self.freezes = any(
            isinstance(annotation, StructAnnotation)
            or (isinstance(annotation, ScalarType) and annotation.element_shape)
            for annotation in specialisation.signature.annotations
        )
        self._identities = identities
        self._positions = positions_of(specialisation)
        # A kernel that steps through the rows of an array writes none that it needs later. Which
        # ones, these arguments tell.
        self._stepped = self.step.regions.named
        self._known: dict[tuple[int, ...], Touched] = {}

    def touched(self, arguments: tuple[Any, ...]) -> Touched | None:
        """The arrays of a launch; None if it must take the long way."""
        identities = self._identities(*arguments)
        if identities is None:
            return None
        key = identities
        for position in self._stepped:
            number = arguments[position]
            if type(number) is not int:  # an array, whose shape is asked
                return self._find(identities, self.step.accessed(arguments))
            key = (*key, number)
        return self._known.get(key) or self._learn(key, identities, arguments)

    def _learn(
        self, key: tuple[int, ...], identities: tuple[int, ...], arguments: tuple[Any, ...]
    ) -> Touched:
        """What a launch touches; programs repeat themselves, and so ask for it again."""
        if len(self._known) >= _MOST_KEYS:
            self._known.clear()
        accessed = self.step.accessed(arguments) if self._stepped else {}
        found = self._known[key] = self._find(identities, accessed)
        return found

    def _find(self, identities: tuple[int, ...], accessed: Mapping[int, Accessed]) -> Touched:
        """What a launch touches, in rows as far as they are known."""
        keys = dict(zip(self._positions, identities, strict=True))
        step = self.step

        def parts(positions: Sequence[int], part: str) -> MemoryPartition:
            return {
                keys[k]: rows_of(getattr(accessed[k], part)) if k in accessed else None
                for k in positions
            }

        return Touched(
            frozenset(identities), parts(step.written, "written"), parts(step.needed, "read")
        )


def quick_way(
    specialisation: Specialisation, plan: TapePlan, flow: GradientFlow
) -> FastPath | None:
    """The quick way for launches with such a plan; None if there is none."""
    identities = identities_of(specialisation)
    if identities is None or len(plan.steps) != 1 or flow.may_end:
        return None
    step = plan.steps[0]
    if not _saves_nothing(step):
        return None
    return FastPath(specialisation, identities, plan)


def _saves_nothing(step: ReverseStep) -> bool:
    """Whether a step neither overwrites what it needs nor keeps more than its arguments."""
    overwrites = set(step.needed_before) & set(step.written)
    return not (overwrites or step.rewritten or step.fingerprint or step.log)
