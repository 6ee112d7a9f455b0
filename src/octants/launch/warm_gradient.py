"""Recognises the arguments of an earlier gradient, so that a warm one finds its reverse at once.

A program for Quadrants calls ``kernel.grad(...)`` with structs of hundreds of arrays, as often as
it launches the kernel. What is found for them - the specialisation, which arrays are the same
memory, the compiled reverse - depends on which arrays they are, so it holds for the very same
ones. Arguments with arrays of other libraries are never recognised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from octants import driver
from octants.diagnostics.generated_functions import define
from octants.launch.specialisation import Specialisation
from octants.launch.specialisation_guards import GONE
from octants.runtime.arguments.recognition import UNKNOWN, Recognition, same_conditions

if TYPE_CHECKING:
    from octants.launch.gradient import BareReverse
else:
    BareReverse = Any

Recogniser = Callable[..., bool]
"""Whether arguments are recognised."""
_MOST = 8

_SOURCE = """
def recognise({arguments}):
    try:
        return state.generation == {generation}{conditions}
    except problems:
        return False
"""


class Reversal(NamedTuple):
    """What a bare gradient runs: the kernel, the same with equal arrays merged, its reverse."""

    specialisation: Specialisation
    merged: Specialisation
    reverse: BareReverse


class WarmGradients:
    """The latest reversals of a kernel's bare gradients, of which each has a way and arguments."""

    def __init__(self) -> None:
        self._known: list[tuple[Any, Recogniser, Reversal]] = []

    def find(self, way: Any, arguments: tuple[Any, ...]) -> Reversal | None:
        """The reversal that was found for these arguments, and for the same way."""
        for known, recognise, reversal in self._known:
            if known == way and recognise(*arguments):
                return reversal
        return None

    def add(self, way: Any, generation: int, reversal: Reversal, arguments: Any) -> None:
        """Remember what was found for arguments; the oldest is forgotten where there are many."""
        specialisation = reversal.specialisation
        leaves = specialisation.signature.leaves()
        found = same_conditions(leaves, specialisation.structs, arguments)
        if found is not None:
            recognise = make_recogniser(specialisation, generation, *found)
            self._known = [(way, recognise, reversal), *self._known[: _MOST - 1]]

    def forget(self, ended: Specialisation) -> None:
        """Drop what was found for a specialisation."""
        self._known = [each for each in self._known if each[2].specialisation is not ended]


def recogniser_of(specialisation: Specialisation, generation: int) -> Recogniser:
    """Whether launches with given arguments are of a specialisation that has an entry."""
    recognition: Recognition | None = specialisation.recognition
    assert recognition is not None
    return make_recogniser(specialisation, generation, recognition.conditions, recognition.scope)


def make_recogniser(
    specialisation: Specialisation, generation: int, conditions: list[str], scope: dict[str, Any]
) -> Recogniser:
    """A function of the arguments: whether the conditions hold, and those on Python's values."""
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
