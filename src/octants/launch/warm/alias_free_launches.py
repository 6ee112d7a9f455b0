"""Recognises alias-free launches: only fields and ndarrays of Octants, each passed once.

Such arrays share no memory, and every change of them is tracked. So the identities of its arrays
tell everything about the memory of such a launch.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Sequence
from typing import Any

from octants.data.array_base import Tensor
from octants.functions_from_text import define
from octants.ir.core import Space
from octants.launch.specialisation import Specialisation
from octants.lazy_dataclass import dataclass
from octants.types.specialisation_signature import FieldSource

Identities = Callable[..., tuple[int, ...] | None]


@dataclass(frozen=True, slots=True)
class IdentityExpressions:
    """The identities of a kernel's arrays in order, as Python expressions of its arguments.

    The arguments are ``a0``, ``a1``, ...; `scope` has what else the expressions name. Arguments
    `may_repeat` if some of the arrays are passed by the caller. The arrays have `positions`.
    """

    values: list[str]
    scope: dict[str, Any]
    may_repeat: bool
    positions: list[int]


_SOURCE = """
def identities({arguments}):
    found = ({values})
    return found if None not in found{differ} else None
"""


def identities_of(specialisation: Specialisation) -> Identities | None:
    """A function of the arguments that returns the identities of a kernel's arrays, in order.

    It returns None for a launch that is not alias-free. None if no launch of the kernel is.
    """
    if "identities" not in specialisation.fast_paths:
        specialisation.fast_paths["identities"] = _make(specialisation)
    found: Identities | None = specialisation.fast_paths["identities"]
    return found


def parameters_of(specialisation: Specialisation) -> str:
    """The parameters of a generated function that takes the arguments of a kernel."""
    return "".join(f"a{k}, " for k in range(specialisation.count))


def has_distinct_arrays(specialisation: Specialisation, arguments: Sequence[Any]) -> bool:
    """Whether a launch is alias-free."""
    identities = identities_of(specialisation)
    return identities is not None and identities(*arguments) is not None


def positions_of(specialisation: Specialisation) -> list[int]:
    """The positions of the arrays that have identities: fields and ndarrays."""
    spaces = Space.FIELD, Space.NDARRAY
    return [k for k, array in enumerate(specialisation.arrays) if array.space in spaces]


def identity_expressions(
    specialisation: Specialisation, without: Collection[int] = ()
) -> IdentityExpressions | None:
    """The expressions of the identities; None if no launch of the kernel is alias-free.

    Args:
        specialisation: the kernel.
        without: the positions of arrays that have none, and of which launches read copies.
    """
    scope: dict[str, Any] = {}
    values: list[str] = []
    fields: list[Any] = []
    positions = [k for k in positions_of(specialisation) if k not in without]
    for position in positions:
        source = specialisation.sources[position]
        if isinstance(source, FieldSource):
            fields.append(source.field)
            scope[f"f{position}"] = weakref.ref(source.field)
            values.append(f"f{position}().explicit_identity")
            continue
        leaf = specialisation.leaf(position)
        if specialisation.kinds[leaf.position, leaf.path] != "octants":
            return None
        values.append(f"{leaf.expression}.explicit_identity")
    if len(set(map(id, fields))) < len(fields) or not all(isinstance(x, Tensor) for x in fields):
        return None
    may_repeat = len(values) > len(fields)
    return IdentityExpressions(values, scope, may_repeat, positions)


def _make(specialisation: Specialisation) -> Identities | None:
    return identities_function(specialisation, identity_expressions(specialisation))


def identities_function(
    specialisation: Specialisation, found: IdentityExpressions | None
) -> Identities | None:
    """A function of the arguments that evaluates identities; None without any."""
    if found is None:
        return None
    text = _SOURCE.format(
        arguments=parameters_of(specialisation),
        values="".join(f"{value}, " for value in found.values),
        differ=f" and len({{*found}}) == {len(found.values)}" * found.may_repeat,
    )
    return define("identities", text, found.scope)
