"""Recognises launches that tapes record without a look at memory.

They are on fields and ndarrays of Octants, each passed once, so that the identities of the arrays
tell which memory they access. Most of them have one step, with nothing to save before it: the
ledger resolves what such a launch needs only if something is about to overwrite it
(`OverwriteLedger.resolve`), which is rare. Others are recorded like those of an earlier tape
(`repeated_tapes`). The first launch of each specialisation, which finds out, and all other launches
take the slow path of `ad.tape`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from struct import Struct
from typing import Any

import numpy as np

from octants.ad.lost_gradient_warnings import GradientFlow
from octants.ad.needed_contents import MemoryRows
from octants.ad.repeated_tapes import Touched
from octants.analysis.index_ranges import Accessed, rows_of
from octants.functions_from_text import define
from octants.ir.core import Space
from octants.launch.alias_free_launches import (
    IdentityExpressions,
    identities_of,
    identity_expressions,
    parameters_of,
    positions_of,
)
from octants.launch.derivative_variants import ReverseStep, TapePlan
from octants.launch.persistent_storage import PersistentLayout
from octants.launch.race_checks import gradient_check
from octants.launch.specialisation import Specialisation
from octants.runtime.arguments.packing import STRUCT_LETTERS
from octants.runtime.arguments.parameters import StructAnnotation
from octants.types.parameter_annotations import AnyTensor, NdarrayAnnotation
from octants.types.scalars import Kind
from octants.types.specialisation_signature import ScalarType

_MAX_KEYS = 4096
_ARRAYS = (AnyTensor, NdarrayAnnotation)
_INTEGERS = frozenset({int, *(np.dtype(code).type for code in "bhilqBHILQ")})
"""The types of arguments that select rows; equal numbers select the same."""

_SOURCE = """
def known_touched({arguments}):
    return known.get(({key})){condition}
"""

_NUMBERS_SOURCE = """
def numbers({arguments}):
    return pack({values})
