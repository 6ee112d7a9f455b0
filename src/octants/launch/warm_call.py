"""Generates the function of a warm call: recognise the arguments, launch, return the results.

A kernel keeps the entry of its last specialisation and calls it first (`launch.kernel`). Arguments
that the conditions do not recognise go to ``miss``, which finds or makes the right specialisation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from octants import driver
from octants.functions_from_text import define
from octants.launch.specialisation import Specialisation
from octants.launch.specialisation_guards import GONE
from octants.runtime.arguments.argument_recognition import UNKNOWN, Recognition

WarmCall = Callable[..., Any]

_SOURCE = """
def entry({arguments}):
    try:
        known = state.generation == {generation}{conditions}
    except problems:
        known = False
    if not known:
        return miss({arguments})
    recorder = state.recorder
    if recorder is not None:
        return recorder.launch(specialisation, ({arguments}{hidden}))
    specialisation.number = number = next(state.numbers)
    {results}launch(state.seed, number, 0, {arguments}{hidden})
"""
_WITH_RESULTS = (
    _SOURCE
    + """\
    return wrap(results)
"""
)


def make_entry(
    specialisation: Specialisation, generation: int, miss: WarmCall, arguments: tuple[Any, ...]
) -> WarmCall:
    """Generate the entry of a specialisation for a generation of the driver's state.

    It recognises arguments like ``arguments``, which have the specialisation's key. The kernel
    itself is compiled and loaded on its first launch, since a recorder may launch another one.
    """
    specialisation.recognition = recognition = Recognition(
        specialisation.signature.leaves(), specialisation.structs, arguments
    )
    terms, names = specialisation.guard
    conditions, scope = [*recognition.conditions, *terms], recognition.scope | names

    def launch(*given: Any) -> Any:
        scope["launch"] = specialisation.launch
        return specialisation.launch(*given)

    scope |= {
        "state": driver.state,
        "problems": (*UNKNOWN, *GONE),
        "specialisation": specialisation,
        "launch": launch,
        "wrap": specialisation.wrap,
        "miss": miss,
    }
    returns = bool(specialisation.returned)
    given = specialisation.count - len(specialisation.hidden)
    source = (_WITH_RESULTS if returns else _SOURCE).format(
        arguments="".join(f"a{k}, " for k in range(given)),
        hidden="".join(f"{each.name}, " for each in specialisation.hidden),
        generation=generation,
        conditions="".join(f" and {each}" for each in conditions),
        results="results = " if returns else "",
    )
    return define("entry", source, scope)
