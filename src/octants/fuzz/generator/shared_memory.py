"""Ndarrays in the memory of another array: ``from_dlpack``; named by kernels, or passed to them."""

from __future__ import annotations

import re
from typing import Any

from octants.fuzz.generator import array_elements, arrays
from octants.fuzz.generator.bounded_expressions import fitting
from octants.fuzz.generator.context import ArrayInfo, Context, Productions, Shared


def declare(shared: Shared) -> list[str]:
    """Give most arrays without a gradient a second name; `arrays.declarations` writes it.

    An adjoint belongs to one name, so arrays that have a gradient keep to theirs.
    """
    rng = shared.rng
    for array in shared.arrays[2:]:
        if array.is_float and rng.random() < 0.5:
            array.has_grad = False
        if not array.has_grad and not array.element_shape and rng.random() < 0.85:
            array.imported = shared.fresh("s")
            shared.features[f"import of {'a field' if array.is_field else 'an ndarray'}"] += 1
    return []


def rename(c: Context, body: str, parameters: list[str], values: list[Any]) -> str:
    """Let some accesses to an array use its second name, or an argument in its memory."""
    for array in c.shared.arrays:
        if array.imported:
            body = _renamed(c, array, body, parameters, values)
    return body


def _renamed(
    c: Context, array: ArrayInfo, body: str, parameters: list[str], values: list[Any]
) -> str:
    first, *others = re.split(rf"\b{array.name}\[", body)
    second = array.imported
    if others and array.shape and c.chance(0.4):
        second = f"{array.imported}_given"
        parameters.append(arrays.annotation(array).replace(array.name, second, 1))
        values.append(array.imported)
    chosen = [c.pick([array.name, second]) for _ in others]
    if len(set(chosen)) == 2:
        is_named = second == array.imported
        c.note(f"two names of one memory in a kernel{'' if is_named else ', one of them passed'}")
    return first + "".join(f"{name}[{rest}" for name, rest in zip(chosen, others, strict=True))


def _store_between_reads(c: Context) -> bool | None:
    """Two reads of an element, and a store between them that uses the second name of the array."""
    options = array_elements.writable(c, "f", ("own", "free"))
    options = [(array, role) for array, role in options if array.imported]
    if not options:
        return None
    array, role = c.pick(options)
    position = array_elements.position(c, array, role)
    element, value = array.at(position), fitting(c, 1.0).text
    variable = c.declare("s", "f", 2 * array.low, 2 * array.high)
    c.note("store by one name between reads by the other")
    c.emit(f"{variable.name} = {element}")
    c.emit(f"{array.imported}[{position}] = 0.5 * {variable.name} + {value}")
    c.emit(f"{variable.name} += {element}")
    return True


PRODUCTIONS = Productions(statements=((2.0, _store_between_reads),), declare=declare, kernel=rename)
