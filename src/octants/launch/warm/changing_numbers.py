"""Finds the Python numbers that keep changing between the launches of a kernel.

A kernel is specialised for the first two values of a number that it reads: a flag, or an index that
alternates, stays compiled in. With a third value the number becomes a hidden argument.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from octants.diagnostics.exceptions import OctantsError
from octants.launch.specialisation import NumberRead, Specialisation
from octants.types.compile_time_reads import ReadKey

_MOST_CONSTANTS = 2


def varying_reads(variants: Iterable[Specialisation]) -> frozenset[ReadKey]:
    """The reads of a kernel's variants whose numbers have had too many values to compile in."""
    reads: dict[ReadKey, NumberRead] = {}
    values: dict[ReadKey, set[Any]] = {}
    varying: set[ReadKey] = set()
    for variant in variants:
        varying |= variant.varying
        for read in variant.numbers:
            reads[read.key] = read
            values.setdefault(read.key, set()).add((type(read.value), read.value))
    for key, read in reads.items():
        now = read.now()
        is_number = type(now) in (int, float)
        if is_number and len(values[key] | {(type(now), now)}) > _MOST_CONSTANTS:
            varying.add(key)
    return frozenset(varying)


def with_constants(
    specialisation: Specialisation, arguments: tuple[Any, ...], error: OctantsError
) -> tuple[Specialisation, tuple[Any, ...]]:
    """Compile a kernel that has no derivative for the present values of its hidden arguments.

    With a hidden argument, code also contains branches that its value excludes, one of which may
    have no derivative. From now on, the kernel has such numbers compiled in.

    Returns:
        The new specialisation, and the arguments of a launch of it.

    Raises:
        OctantsError: the given one, if there are no hidden arguments.
    """
    if not specialisation.hidden:
        raise error
    given = arguments[: len(arguments) - len(specialisation.hidden)]
    found: Specialisation = specialisation.kernel.compile_in(specialisation, given)
    return found, given
