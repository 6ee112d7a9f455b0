"""Generates the functions that recognise the arguments of a warm call.

A kernel keeps the entry of its last specialisation and calls it first (`launch.kernel`): it
recognises the arguments, launches, and returns the results. Arguments that the conditions do not
recognise go to ``miss``, which finds or makes the right specialisation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from octants import driver
from octants.functions_from_text import define
from octants.launch.specialisation import Specialisation
from octants.launch.warm.specialisation_guards import GONE
from octants.runtime.arguments.argument_recognition import UNKNOWN, Recognition

WarmCall = Callable[..., Any]
Recogniser = Callable[..., bool]
"""A function of the arguments: whether they are recognised."""

_SOURCE = """
def {name}({arguments}):
    try:
        known = state.generation == {generation}{conditions}
    except problems:
        known = False
    """
_ENTRY = """if not known:
        return miss({arguments})
    recorder = state.recorder
    if recorder is not None:
        return recorder.launch(specialisation, ({arguments}{hidden}))
    specialisation.number = number = next(state.numbers)
    """
_LAUNCH = "launch(state.seed, number, 0, {arguments}{hidden})"
_LAUNCH_WITH_RESULTS = f"return wrap({_LAUNCH})"


def make_entry(
    specialisation: Specialisation, generation: int, miss: WarmCall, arguments: tuple[Any, ...]
) -> WarmCall:
    """Generate the function of warm calls of a specialisation, until the next `init` or `reset`.

    It recognises arguments like ``arguments``, which have the specialisation's key. The kernel
    itself is compiled and loaded on its first launch, since a recorder may launch another one.
    """
    specialisation.recognition = recognition = Recognition(
        specialisation.signature.leaves(), specialisation.structs, arguments
    )
    body = _ENTRY + (_LAUNCH_WITH_RESULTS if specialisation.returned else _LAUNCH)
    scope = {**recognition.scope, "wrap": specialisation.wrap, "miss": miss}
    conditions = recognition.conditions
    return recognising("entry", specialisation, generation, conditions, scope, body, specialisation)


def recogniser_of(specialisation: Specialisation, generation: int) -> Recogniser:
    """A function that recognises the arguments of a specialisation that has an entry."""
    known: Recognition | None = specialisation.recognition
    assert known is not None
    given = known.conditions, known.scope
    return recognising("recognise", specialisation, generation, *given, "return known")


def recognising(
    name: str,
    specialisation: Specialisation,
    generation: int,
    conditions: Sequence[str],
    scope: dict[str, Any],
    body: str,
    code: Any = None,
) -> Callable[..., Any]:
    """Generate a function that checks conditions on the arguments, and the guard on Python's
    values.

    Args:
        name: its name in tracebacks.
        specialisation: the kernel.
        generation: that of the driver's state.
        conditions: on the arguments, ``a0``, ``a1``, ...
        scope: what the conditions and the body name.
        body: what follows; ``known`` says whether the conditions hold. It may name the
            ``{arguments}``, those that are ``{hidden}``, `specialisation`, `state`, and `launch`.
        code: what launches, by its attribute of that name, from the first launch on.
    """
    terms, names = specialisation.guard
    inside = {**scope, **names, "state": driver.state, "specialisation": specialisation}
    inside["problems"] = *UNKNOWN, *GONE

    def launch(*given: Any) -> Any:
        inside["launch"] = code.launch
        return code.launch(*given)

    inside["launch"] = launch
    given = specialisation.count - len(specialisation.hidden)
    source = (_SOURCE + body).format(
        name=name,
        arguments="".join(f"a{k}, " for k in range(given)),
        hidden="".join(f"{each.name}, " for each in specialisation.hidden),
        generation=generation,
        conditions="".join(f" and {each}" for each in (*conditions, *terms)),
    )
    return define(name, source, inside)
