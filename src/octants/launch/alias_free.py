"""Launches whose arrays are fields and ndarrays of ours, each of them once.

Such arrays share no memory, and all that changes them is known. So a launch on them needs no look
at their memory: their numbers say all.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from octants.data.host_array import Tensor
from octants.diagnostics.generated_functions import define
from octants.ir.core import Space
from octants.launch.specialisation import Specialisation
from octants.types.signature import FieldSource

Identities = Callable[..., tuple[int, ...] | None]

_SOURCE = """
def identities({arguments}):
    found = ({values})
    return found if None not in found{differ} else None
"""


def identities_of(specialisation: Specialisation) -> Identities | None:
    """A function of the arguments that gives the numbers of a kernel's arrays, in their order.

    It gives None for a launch that is not of this kind; there is no function where none can be.
    """
    if "own" not in specialisation.fast_paths:
        specialisation.fast_paths["own"] = _make(specialisation)
    found: Identities | None = specialisation.fast_paths["own"]
    return found


def on_own_arrays(specialisation: Specialisation, arguments: Sequence[Any]) -> bool:
    """Whether a launch is of this kind."""
    identities = identities_of(specialisation)
    return identities is not None and identities(*arguments) is not None


def positions_of(specialisation: Specialisation) -> list[int]:
    """The positions of the arrays that have numbers."""
    spaces = Space.FIELD, Space.NDARRAY
    return [k for k, array in enumerate(specialisation.arrays) if array.space in spaces]


def _make(specialisation: Specialisation) -> Identities | None:
    scope: dict[str, Any] = {}
    values: list[str] = []
    fields: list[Any] = []
    for position in positions_of(specialisation):
        source = specialisation.sources[position]
        if isinstance(source, FieldSource):
            fields.append(source.field)
            scope[f"f{position}"] = weakref.ref(source.field)
            values.append(f"f{position}().own_identity")
            continue
        leaf = specialisation.leaf(position)
        if specialisation.forms[leaf.position, leaf.path] != "own":
            return None
        values.append(f"{leaf.expression}.own_identity")
    if len(set(map(id, fields))) < len(fields) or not all(isinstance(x, Tensor) for x in fields):
        return None
    text = _SOURCE.format(
        arguments="".join(f"a{k}, " for k in range(specialisation.count)),
        values="".join(f"{value}, " for value in values),
        differ=f" and len({{*found}}) == {len(values)}" * (len(values) > len(fields)),
    )
    return define("identities", text, scope)
