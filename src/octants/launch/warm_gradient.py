"""Recognises the arguments of an earlier gradient, to launch its compiled reverse.

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
WarmGradient = Callable[..., Any]
"""A function of the arguments: their `Reversal`, or `LAUNCHED` if it is plain; None for others."""
LAUNCHED = object()
_MOST = 8

_SOURCE = """
def recognise({arguments}):
    try:
        return state.generation == {generation}{conditions}
    except problems:
        return False
"""
_GRADIENT_SOURCE = """
def gradient({arguments}):
    try:
        known = state.generation == {generation}{conditions}
    except problems:
        known = False
    if not known:
        return None
    {launch}
    return result
"""
_CHECK = "operands.check(({arguments}))"
_LAUNCH = "launch(state.seed, specialisation.number, 0, {arguments})"


class Reversal(NamedTuple):
    """The code of a bare gradient: the kernel, the kernel with aliased arrays merged, its reverse.

    `operands` checks that memory holds what that reads. `may_race` if the derivative may depend on
    which work item comes first, so that launches are checked. With ``trusts`` nothing is checked.
    """

    specialisation: Specialisation
    merged: Specialisation
    reverse: BareReverse
    operands: OperandCheck
    trusts: bool
    may_race: bool = True

    @property
    def is_plain(self) -> bool:
        """Whether it takes one launch, after a check of the operands at most."""
        reverse = self.reverse
        may_race = self.may_race and not self.trusts
        return not (reverse.persistent.size or reverse.rewritten or may_race)


class WarmGradients:
    """The latest reversals of a kernel's bare gradients, by their options and arguments."""

    def __init__(self) -> None:
        self.known: list[tuple[Any, WarmGradient, Specialisation]] = []

    def add(self, key: Any, generation: int, reversal: Reversal, arguments: Any) -> None:
        """Remember a reversal for arguments; the oldest one is dropped where there are many."""
        specialisation = reversal.specialisation
        leaves = specialisation.signature.leaves()
        found = same_conditions(leaves, specialisation.structs, arguments)
        if found is not None:
            gradient = _make_gradient(reversal, generation, *found)
            self.known = [(key, gradient, specialisation), *self.known[: _MOST - 1]]

    def forget(self, ended: Specialisation) -> None:
        """Drop the reversals of a specialisation."""
        self.known = [each for each in self.known if each[2] is not ended]


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
    parts, inside = _parts(specialisation, generation, conditions, scope)
    recognise: Recogniser = define("recognise", _SOURCE.format(**parts), inside)
    return recognise


def _parts(
    specialisation: Specialisation, generation: int, conditions: list[str], scope: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parts of a text with conditions on the arguments, and the names in it."""
    terms, names = specialisation.guard
    given = specialisation.count - len(specialisation.hidden)
    parts = {
        "arguments": "".join(f"a{k}, " for k in range(given)),
        "generation": generation,
        "conditions": "".join(f" and {each}" for each in (*conditions, *terms)),
    }
    problems = (*UNKNOWN, *GONE)
    return parts, {**scope, **names, "state": driver.state, "problems": problems}


def _make_gradient(
    reversal: Reversal, generation: int, conditions: list[str], scope: dict[str, Any]
) -> WarmGradient:
    """Generate the gradient of arguments that conditions recognise."""
    specialisation, program = reversal.specialisation, reversal.reverse.program
    parts, inside = _parts(specialisation, generation, conditions, scope)
    hidden = "".join(f"{each.name}, " for each in specialisation.hidden)
    lines: list[str] = []
    result: object = reversal
    if reversal.is_plain:
        lines, result = [_LAUNCH] if reversal.trusts else [_CHECK, _LAUNCH], LAUNCHED
    launch = "\n    ".join(lines).format(arguments=parts["arguments"] + hidden)

    def first_launch(*given: Any) -> None:
        inside["launch"] = program.launch
        program.launch(*given)

    inside |= {
        "result": result,
        "operands": reversal.operands,
        "specialisation": specialisation,
        "launch": first_launch,
    }
    source = _GRADIENT_SOURCE.format(**parts, launch=launch)
    gradient: WarmGradient = define("gradient", source, inside)
    return gradient
