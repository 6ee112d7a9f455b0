"""Views of ndarrays: parts of one that do not overlap, or that are only read."""

from __future__ import annotations

import random
import re
from typing import Any

from octants.fuzz.generator.context import ArrayInfo, Base, Context, Productions, Shared, View
from octants.fuzz.program import Text


def declare(shared: Shared) -> list[str]:
    """Make views of most ndarrays with one axis; `arrays.declarations` writes them."""
    rng = shared.rng
    bases: dict[tuple[Any, ...], list[Base]] = {}
    for array in list(shared.arrays):
        if array.is_field or len(array.shape) != 1 or array.is_made or rng.random() < 0.2:
            continue
        key = (array.dtype, array.element_shape, array.has_grad, array.sort)
        made = bases.setdefault(key, [])
        is_later = bool(made) and rng.random() < 0.6
        if is_later:
            shared.features["views of one ndarray"] += 1
        else:
            made.append(Base(shared.fresh("b")))
        _assign_elements(array, made[-1], is_later, rng)
        shared.features["view of an ndarray"] += 1
        if array.constant and rng.random() < 0.4:
            shared.arrays.append(_overlapping(shared, array))
    return []


def _assign_elements(array: ArrayInfo, base: Base, is_later: bool, rng: random.Random) -> None:
    """Give a view elements of its own, with a gap on either side."""
    first = base.size + rng.choice([0, 0, 1, 2, 3])
    base.size = first + array.shape[0] + rng.choice([0, 0, 1, 2])
    array.view = View(base, first, is_later)


def _overlapping(shared: Shared, array: ArrayInfo) -> ArrayInfo:
    """Another view of some of the elements, which are never written."""
    shared.features["views that overlap"] += 1
    assert array.view is not None
    other = ArrayInfo(**{**array.__dict__, "name": shared.fresh("x")})
    base, step = array.view.base, shared.rng.choice([-1, 0, 1, 2])
    first = max(0, array.view.first + step)
    base.size = max(base.size, first + array.shape[0])
    other.view = View(base, first, is_later=True)
    return other


def parts(c: Context, body: str, parameters: list[str], values: list[Any]) -> str:
    """Let some views be made in the kernel, or by the launch."""
    for array in c.shared.arrays:
        positions = [k for k, p in enumerate(parameters) if p.startswith(f"{array.name}: ")]
        if array.view is None or not positions:
            continue
        if c.chance(0.25):
            values[positions[0]] = _slice(array, 0)
            c.note("view made by a launch")
        if c.chance(0.5) and "return" not in body:
            body = _subview(c, array, body, parameters, values, positions[0])
    return body


def _slice(array: ArrayInfo, more: int) -> Text:
    assert array.view is not None
    first = array.view.first
    return Text(f"{array.memory}[{first - more}:{first + array.shape[0]}]")


def _subview(
    c: Context,
    array: ArrayInfo,
    body: str,
    parameters: list[str],
    values: list[Any],
    position: int,
) -> str:
    """Pass a larger view, of which the kernel takes a part."""
    assert array.view is not None
    more = c.integer(0, min(2, array.view.first))
    whole = f"{array.name}_whole"
    parameters[position] = re.sub(r"^\w+", whole, parameters[position])
    values[position] = _slice(array, more)
    c.note("part of a view, in a kernel")
    if c.chance(0.5):
        c.note("slice of a view, in a kernel")
        end = more + array.shape[0]
        first = c.pick([str(more), "" if more == 0 else str(more)])
        last = c.pick([str(end), "", f"{whole}.size", f"{whole}.shape[0] - {whole}.size + {end}"])
        return f"    {array.name} = {whole}[{first}:{last}]\n{body}"
    size = c.pick([str(array.shape[0]), f"{whole}.size - {more}", f"{whole}.shape[0] - {more}"])
    return f"    {array.name} = {whole}.subview({more}, {size})\n{body}"


PRODUCTIONS = Productions(declare=declare, kernel=parts)
