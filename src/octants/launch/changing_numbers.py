"""Which numbers of Python keep changing between the launches of a kernel.

A kernel is specialised for the first two values of a number that it reads: a flag, or a buffer that
is one of two, stays compiled in. With a third value it is taken for one that varies.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from octants.launch.specialisation import NumberRead, Specialisation
from octants.types.compile_time_reads import ReadKey

_MOST_CONSTANTS = 2


def varying_reads(variants: Iterable[Specialisation]) -> frozenset[ReadKey]:
    """The reads of the variants of a kernel of which one more value has come."""
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
    specialisation: Specialisation, arguments: tuple[Any, ...]
) -> tuple[Specialisation, tuple[Any, ...]]:
    """The kernel compiled for its numbers as they are now, and the arguments of a launch of that.

    Where a number is a hidden argument, branches are compiled that its value leaves out: one of
    them may have no derivative. The kernel has such numbers compiled in from now on.
    """
    given = arguments[: len(arguments) - len(specialisation.hidden)]
    found: Specialisation = specialisation.kernel.compile_in(specialisation, given)
    return found, given
