"""Recognises launches that tapes record without a look at memory.

They are on fields and ndarrays of Octants, each passed once, so that the identities of the arrays
tell which memory they access. Arrays of numpy that they only read are passed to the reverse as
copies, so that the tape need not know their memory. Most launches have one step, with nothing to
save before it: the ledger resolves what such a launch needs only if something is about to overwrite
it (`OverwriteLedger.resolve`), which is rare. Others are recorded like those of an earlier tape
(`repeated_tapes`). The first launch of each specialisation, which finds out, and all other launches
take the slow path of `ad.tapes.tape`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from struct import Struct
from typing import Any

import numpy as np

from octants.ad.overwrites.needed_contents import MemoryRows
from octants.ad.overwrites.repeated_reversals import NumberPacker
from octants.ad.overwrites.repeated_tapes import Touched
from octants.analysis.indices.index_ranges import Accessed, rows_of, tidy
from octants.functions_from_text import define
from octants.ir.core import Companion, Space
from octants.launch.checks.race_checks import gradient_check
from octants.launch.gradients.derivative_variants import TapePlan
from octants.launch.gradients.lost_gradient_warnings import GradientFlow
from octants.launch.gradients.taped_memory import memory_at
from octants.launch.persistent_storage import PersistentLayout
from octants.launch.specialisation import Specialisation
from octants.launch.warm.alias_free_launches import (
    IdentityExpressions,
    identities_function,
    identity_expressions,
    parameters_of,
    positions_of,
)
from octants.runtime.arguments.packing import STRUCT_LETTERS
from octants.runtime.arguments.parameters import StructAnnotation
from octants.types.parameter_annotations import AnyTensor, NdarrayAnnotation
from octants.types.scalars import Kind
from octants.types.specialisation_signature import ArgumentSource, ScalarType

_MAX_KEYS = 4096
_ARRAYS = (AnyTensor, NdarrayAnnotation)
_INTEGERS = frozenset({int, *(np.dtype(code).type for code in "bhilqBHILQ")})
"""The types of arguments that select rows; equal numbers select the same."""

_SOURCE = """
def known_touched({arguments}):
    return known.get(({key})){condition}
"""
_IS_ROW_MAJOR = "type({array}) is ndarray and {array}.flags.c_contiguous"

_NUMBERS_SOURCE = """
def numbers({arguments}):
    return pack({values})