"""


class FastPath:
    """Recognises the launches of one specialisation.

    If it `saves_nothing`, they have one step, which overwrites nothing that it needs. It
    `can_repeat` if nothing but arrays and `numbers` matters to launches (see
    `LaunchedArrays.numbers`), and `is_plain` if both are true.
    """

    __slots__ = (
        "_has_regions",
        "_identities",
        "_known",
        "_positions",
        "_stepped",
        "can_repeat",
        "freezes",
        "is_plain",
        "known_touched",
        "may_race",
        "numbers",
        "persistent",
        "saves_nothing",
        "steps",
    )

    def __init__(
        self, specialisation: Specialisation, expressions: IdentityExpressions, plan: TapePlan
    ) -> None:
        self.steps = plan.steps
        self.saves_nothing = len(plan.steps) == 1 and _saves_nothing(plan.steps[0])
        self.persistent: PersistentLayout | None = plan.persistent if plan.persistent.size else None
        self.may_race = gradient_check(specialisation).program is not None
        self.freezes = any(
            isinstance(annotation, StructAnnotation)
            or (isinstance(annotation, ScalarType) and annotation.element_shape)
            for annotation in specialisation.signature.annotations
        )
        self.can_repeat = not (
            self.freezes
            or self.may_race
            or plan.persistent.size
            or any(leaf.path for leaf in specialisation.leaves.values())
        )
        self.is_plain = self.saves_nothing and self.can_repeat
        identities = identities_of(specialisation)
        assert identities is not None
        self._identities = identities
        self._positions = positions_of(specialisation)
        # A kernel that steps through the rows of an array writes no row that it needs later. These
        # arguments select the rows; the shapes of arrays do, too, but are those of the identities.
        named = {k for step in self.steps for k in step.regions.named}
        kinds = dict(enumerate(specialisation.signature.annotations))
        self._stepped = [k for k in sorted(named) if not isinstance(kinds.get(k), _ARRAYS)]
        self._has_regions = bool(named)
        self.numbers: Callable[..., bytes] | None = None
        if self.can_repeat:
            self.numbers = _number_packer(specialisation, self._stepped)
        self._known: dict[tuple[int, ...], Touched] = {}
        stepped = [f"a{position}" for position in self._stepped]
        source = _SOURCE.format(
            arguments=parameters_of(specialisation),
            key="".join(f"{value}, " for value in (*expressions.values, *stepped)),
            condition=_if_numbers(stepped),
        )
        self.known_touched: Callable[..., Touched | None] = define(
            "known_touched",
            source,
            {**expressions.scope, "known": self._known, "integers": _INTEGERS},
        )
        """The arrays of a launch like an earlier one, given its arguments; None for others."""

    def touched(self, arguments: tuple[Any, ...]) -> Touched | None:
        """The arrays of a launch; None if it must take the slow path."""
        identities = self._identities(*arguments)
        if identities is None:
            return None
        key = identities
        for position in self._stepped:
            number = arguments[position]
            if type(number) not in _INTEGERS:  # a struct, of which a member selects the rows
                return self._find(identities, arguments)
            key = (*key, int(number))
        return self._learn(key, identities, arguments)

    def _learn(
        self, key: tuple[int, ...], identities: tuple[int, ...], arguments: tuple[Any, ...]
    ) -> Touched:
        """What a launch accesses, cached by its arguments, since programs repeat themselves."""
        if len(self._known) >= _MAX_KEYS:
            self._known.clear()
        found = self._known[key] = self._find(identities, arguments)
        found.is_known, found.is_plain, found.numbers = True, self.is_plain, self.numbers
        return found

    def _find(self, identities: tuple[int, ...], arguments: tuple[Any, ...]) -> Touched:
        """What a launch accesses, in rows as far as they are known."""
        if not self.saves_nothing:
            return Touched(frozenset(identities), {}, {})
        keys = dict(zip(self._positions, identities, strict=True))
        (step,) = self.steps
        accessed: Mapping[int, Accessed] = step.accessed(arguments) if self._has_regions else {}

        def rows(positions: Sequence[int], accesses: str) -> MemoryRows:
            return {
                keys[k]: rows_of(getattr(accessed[k], accesses)) if k in accessed else None
                for k in positions
            }

        return Touched(
            frozenset(identities), rows(step.written, "written"), rows(step.needed, "read")
        )


def _if_numbers(stepped: Sequence[str]) -> str:
    """Where arguments select rows, the condition that they are integers, in generated code."""
    if not stepped:
        return ""
    are = (f"(type({each}) is int or type({each}) in integers)" for each in stepped)
    return f" if {' and '.join(are)} else None"


def find_fast_path(
    specialisation: Specialisation, plan: TapePlan, flow: GradientFlow
) -> FastPath | None:
    """Recognises launches with a plan; None if they must take the slow path.

    Args:
        specialisation: the kernel.
        plan: how a tape runs and reverses its launches.
        flow: the float arrays of the kernel.
    """
    expressions = identity_expressions(specialisation)
    if expressions is None or flow.may_end:
        return None
    if any(step.fingerprint or step.log for step in plan.steps):
        return None
    return FastPath(specialisation, expressions, plan)


def _number_packer(
    specialisation: Specialisation, known: Collection[int]
) -> Callable[..., bytes] | None:
    """A function of a launch's arguments that gives the bits of the numbers among them.

    It raises an error for what is none. None if all numbers are ``known``, by their positions.
    """
    leaves = {
        array: specialisation.leaf(position)
        for position, array in enumerate(specialisation.arrays)
        if array.space is Space.ARGUMENT
    }
    numbers = [
        (leaf.expression, array.dtype)
        for array, leaf in leaves.items()
        if leaf.position not in known
    ]
    if not numbers:
        return None
    letters = "".join(STRUCT_LETTERS[dtype.name] for _, dtype in numbers)
    values = [value + ".__bool__()" * (dtype.kind is Kind.BOOL) for value, dtype in numbers]
    source = _NUMBERS_SOURCE.format(
        arguments=parameters_of(specialisation), values=", ".join(values)
    )
    made: Callable[..., bytes] = define("numbers", source, {"pack": Struct("<" + letters).pack})
    return made


def _saves_nothing(step: ReverseStep) -> bool:
    """Whether a step overwrites nothing that it needs."""
    return not (set(step.needed_before) & set(step.written) or step.rewritten)
