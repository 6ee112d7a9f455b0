"""Recognises the arguments of an earlier gradient, to launch its compiled reverse.

Programs for Quadrants call ``kernel.grad(...)`` with structs of hundreds of arrays, as often as
they launch the kernel. The specialisation, the arrays with the same memory, and the compiled
reverse depend on the arrays, so they are reused for the very same ones. Arguments with arrays of
other libraries are never recognised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from octants.launch.gradients.operand_changes import OperandCheck
from octants.launch.specialisation import Specialisation
from octants.launch.warm.warm_call import recognising
from octants.runtime.arguments.argument_recognition import same_conditions

if TYPE_CHECKING:
    from octants.launch.gradients.derivative_variants import BareReverse
else:
    BareReverse = Any

WarmGradient = Callable[..., Any]
"""A function of the arguments: their `Reversal`, or `LAUNCHED` if it is plain; None for others."""
LAUNCHED = object()
_MOST = 8

_CHECK = "operands.check(({arguments}{hidden}))"
_LAUNCH = "launch(state.seed, specialisation.number, 0, {arguments}{hidden})"


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


def _make_gradient(
    reversal: Reversal, generation: int, conditions: list[str], scope: dict[str, Any]
) -> WarmGradient:
    """Generate the gradient of arguments that conditions recognise."""
    lines: list[str] = []
    result: object = reversal
    if reversal.is_plain:
        lines, result = [_LAUNCH] if reversal.trusts else [_CHECK, _LAUNCH], LAUNCHED
    body = "\n    ".join(["if not known:\n        return None", *lines, "return result"])
    inside = {**scope, "result": result, "operands": reversal.operands}
    own, code = reversal.specialisation, reversal.reverse.program
    return recognising("gradient", own, generation, conditions, inside, body, code)
