"""Notes which work items access which elements; a race raises an error."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from octants.fuzz.oracle.numbers import Num
from octants.fuzz.oracle.state import STATE, IllDefined, Race

_PLAIN = ("read", "write")


@dataclass
class Accesses:
    """The work items that have accessed an element, by mode, and what was stored there."""

    items: dict[str, set[int]] = field(default_factory=dict)
    stored: set[Any] = field(default_factory=set)  # constants; None for any other number

    def others(self, item: int) -> Iterator[str]:
        """The modes of accesses by other work items."""
        return (mode for mode, items in self.items.items() if items - {item})


class RaceWatch:
    """The accesses to the elements of an array in the parallel loop in progress.

    A mode is "read" or "write", the name of an atomic operation, or "use" for one whose result is
    used. Work items may share an element that all only read, that all change by one commutative
    operation, or in which all store the same constant. If all store the same number with a
    derivative, that is a race without an effect, which a compiler may refuse or not.
    """

    def __init__(self) -> None:
        self.epoch = -1
        self.accesses: dict[Any, Accesses] = {}

    def note(self, element: Any, mode: str, stored: Num | None = None) -> None:
        """Note an access of the work item in progress.

        Raises:
            Race: another one accesses the element, and one of the two reads or stores plainly.
            IllDefined: the two update it by different operations.
        """
        item = STATE.item
        if item is None or STATE.quiet:
            return
        if self.epoch != STATE.epoch:
            self.epoch = STATE.epoch
            self.accesses = {}
        found = self.accesses.setdefault(element, Accesses())
        found.items.setdefault(mode, set()).add(item)
        if mode == "write":
            found.stored.add(_constant(stored))
        for other in found.others(item):
            _judge(element, found, mode, other)


def _judge(element: Any, found: Accesses, mode: str, other: str) -> None:
    """Raise what is wrong with accesses in two modes to one element, by two work items."""
    if mode == other == "read":
        return
    if mode == other == "write" and len(found.stored) == 1 and None not in found.stored:
        return
    if mode in _PLAIN or other in _PLAIN:
        STATE.has_racing_reads |= mode != other or mode != "write"
        if not STATE.order:
            raise Race(f"race: {other} and {mode} {element}")
    elif mode != other or mode == "use":
        raise IllDefined(f"order of updates: {other} and {mode} {element}")


def _constant(number: Num | None) -> Any:
    """The value of a number that is exact and has no derivative, else None."""
    return number.value if number and number.error == 0 and number.node < 0 else None
