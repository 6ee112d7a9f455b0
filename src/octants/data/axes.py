"""The axes of fields: ``i``, ``ij``, ..., and ``axes(0, 2)``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from octants.data.errors import ExtentTooLarge, WrongArrayOption, WrongAxes, WrongExtents, describe
from octants.types.matrix_values import Matrix

LETTERS = "ijklmnopqrst"


class Axis:
    """An axis of index space, by its number from 0; fields put their axes in this order."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Axis) and self.number == other.number

    def __hash__(self) -> int:
        return self.number

    def __repr__(self) -> str:
        return LETTERS[self.number]


Axes = tuple[Axis, ...]


def axes(*numbers: int) -> Axes:
    """The axes with these numbers, for the first argument of `dense`: ``axes(0, 1)`` is ``ij``.

    Raises:
        OctantsValueError: a number is not from 0 to 11.
    """
    for number in numbers:
        if not is_integer(number) or not 0 <= number < len(LETTERS):
            raise WrongAxes(f"there is no axis {describe(number)}: they are numbered 0 to 11").at()
    return tuple(Axis(int(number)) for number in numbers)


def check_axes(given: Any) -> Axes:
    """The axes of a block, from an axis or a sequence of them."""
    found = (given,) if isinstance(given, Axis) else given
    if not isinstance(found, (tuple, list)) or not all(isinstance(axis, Axis) for axis in found):
        raise WrongAxes(f"{describe(given)} is not an axis of a field, nor several").at()
    if len(set(found)) != len(found):
        raise WrongAxes(f"the axes {list(found)} of a block must differ").at()
    return tuple(found)


def check_dimensions(what: str, found: Axes, dimensions: Any) -> tuple[int, ...]:
    """One extent for each axis; a single one stands for all of them."""
    extents = check_shape(what, dimensions)
    if len(extents) == 1:
        extents *= len(found)
    if len(extents) != len(found):
        raise WrongAxes(f"{what}: {len(found)} axes, but {len(extents)} extents are given").at()
    return extents


def check_shape(what: str, shape: Any, least: int = 1) -> tuple[int, ...]:
    """A shape as a tuple of integers; a single integer is a shape of one axis."""
    extents = _integers(shape)
    if extents is None or any(extent < least for extent in extents):
        raise WrongExtents(what, describe(shape), least).at()
    check_extents(what, extents)
    return extents


MOST = 2**31 - 1
"""The most elements of an axis: indices are i32."""


def check_extents(what: str, extents: Sequence[int], first: Sequence[int] | None = None) -> None:
    """An error if an i32 cannot hold all indices; ``first`` has those of the first element.

    Raises `OctantsValueError`.
    """
    starts = first or (0,) * len(extents)
    for extent, start in zip(extents, starts, strict=True):
        if start + extent > MOST or start < -MOST - 1:
            given = f"{extent} elements" + (f" from index {start}" if start else "")
            raise ExtentTooLarge(what, given).at()


def check_offset(what: str, offset: Any, rank: int) -> tuple[int, ...] | None:
    """An offset as a tuple of integers, one for each axis; None stands for none."""
    if offset is None:
        return None
    numbers = _integers(offset)
    if numbers is None:
        raise WrongArrayOption(
            what, "offset", f"is a tuple of integers, not {describe(offset)}"
        ).at()
    if len(numbers) != rank:
        raise WrongArrayOption(what, "offset", f"has {len(numbers)} numbers for {rank} axes").at()
    return numbers


def _integers(given: Any) -> tuple[int, ...] | None:
    """An integer, or a sequence of them (a numpy array, a vector), as a tuple; None for others."""
    if is_integer(given):
        return (int(given),)
    is_sequence = isinstance(given, (Sequence, np.ndarray, Matrix))
    numbers = tuple(given) if is_sequence and getattr(given, "ndim", 1) == 1 else (None,)
    return tuple(map(int, numbers)) if all(map(is_integer, numbers)) else None


def is_integer(x: Any) -> bool:
    """Whether this is an integer of Python or numpy, and no truth value."""
    return hasattr(x, "__index__") and not isinstance(x, bool) and getattr(x, "ndim", 0) == 0


i, j, k, l = (axes(number) for number in range(4))  # noqa: E741 - the names of the language
ij, ik, il, jk, jl, kl = i + j, i + k, i + l, j + k, j + l, k + l
ijk, ijl, ikl, jkl = ij + k, ij + l, ik + l, jk + l
ijkl = ijk + l