"""


class FastPath:
    """Recognises the launches of one specialisation.

    If it `saves_nothing`, they have one step, which overwrites nothing that it needs. It
    `can_repeat` if nothing but arrays and numbers, packed by `numbers`, matters to launches, and
    `is_plain` if both are true. `by_value` maps the positions of the
    arrays of numpy to those of the arguments; the reverse needs the contents of those in
    `copied`.
    """

    __slots__ = (
        "_has_regions",
        "_identities",
        "_known",
        "_positions",
        "_stepped",
        "by_value",
        "can_repeat",
        "copied",
        "freezes",
        "is_plain",
        "known_touched",
        "may_race",
        "numbers",
        "persistent",
        "saves_nothing",
        "specialisation",
        "steps",
    )

    def __init__(
        self,
        specialisation: Specialisation,
        expressions: IdentityExpressions,
        plan: TapePlan,
        by_value: Mapping[int, int],
    ) -> None:
        self.specialisation = specialisation
        self.by_value = by_value
        needed = {k for step in plan.steps for k in step.needed}
        self.copied = [each for each in by_value.items() if each[0] in needed]
        self.steps = plan.steps
        self.saves_nothing = len(plan.steps) == 1 and plan.steps[0].saves_nothing
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
            or by_value
            or any(leaf.path for leaf in specialisation.leaves.values())
        )
        self.is_plain = self.saves_nothing and self.can_repeat
        identities = identities_function(specialisation, expressions)
        assert identities is not None
        self._identities = identities
        self._positions = expressions.positions
        # A kernel that steps through the rows of an array writes no row that it needs later. These
        # arguments select the rows; the shapes of arrays do, too, but are those of the identities.
        named = {k for step in self.steps for k in step.regions.named}
        kinds = dict(enumerate(specialisation.signature.annotations))
        self._stepped = [k for k in sorted(named) if not isinstance(kinds.get(k), _ARRAYS)]
        self._has_regions = bool(named)
        self.numbers: NumberPacker | None = None
        if self.can_repeat:
            self.numbers = _number_packer(specialisation, self._stepped)
        self._known: dict[tuple[Any, ...], Touched | None] = {}
        stepped = [f"a{position}" for position in self._stepped]
        given = [f"a{position}" for position in by_value.values()]
        shapes = [f"{array}.shape" for array in given]
        source = _SOURCE.format(
            arguments=parameters_of(specialisation),
            key="".join(f"{value}, " for value in (*expressions.values, *stepped, *shapes)),
            condition=_condition(stepped, given),
        )
        names = {"known": self._known, "integers": _INTEGERS, "ndarray": np.ndarray}
        self.known_touched: Callable[..., Touched | None] = define(
            "known_touched", source, {**expressions.scope, **names}
        )
        """The arrays of a launch like an earlier one, given its arguments; None for others."""

    def touched(self, arguments: tuple[Any, ...]) -> Touched | None:
        """The arrays of a launch; None if it must take the slow path."""
        identities = self._identities(*arguments)
        if identities is None:
            return None
        key: tuple[Any, ...] = identities
        for position in self._stepped:
            number = arguments[position]
            if type(number) not in _INTEGERS:  # a struct, of which a member selects the rows
                return self._find(identities, arguments)
            key = (*key, int(number))
        for position in self.by_value.values():
            array = arguments[position]
            if type(array) is not np.ndarray or not array.flags.c_contiguous:
                return None
            key = (*key, array.shape)
        return self._learn(key, identities, arguments)

    def _learn(
        self, key: tuple[Any, ...], identities: tuple[int, ...], arguments: tuple[Any, ...]
    ) -> Touched | None:
        """The accesses of a launch, cached by its arguments, since programs repeat themselves."""
        if key in self._known:
            return self._known[key]
        if len(self._known) >= _MAX_KEYS:
            self._known.clear()
        found = self._known[key] = self._find(identities, arguments)
        if found is not None:
            found.is_known, found.is_plain, found.numbers = True, self.is_plain, self.numbers
        return found

    def _find(self, identities: tuple[int, ...], arguments: tuple[Any, ...]) -> Touched | None:
        """The accesses of a launch, in rows as far as they are known.

        None if the reverse reads parts of an array of numpy: the tape copies no more than these.
        """
        if self.copied and not self._reads_all(arguments):
            return None
        if not self.saves_nothing:
            return Touched(frozenset(identities), {}, {})
        keys = dict(zip(self._positions, identities, strict=True))
        (step,) = self.steps
        accessed: Mapping[int, Accessed] = step.regions.of(arguments) if self._has_regions else {}

        def rows(positions: Sequence[int], accesses: str) -> MemoryRows:
            return {
                keys[k]: rows_of(getattr(accessed[k], accesses)) if k in accessed else None
                for k in positions
                if k not in self.by_value
            }

        return Touched(
            frozenset(identities), rows(step.written, "written"), rows(step.needed, "read")
        )

    def _reads_all(self, arguments: tuple[Any, ...]) -> bool:
        """Whether the reverse reads all of each array of numpy that it reads."""
        for position, _ in self.copied:
            memory = memory_at(self.specialisation, position, arguments)
            for step in self.steps:
                accessed = step.regions.of(arguments).get(position)
                is_read = position in step.needed
                if is_read and accessed is not None and not memory.covers(tidy(accessed.read)):
                    return False
        return True


def _condition(stepped: Sequence[str], arrays: Sequence[str]) -> str:
    """The condition that arguments which select rows are integers, and that arrays of numpy are
    row-major, in generated code.
    """
    are = [f"(type({each}) is int or type({each}) in integers)" for each in stepped]
    are += [_IS_ROW_MAJOR.format(array=each) for each in arrays]
    return f" if {' and '.join(are)} else None" if are else ""


def find_fast_path(
    specialisation: Specialisation, plan: TapePlan, flow: GradientFlow
) -> FastPath | None:
    """Recognises launches with a plan; None if they must take the slow path.

    Args:
        specialisation: the kernel.
        plan: how a tape runs and reverses its launches.
        flow: the float arrays of the kernel.
    """
    by_value = _read_numpy_arrays(specialisation)
    expressions = identity_expressions(specialisation, without=by_value)
    if expressions is None or flow.may_end:
        return None
    if any(step.fingerprint or step.log for step in plan.steps):
        return None
    return FastPath(specialisation, expressions, plan, by_value)


def _read_numpy_arrays(specialisation: Specialisation) -> dict[int, int]:
    """The arrays of numpy that launches do not write: their positions, and of the arguments."""
    found = {}
    for position in positions_of(specialisation):
        source = specialisation.sources[position]
        if isinstance(source, ArgumentSource) and position not in specialisation.written:
            leaf = specialisation.leaf(position)
            kind = specialisation.kinds[leaf.position, leaf.path]
            has_gradient = specialisation.arrays[position].has(Companion.ADJOINT)
            if kind in ("numpy", "staged") and not leaf.path and not has_gradient:
                found[position] = leaf.position
    return found


def _number_packer(specialisation: Specialisation, known: Collection[int]) -> NumberPacker | None:
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
    made: NumberPacker = define("numbers", source, {"pack": Struct("<" + letters).pack})
    return made
