"""Launches that a tape records at once: nothing that is needed so far is overwritten by them.

Most launches of most programs are of this kind: one step, on fields and ndarrays of ours, each
given once, of which nothing is saved before it runs. What such a launch needs is told to the ledger
only if something is about to overwrite it (`Ledger.settle`), which mostly never happens. All else
takes the long way of `ad.tape`, as does the first launch of each specialisation, which finds out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from octants.ad.cuts import Flow
from octants.launch.gradient import Step, TapePlan
from octants.launch.outside import OutsideLayout
from octants.launch.own import Identities, identities_of, positions_of
from octants.launch.specialisation import Specialisation
from octants.runtime.arguments import StructAnnotation
from octants.types.signature import ScalarType

_MOST_KEYS = 64


@dataclass(frozen=True, slots=True)
class Keys:
    """The arrays of a launch, by their keys: all, those it writes, and what its reverse needs."""

    every: frozenset[int]
    written: frozenset[int]
    needed: frozenset[int]


class QuickWay:
    """How launches of a specialisation are recorded in this way."""

    __slots__ = ("_identities", "_known", "_positions", "freezes", "outside", "step")

    def __init__(
        self, specialisation: Specialisation, identities: Identities, plan: TapePlan
    ) -> None:
        (self.step,) = plan.steps
        self.outside: OutsideLayout | None = plan.outside if plan.outside.size else None
        self.freezes = any(
            isinstance(annotation, StructAnnotation)
            or (isinstance(annotation, ScalarType) and annotation.element_shape)
            for annotation in specialisation.signature.annotations
        )
        self._identities = identities
        self._positions = positions_of(specialisation)
        self._known: dict[tuple[int, ...], Keys] = {}

    def keys(self, arguments: tuple[Any, ...]) -> Keys | None:
        """The arrays of a launch; None if it must take the long way."""
        identities = self._identities(*arguments)
        if identities is None:
            return None
        return self._known.get(identities) or self._learn(identities)

    def _learn(self, identities: tuple[int, ...]) -> Keys:
        by_position = dict(zip(self._positions, identities, strict=True))
        if len(self._known) >= _MOST_KEYS:
            self._known.clear()
        step = self.step
        found = self._known[identities] = Keys(
            frozenset(identities),
            frozenset(by_position[k] for k in step.written),
            frozenset(by_position[k] for k in step.needed),
        )
        return found


def quick_way(specialisation: Specialisation, plan: TapePlan, flow: Flow) -> QuickWay | None:
    """The quick way for launches with such a plan; None if there is none."""
    identities = identities_of(specialisation)
    if identities is None or len(plan.steps) != 1 or flow.may_end:
        return None
    step = plan.steps[0]
    if not _saves_nothing(step):
        return None
    return QuickWay(specialisation, identities, plan)


def _saves_nothing(step: Step) -> bool:
    """Whether a step neither overwrites what it needs nor keeps more than its arguments."""
    overwrites = set(step.needed_before) & set(step.written)
    return not (overwrites or step.rewritten or step.witness or step.log)
