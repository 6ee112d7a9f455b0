"""Recognises the arguments of an earlier gradient, to reuse its compiled reverse.

Programs for Quadrants call ``kernel.grad(...)`` with structs of hundreds of arrays, as often as
they launch the kernel. The specialisation, the arrays with the same memory, and the compiled
reverse depend on the arrays, so they are reused for the very same ones. Arguments with arrays of
other libraries are never recognised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from octants import driver
from octants.functions_from_text import define
from octants.launch.operand_changes import OperandCheck
from octants.launch.specialisation import Specialisation
from octants.launch.specialisation_guards import GONE
from octants.runtime.arguments.argument_recognition import UNKNOWN, Recognition, same_conditions

if TYPE_CHECKING:
    from octants.launch.derivative_variants import BareReverse
else:
    BareReverse = Any

Recogniser = Callable[..., bool]
"""A function of the arguments: whether they are recognised."""
_MOST = 8

_SOURCE = """
def recognise({arguments}):
    try:
        return state.generation == {generation}{conditions}
    except problems:
        return False
"""


class Reversal(NamedTuple):
    """What a bare gradient runs: the kernel, the kernel with aliased arrays merged, its reverse.

    `operands` checks that memory holds what that reads. `may_race` if the derivative may depend on
    which work item comes first, so that launches are checked.
    """

    specialisation: Specialisation
    merged: Specialisation
    reverse: BareReverse
    operands: OperandCheck
    may_race: bool = True


class WarmGradients:
    """The latest reversals of a kernel's bare gradients, by their options and arguments."""

    def __init__(self) -> None:
        self._known: list[tuple[Any, Recogniser, Reversal]] = []

    def find(self, key: Any, arguments: tuple[Any, ...]) -> Reversal | None:
        """The reversal of an earlier gradient with these options and arguments, or None."""
        for known, recognise, reversal in self._known:
            if known == key and recognise(*arguments):
                return reversal
        return None

    def add(self, key: Any, generation: int, reversal: Reversal, arguments: Any) -> None:
        """Remember a reversal for arguments; the oldest one is dropped where there are many."""
        specialisation = reversal.specialisation
        leaves = specialisation.signature.leaves()
        found = same_conditions(leaves, specialisation.structs, arguments)
        if found is not None:
            recognise = make_recogniser(specialisation, generation, *found)
            self._known = [(key, recognise, reversal), *self._known[: _MOST - 1]]

    def forget(self, ended: Specialisation) -> None:
        """Drop the reversals of a specialisation."""
        self._known = [each for each in self._known if each[2].specialisation is not ended]


def recogniser_of(specialisation: Specialisation, generation: int) -> Recogniser:
    """A function that recognises the arguments of a specialisation that has an entry."""
    recognition: Recognition | None = specialisation.recognition
    assert recognition is not None
    return make_recogniser(specialisation, generation, recognition.conditions, recognition.scope)


def make_recogniser(
    specialisation: Specialisation, generation: int, conditions: list[str], scope: dict[str, Any]
) -> Recogniser:
    """Generate a function that checks conditions on the arguments, and the guard on Python's
    values.
    """
    terms, names = specialisation.guard
    given = specialisation.count - len(specialisation.hidden)
    source = _SOURCE.format(
        arguments="".join(f"a{k}, " for k in range(given)),
        generation=generation,
        conditions="".join(f" and {each}" for each in (*conditions, *terms)),
    )
    problems = (*UNKNOWN, *GONE)
    inside = {**scope, **names, "state": driver.state, "problems": problems}
    recognise: Recogniser = define("recognise", source, inside)
    return recognise
