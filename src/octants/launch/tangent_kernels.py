"""Kernels that compute tangents in arrays of their own, which their launches are passed.

Such a kernel is one like any other: a tape can record it, and so second derivatives are the reverse
of it. `ad.tangents` passes the arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octants import driver
from octants.deferred_import import Deferred
from octants.ir.core import Module
from octants.launch.specialisation import Specialisation

if TYPE_CHECKING:
    from octants import pipeline
else:
    pipeline = Deferred("octants.pipeline")


def with_tangents(
    specialisation: Specialisation, positions: tuple[int, ...], directions: int = 1
) -> Specialisation:
    """The kernel with the tangents of some of its arrays.

    Args:
        specialisation: the kernel.
        positions: the positions of the arrays, in order: fields, ndarrays, arguments that are
            passed by value, returned values.
        directions: how many directions a launch propagates.

    Returns:
        A clone whose launches are passed an ndarray more for each position, which has a first axis
        for the directions if there are several. What it returns are the values.

    Raises:
        OctantsCompilationError: an operation has no derivative rule.
    """
    key = ("tangents", directions, *positions)
    found: Specialisation | None = specialisation.programs.get(key)
    if found is None:

        def make() -> Module:
            original = specialisation.module
            active = [original.arrays[position] for position in positions]
            stage = driver.stage_of(specialisation.options)
            return pipeline.add_tangent_arrays(original, active, directions, stage)

        names = [f"tangent of {specialisation.arrays[k].name}" for k in positions]
        found = specialisation.programs[key] = specialisation.with_arrays(key, make, names)
    return found
